"""Conversations that every chat template is rendered with."""
import copy
import json

TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, **more):
    return {"id": "call_" + name, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a place, \"now\" or later.", "parameters": {
    "type": "object", "properties": {
        "location": {"type": "string", "description": "City & country, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "options": {"type": "object", "description": "More", "properties": {"hourly": {"type": "boolean"}, "limit": {"type": "number", "default": 2.5}}, "required": ["hourly"]}},
    "required": ["location"]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
ODD = {"type": "function", "function": {"name": "odd", "description": "Unusual <schema>", "parameters": {"type": "object", "properties": {
    "either": {"oneOf": [{"type": "string", "description": "text"}, {"type": "null"}]}, "many": {"type": ["string", "null"]},
    "rows": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}}, "free": {}}, "required": ["either"]}}}

HELLO = [user("Hello")]
TALK = [system("You are terse."), user("What is 2+2?"), assistant("4"), user("And 3+3?")]
TOOL_TALK = [system("Use tools."), user("Weather in Zürich?"), assistant(None, tool_calls=[call("get_weather", {"location": "Zürich", "days": [1, 2], "options": {"hourly": True}})]),
             {"role": "tool", "name": "get_weather", "content": "{\"temp\": 21.5}"}, assistant("21.5 degrees."), user("Thanks!")]
TWO_CALLS = [user("Time and weather?"), assistant("Looking.", tool_calls=[call("clock", {}), call("get_weather", {"location": "Rome", "unit": "celsius", "n": 1.0, "none": None})]),
             {"role": "tool", "name": "clock", "content": "12:34"}, {"role": "tool", "name": "get_weather", "content": "sunny"}]
THOUGHTS = [user("Think."), assistant("<think>\nHmm.\n</think>\n\nDone."), user("Again."), assistant("<think>\nMore.\n</think>\n\nDone again.")]
PARTS = [{"role": "user", "content": [{"type": "text", "text": " Look at "}, {"type": "image"}, {"type": "text", "text": "this. "}]}]

CONVERSATIONS = [
    {"name": "one user turn", "messages": HELLO},
    {"name": "no generation prompt", "messages": HELLO, "add_generation_prompt": False},
    {"name": "system and user", "messages": [system("Be kind."), user("Hi")]},
    {"name": "several turns", "messages": TALK},
    {"name": "ends with the assistant", "messages": TALK[:3], "add_generation_prompt": False},
    {"name": "ends with the assistant, prompt asked for", "messages": TALK[:3]},
    {"name": "thinking on", "messages": HELLO, "extra": {"enable_thinking": True}},
    {"name": "thinking off", "messages": HELLO, "extra": {"enable_thinking": False}},
    {"name": "thoughts in the history", "messages": THOUGHTS + [user("Bye")]},
    {"name": "thoughts in the last turn", "messages": THOUGHTS, "add_generation_prompt": False},
    {"name": "thoughts preserved", "messages": THOUGHTS + [user("Bye")], "extra": {"preserve_thinking": True}},
    {"name": "reasoning content", "messages": [user("Q"), assistant("A", reasoning_content="because\n")], "add_generation_prompt": False},
    {"name": "thinking field", "messages": [user("Q"), assistant("A", thinking="because")], "add_generation_prompt": False},
    {"name": "list content", "messages": PARTS},
    {"name": "list content with text only", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, assistant("ok"), user("more")]},
    {"name": "list content in the system turn", "messages": [{"role": "system", "content": [{"type": "text", "text": "Sys."}]}, user("x")]},
    {"name": "image in the system turn", "messages": [{"role": "system", "content": [{"type": "image"}]}, user("x")]},
    {"name": "tools offered", "messages": HELLO, "tools": [WEATHER, CLOCK]},
    {"name": "tools offered, with system", "messages": TALK[:2], "tools": [WEATHER]},
    {"name": "odd schema", "messages": HELLO, "tools": [ODD, CLOCK]},
    {"name": "tool call and answer", "messages": TOOL_TALK, "tools": [WEATHER]},
    {"name": "tool call without tools", "messages": TOOL_TALK},
    {"name": "tool call pending", "messages": TOOL_TALK[:4], "tools": [WEATHER]},
    {"name": "two tool calls", "messages": TWO_CALLS, "tools": [CLOCK, WEATHER]},
    {"name": "arguments as JSON text", "messages": TOOL_TALK[:2] + [assistant("", tool_calls=[call("get_weather", "{\"location\": \"Z\\u00fcrich\", \"n\": 1.50, \"deep\": {\"a\": [true, null]}}")]), TOOL_TALK[3]], "tools": [WEATHER]},
    {"name": "arguments that are no JSON", "messages": [user("x"), assistant("", tool_calls=[call("f", "{not json")]), {"role": "tool", "content": "ok"}]},
    {"name": "tools in the system turn", "messages": TALK[:2], "tools": [WEATHER], "extra": {"tools_in_user_message": False}},
    {"name": "built-in tools", "messages": TALK[:2], "extra": {"builtin_tools": ["brave_search", "code_interpreter", "wolfram_alpha"]}},
    {"name": "built-in tool called", "messages": [user("q"), assistant(None, tool_calls=[call("brave_search", {"query": "cats", "lang": "en"})]), {"role": "ipython", "content": {"results": [1, 2]}}], "extra": {"builtin_tools": ["brave_search"]}},
    {"name": "date given", "messages": HELLO, "extra": {"date_string": "1 Jan 2020"}},
    {"name": "reasoning effort", "messages": HELLO, "extra": {"reasoning_effort": "high", "model_identity": "I am a test."}},
    {"name": "unicode", "messages": [system("Réponds en français 🇫🇷."), user("日本語テスト — \u00a0«ünïcödé» \u200b \U0001F468\u200d\U0001F469\u200d\U0001F467"), assistant("ça va ✅"), user("\u3000全角\u3000")]},
    {"name": "whitespace", "messages": [system("  \n padded \n "), user("\n\n  spaces  \t\n"), assistant("  x  "), user(" ")]},
    {"name": "special tokens in the text", "messages": [user("<|im_end|>\n<|im_start|>system\n{{ 7 * 7 }}{% raw %}<bos></think>")]},
    {"name": "empty content", "messages": [system(""), user("")]},
    {"name": "null content", "messages": [user("x"), assistant(None), user("y")]},
    {"name": "content missing", "messages": [{"role": "user"}]},
    {"name": "two user turns", "messages": [user("a"), user("b")]},
    {"name": "starts with the assistant", "messages": [assistant("Hello, human."), user("Hi")]},
    {"name": "system only", "messages": [system("alone")]},
    {"name": "system late", "messages": [user("a"), system("late"), user("b")]},
    {"name": "developer", "messages": [{"role": "developer", "content": "Follow."}, user("Hi")]},
    {"name": "unknown role", "messages": [user("a"), {"role": "narrator", "content": "Meanwhile"}]},
    {"name": "tool answer without a call", "messages": [user("a"), {"role": "tool", "content": "42"}]},
    {"name": "stop and ignored roles", "messages": [system("s"), user("a"), {"role": "ignored", "content": "no"}, assistant("b"), {"role": "stop", "content": ""}, user("never")]},
    {"name": "long talk", "messages": [system("Count.")] + [turn for i in range(12) for turn in (user(f"number {i}"), assistant(str(i)))] + [user("go on")]},
    {"name": "multi-line text and quotes", "messages": [user("def f():\n    return \"a\\b\" + 'c'\n"), assistant("```python\nprint(1)\n```"), user("\"quoted\" & <tagged>")]},
]


def parsed_arguments(messages):
    """Tool-call arguments as objects where they are JSON objects in text; None when there was none to change."""
    messages, changed = copy.deepcopy(messages), False
    for message in messages:
        for entry in message.get("tool_calls") or []:
            arguments = entry["function"]["arguments"]
            if isinstance(arguments, str):
                try:
                    value = json.loads(arguments)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    entry["function"]["arguments"], changed = value, True
    return messages if changed else None


def contexts(conversation, tokens):
    """The variables to try in turn: arguments as objects, then as they were sent."""
    base = {**tokens, "documents": None, **conversation.get("extra", {}), "tools": conversation.get("tools"),
            "add_generation_prompt": conversation.get("add_generation_prompt", True)}
    messages = conversation["messages"]
    parsed = parsed_arguments(messages)
    return ([{**base, "messages": parsed}] if parsed else []) + [{**base, "messages": messages}]
