#pragma once
/// Values as text, exactly as Python prints them.
#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace galvani::text::jinja {

/// repr(float): shortest digits that read back, exponent below 1e-4 and from 1e16.
std::string float_repr(double value);
/// str(value); too much text exhausts the budget and is cut.
std::string to_str(const Value& value, Budget& budget);
/// repr(value).
std::string to_repr(const Value& value, Budget& budget);
std::string quote_python(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  ///< text of one level; absent means one line
  std::string item_separator = ", ", key_separator = ": ";
};
/// json.dumps; an error names the type that JSON does not have.
Result<std::string> to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace galvani::text::jinja
