#include "text/jinja/builtins.h"

#include <algorithm>

#include "text/jinja/interpreter.h"

namespace galvani::text::jinja {
namespace {

const NativeSpec* find_in(std::span<const NativeSpec> table, std::string_view name) {
  for (const NativeSpec& spec : table) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::vector<std::string_view> split_parameters(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    out.push_back(text.substr(0, comma));
    text = comma == text.npos ? std::string_view{} : text.substr(comma + 1);
  }
  return out;
}

}  // namespace

const NativeSpec* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), list_filters(), value_filters()}) {
    if (const NativeSpec* spec = find_in(table, name)) return spec;
  }
  return nullptr;
}

Result<Value> call_native(Interpreter& in, const NativeSpec& spec, const Value& self, Args args) {
  if (spec.parameters == "*") return spec.fn(in, self, args);
  const std::vector<std::string_view> names = split_parameters(spec.parameters);
  const size_t given = args.positional.size();
  if (given > names.size()) {
    return bug("{} takes at most {} arguments, {} were given", spec.name, names.size(), given);
  }
  Args bound;
  bound.positional = std::move(args.positional);
  bound.positional.resize(names.size());
  bound.given = static_cast<uint32_t>((uint64_t{1} << given) - 1);
  for (auto& [name, value] : args.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) return bug("{} has no argument named '{}'", spec.name, name);
    const auto i = static_cast<size_t>(at - names.begin());
    if ((bound.given >> i) & 1u) return bug("{} got the argument '{}' twice", spec.name, name);
    bound.positional[i] = std::move(value);
    bound.given |= 1u << i;
  }
  for (int i = 0; i < spec.required; ++i) {
    if (!((bound.given >> i) & 1u)) return bug("{} needs the argument '{}'", spec.name, names[static_cast<size_t>(i)]);
  }
  return spec.fn(in, self, bound);
}

Result<int64_t> integer_argument(const Args& args, size_t i, int64_t fallback, const char* what) {
  const Value* value = args.get(i);
  if (value == nullptr) return fallback;
  if (value->is_undefined()) return bug("{}", value->undefined_reason());
  if (!value->is_integral()) return bug("{} must be an integer, not {}", what, value->type_name());
  return value->as_int();
}

Result<int64_t> optional_integer(const Args& args, size_t i, int64_t fallback, const char* what) {
  if (args.get(i) != nullptr && args.at(i).is_none()) return fallback;
  return integer_argument(args, i, fallback, what);
}

Result<std::string> string_argument(const Args& args, size_t i, const char* what) {
  const Value* value = args.get(i);
  if (value == nullptr) return bug("{} is missing", what);
  if (value->is_undefined()) return bug("{}", value->undefined_reason());
  if (!value->is_string()) return bug("{} must be a string, not {}", what, value->type_name());
  return value->text();
}

}  // namespace galvani::text::jinja
