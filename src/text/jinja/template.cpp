#include "text/jinja/template.h"

#include <nlohmann/json.hpp>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace galvani::text {
namespace {

using jinja::Value;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxSourceBytes = size_t{1} << 20;
constexpr int kMaxJsonDepth = 190;

Result<std::string> checked_text(const std::string& text) {
  const size_t bad = jinja::find_invalid_utf8(text);
  if (bad == std::string::npos) return text;
  return fail(ErrorCode::kInvalidArgument, "a string of the chat is not valid UTF-8 at byte {}", bad);
}

Result<Value> from_json(const Json& json, int depth) {
  if (depth > kMaxJsonDepth) {
    return fail(ErrorCode::kInvalidArgument, "the chat nests lists and objects more than {} levels deep",
                kMaxJsonDepth);
  }
  switch (json.type()) {
    case Json::value_t::null: return Value::none();
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number <= static_cast<uint64_t>(INT64_MAX)) return Value::integer(static_cast<int64_t>(number));
      return fail(ErrorCode::kInvalidArgument, "the integer {} of the chat is beyond 64 signed bits", number);
    }
    case Json::value_t::number_float: return Value::real(json.get<double>());
    case Json::value_t::string: {
      GALVANI_TRY(std::string text, checked_text(json.get_ref<const std::string&>()));
      return Value::string(std::move(text));
    }
    case Json::value_t::array: {
      jinja::List items;
      items.reserve(json.size());
      for (const Json& item : json) {
        GALVANI_TRY(Value value, from_json(item, depth + 1));
        items.push_back(std::move(value));
      }
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<jinja::DictNode>();
      for (const auto& [key, item] : json.items()) {
        GALVANI_TRY(std::string name, checked_text(key));
        GALVANI_TRY(Value value, from_json(item, depth + 1));
        dict->set(Value::string(std::move(name)), std::move(value));
      }
      return Value::dict(std::move(dict));
    }
    default: return fail(ErrorCode::kInvalidArgument, "the chat holds a value that JSON does not have");
  }
}

}  // namespace

Result<Template> Template::parse(std::string source, std::string name) {
  if (source.size() > kMaxSourceBytes) {
    return fail(ErrorCode::kUnsupported, "{}: a template of {} bytes; at most {} are supported", name, source.size(),
                kMaxSourceBytes);
  }
  const size_t bad = jinja::find_invalid_utf8(source);
  if (bad != std::string::npos) return fail(ErrorCode::kCorrupt, "{}: not valid UTF-8 at byte {}", name, bad);
  auto program = jinja::parse_template(source);
  if (!program) return wrap(std::move(program).error(), name);
  return Template(std::move(name), std::shared_ptr<const jinja::Program>(std::move(*program)));
}

Result<std::string> Template::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  if (!context.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "{}: the variables must be an object, not {}", name_, context.type_name());
  }
  jinja::Interpreter interpreter(*program_, options.limits, options.clock ? *options.clock : local_now());
  for (size_t id = 0; id < program_->names.size(); ++id) {
    const auto found = context.find(program_->names[id]);
    if (found == context.end()) continue;
    GALVANI_TRY(Value value, from_json(*found, 0));
    interpreter.define(static_cast<uint32_t>(id), std::move(value));
  }
  auto text = interpreter.run();
  if (text) return text;
  Error error = std::move(text).error();
  if (error.code == ErrorCode::kInvalidArgument) return tl::unexpected<Error>(std::move(error));
  error.message = fmt::format("{}, line {}: {}", name_, interpreter.line(), error.message);
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace galvani::text
