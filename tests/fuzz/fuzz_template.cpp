// Chat templates: any text must parse and render, or fail with an error, within the limits.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace {

const char* const kMessages = R"([
  {"role": "system", "content": "Be kind."},
  {"role": "user", "content": [{"type": "text", "text": "Wörld 日本語 😀"}, {"type": "image"}]},
  {"role": "assistant", "content": "<think>a</think> b", "tool_calls": [
    {"type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, 2.5, null, true, \"x\"]}"}}]},
  {"role": "tool", "content": null}])";
const char* const kTools = R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {
  "type": "object", "properties": {"q": {"type": "string", "enum": ["a", "b"]}}, "required": ["q"]}}}])";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  static const Json messages = Json::parse(kMessages), tools = Json::parse(kTools);
  const std::string source(reinterpret_cast<const char*>(data), size);
  auto parsed = galvani::text::Template::parse(source, "fuzz");
  if (!parsed) return 0;
  galvani::text::RenderOptions options;
  options.clock = galvani::text::CivilTime{2024, 7, 26, 12, 34, 56, 0};
  options.limits.steps = 20000;  // a run must take milliseconds
  options.limits.output_bytes = size_t{1} << 16;
  options.limits.created_bytes = int64_t{1} << 23;
  options.limits.touched_bytes = int64_t{1} << 25;
  options.limits.max_range = 2000;
  const Json context = {{"messages", messages},
                        {"tools", tools},
                        {"bos_token", "<s>"},
                        {"add_generation_prompt", true},
                        {"n", 7},
                        {"x", 2.5},
                        {"s", " text é "},
                        {"none", nullptr},
                        {"d", {{"a", 1}, {"b", {2, 3}}}}};
  const auto text = parsed->render(context, options);
  if (text && text->size() > options.limits.output_bytes) __builtin_trap();
  if (!text && text.error().code == galvani::ErrorCode::kInternal) __builtin_trap();
  // The same template gives the same answer.
  const auto again = parsed->render(context, options);
  if (text.has_value() != again.has_value() || (text && *text != *again)) __builtin_trap();
  return 0;
}
