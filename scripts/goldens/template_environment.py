"""The jinja2 environment in which Hugging Face transformers renders chat templates, for goldens and comparisons."""
import datetime
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = "2024-07-26T12:34:56"


class RaisedByTemplate(Exception):
    """raise_exception() was called: its message is the answer."""


class GenerationTag(Extension):
    """{% generation %}: marks assistant text for training; no effect on the output."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment(now=NOW):
    clock = datetime.datetime.fromisoformat(now)

    def raise_exception(message):
        raise RaisedByTemplate(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: clock.strftime(format)
    return env


def render(template, context, env=None):
    """{"text": …}, {"raised": message} or {"error": type: message}."""
    try:
        return {"text": (env or environment()).from_string(template).render(**context)}
    except RaisedByTemplate as raised:
        return {"raised": str(raised)}
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
            SyntaxError, MemoryError, AssertionError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
