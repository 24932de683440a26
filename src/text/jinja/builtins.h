#pragma once
/// Filters, tests, methods and global functions: how they are declared, found and called.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace galvani::text::jinja {

class Interpreter;

/// Arguments of a call. Before binding: as written. After binding to a NativeSpec: `positional` has one entry per
/// parameter, and get(i) is null where the caller gave none.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  uint32_t given = ~0u;  ///< bit per bound parameter

  const Value* get(size_t i) const {
    return i < positional.size() && (i >= 32 || (given >> i) & 1u) ? &positional[i] : nullptr;
  }
  const Value& at(size_t i) const { return positional[i]; }
};

/// `self` is the filtered or tested value, or the object of a method.
using NativeFn = Result<Value> (*)(Interpreter& in, const Value& self, Args& args);

struct NativeSpec {
  std::string_view name;
  NativeFn fn = nullptr;
  std::string_view parameters;  ///< "a,b,c"; "*" takes the arguments unbound
  int required = 0;
};

struct FunctionNode {
  const NativeSpec* spec = nullptr;
  Value self;
  int depth = 0;             ///< of self, plus one
  std::vector<Value> state;  ///< of joiner: whether it was called
};

/// Filters may have several names for one function. Null when there is none.
const NativeSpec* find_filter(std::string_view name);
const NativeSpec* find_test(std::string_view name);
const NativeSpec* find_string_method(std::string_view name);
const NativeSpec* find_dict_method(std::string_view name);
const NativeSpec* find_list_method(std::string_view name);
const NativeSpec* find_loop_method(std::string_view name);
const NativeSpec* find_global(std::string_view name);

/// Each source file contributes one table.
std::span<const NativeSpec> text_filters();
std::span<const NativeSpec> list_filters();
std::span<const NativeSpec> value_filters();

/// Checks the arguments against the declaration and calls.
Result<Value> call_native(Interpreter& in, const NativeSpec& spec, const Value& self, Args args);

/// printf-style `format % argument` and str.format; both bounded by the output limit.
Result<std::string> format_percent(Interpreter& in, const std::string& format, const Value& argument);
Result<std::string> format_braces(Interpreter& in, const std::string& format, const Args& args);

/// Parameter `i` as an integer (bool counts), or `fallback` when not given; an error names `what`.
Result<int64_t> integer_argument(const Args& args, size_t i, int64_t fallback, const char* what);
/// An integer where None means `fallback`.
Result<int64_t> optional_integer(const Args& args, size_t i, int64_t fallback, const char* what);
Result<std::string> string_argument(const Args& args, size_t i, const char* what);

}  // namespace galvani::text::jinja
