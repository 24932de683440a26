#pragma once
/// Small helpers that filters, methods and operators share.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace galvani::text::jinja {

class Interpreter;

/// & < > " ' as HTML entities, as markupsafe writes them.
std::string escape_html(std::string_view text);
/// `count` times `fill` (none when negative).
std::string pad(int64_t count, std::string_view fill);
/// str.center: at least `width` code points.
std::string center_text(std::string_view text, int64_t width, std::string_view fill);
/// str.splitlines.
Result<std::vector<std::string_view>> split_lines(std::string_view text, bool keep_ends);
/// int(text, base) and float(text) of Python; absent when the text is no number. Integers beyond 64 bits are an error.
Result<std::optional<int64_t>> parse_integer(std::string_view text, int64_t base);
std::optional<double> parse_real(std::string_view text);
/// round(value, digits), exact on the decimal digits and half to even.
double round_real(double value, int64_t digits);
/// The `attribute` argument of map, sort, join, …: "a.b.0" walks items and attributes, an integer is an index.
/// A step that finds nothing continues with `fallback`, unless that is null or none.
Result<Value> attribute_path(Interpreter& in, const Value& object, const Value& path, const Value* fallback = nullptr);

}  // namespace galvani::text::jinja
