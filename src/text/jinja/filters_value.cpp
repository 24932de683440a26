/// Filters on single values and the conversions behind them.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_util.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

Result<Value> defaulted(Interpreter&, const Value& self, Args& args) {
  const bool falsy_too = args.get(1) != nullptr && args.at(1).truthy();
  if (!self.is_undefined() && !(falsy_too && !self.truthy())) return self;
  return args.get(0) != nullptr ? args.at(0) : Value::string("");
}

Result<Value> absolute(Interpreter&, const Value& self, Args&) {
  if (self.is_float()) return Value::real(std::fabs(self.as_real()));
  if (self.is_undefined()) return bug("{}", self.undefined_reason());
  if (!self.is_integral()) return bug("abs does not work on {}", self.type_name());
  return self.as_int() < 0 ? negate(self) : Value::integer(self.as_int());
}

/// A float cut to an integer; absent for nan and infinities.
Result<std::optional<int64_t>> truncated(double value) {
  if (!std::isfinite(value)) return std::optional<int64_t>();
  if (!(value > -9.3e18 && value < 9.3e18) || value >= 0x1p63 || value < -0x1p63) {
    return fail(ErrorCode::kOutOfRange, "{} is beyond 64-bit integers", value);
  }
  return std::optional<int64_t>(static_cast<int64_t>(value));
}

Result<Value> to_int(Interpreter& in, const Value& self, Args& args) {
  const Value fallback = args.get(0) != nullptr ? args.at(0) : Value::integer(0);
  if (self.is_undefined()) return bug("{}", self.undefined_reason());
  if (self.is_integral()) return Value::integer(self.as_int());
  std::optional<double> real;
  if (self.is_float()) real = self.as_real();
  if (self.is_string()) {
    in.budget().touch(self.text().size());
    GALVANI_TRY(const int64_t base, integer_argument(args, 1, 10, "int's base"));
    GALVANI_TRY(const auto parsed, parse_integer(self.text(), base));
    if (parsed) return Value::integer(*parsed);
    real = parse_real(self.text());
  }
  if (!real) return fallback;
  GALVANI_TRY(const auto cut, truncated(*real));
  return cut ? Value::integer(*cut) : fallback;
}

Result<Value> to_float(Interpreter& in, const Value& self, Args& args) {
  if (self.is_undefined()) return bug("{}", self.undefined_reason());
  if (self.is_number()) return Value::real(self.as_real());
  if (self.is_string()) {
    in.budget().touch(self.text().size());
    if (const auto parsed = parse_real(self.text())) return Value::real(*parsed);
  }
  return args.get(0) != nullptr ? args.at(0) : Value::real(0.0);
}

Result<Value> rounded(Interpreter& in, const Value& self, Args& args) {
  if (self.is_undefined()) return bug("{}", self.undefined_reason());
  if (!self.is_number()) return bug("round does not work on {}", self.type_name());
  GALVANI_TRY(const int64_t digits, integer_argument(args, 0, 0, "round's precision"));
  const std::string method = args.get(1) != nullptr ? to_str(args.at(1), in.budget()) : "common";
  if (method == "common") {
    if (self.is_integral()) {
      if (digits >= 0) return Value::integer(self.as_int());
      // Half to even on the digits that go.
      if (digits < -18) return Value::integer(0);
      int64_t unit = 1;
      for (int64_t i = digits; i < 0; ++i) unit *= 10;
      const int64_t v = self.as_int(), rest = ((v % unit) + unit) % unit;
      int64_t down = 0;
      if (__builtin_sub_overflow(v, rest, &down)) return fail(ErrorCode::kOutOfRange, "round is beyond 64 bits");
      const bool up = rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
      if (up && __builtin_add_overflow(down, unit, &down))
        return fail(ErrorCode::kOutOfRange, "round is beyond 64 bits");
      return Value::integer(down);
    }
    return Value::real(round_real(self.as_real(), digits));
  }
  if (method != "ceil" && method != "floor") return bug("round's method is common, ceil or floor, not '{}'", method);
  if (digits > 300 || digits < -300) return bug("round's precision {} is beyond a double", digits);
  const double scale = std::pow(10.0, static_cast<double>(digits)), scaled = self.as_real() * scale;
  if (!std::isfinite(scaled)) return bug("round of a value that is not finite");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> attr(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const std::string name, string_argument(args, 0, "attr's name"));
  if (self.is_undefined()) return bug("{}", self.undefined_reason());
  // Attributes only: a dict's items do not count.
  if (self.is_dict() && find_dict_method(name) == nullptr) {
    return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name));
  }
  return attribute(in, self, args.at(0));
}

constexpr NativeSpec kFilters[] = {
    {"abs", absolute, ""},
    {"attr", attr, "name", 1},
    {"d", defaulted, "default_value,boolean"},
    {"default", defaulted, "default_value,boolean"},
    {"float", to_float, "default"},
    {"int", to_int, "default,base"},
    {"round", rounded, "precision,method"},
};

/// Python allows single underscores between digits.
bool drop_underscores(std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto alnum = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return false;
  }
  text = std::move(out);
  return true;
}

}  // namespace

std::span<const NativeSpec> value_filters() { return kFilters; }

Result<std::optional<int64_t>> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return bug("a number base is 2 to 36, not {}", base);
  std::string digits(strip(text, nullptr, true, true));
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  const char mark = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) {
    digits.erase(0, digits[2] == '_' ? 3 : 2);
    base = marked;
  } else if (base == 0) {
    base = 10;
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of("0_") != digits.npos) {
      return std::optional<int64_t>();
    }
  }
  if (!drop_underscores(digits) || digits.empty() || digits[0] == '-') return std::optional<int64_t>();
  if (negative) digits.insert(digits.begin(), '-');
  int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (parsed.ptr != digits.data() + digits.size() || parsed.ec == std::errc::invalid_argument) {
    return std::optional<int64_t>();
  }
  if (parsed.ec != std::errc()) return fail(ErrorCode::kOutOfRange, "'{}' is beyond 64-bit integers", digits);
  return std::optional<int64_t>(value);
}

std::optional<double> parse_real(std::string_view text) {
  std::string digits(strip(text, nullptr, true, true));
  if (!drop_underscores(digits) || digits.empty()) return std::nullopt;
  bool negative = false;
  if (digits[0] == '-' || digits[0] == '+') {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ptr != digits.data() + digits.size() || parsed.ec == std::errc::invalid_argument) return std::nullopt;
  if (digits.find('(') != digits.npos) return std::nullopt;  // nan(…) is C, not Python
  if (parsed.ec == std::errc::result_out_of_range) {
    // Too large or too small: decided by the sign of the exponent.
    const size_t e = digits.find_first_of("eE");
    const bool tiny = e != digits.npos && digits.find('-', e) != digits.npos;
    value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return negative ? -value : value;
}

double round_real(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(digits));
    double out = value;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

}  // namespace galvani::text::jinja
