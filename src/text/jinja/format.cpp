/// printf-style and brace-style formatting of strings.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_util.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

constexpr int64_t kMaxPrecision = 400;

/// One conversion, of either style.
struct Spec {
  std::string fill = " ";
  char align = '\0';  ///< '<' '>' '^' '='; '\0' is the type's own
  char sign = '-';    ///< '-' only negative, '+' always, ' ' a space for positive
  bool alternate = false, zero = false;
  int64_t width = 0, precision = -1;
  char grouping = '\0';
  char type = '\0';
};

bool read_number(std::string_view text, size_t& pos, int64_t& out) {
  const size_t begin = pos;
  out = 0;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos) {
    out = std::min<int64_t>(out * 10 + (text[pos] - '0'), int64_t{1} << 40);
  }
  return pos > begin;
}

std::string hex_or_octal(uint64_t value, char type) {
  switch (type) {
    case 'x': return fmt::format("{:x}", value);
    case 'X': return fmt::format("{:X}", value);
    case 'o': return fmt::format("{:o}", value);
    case 'b': return fmt::format("{:b}", value);
    default: return fmt::format("{}", value);
  }
}

/// Digits of |value| for an integer conversion, with its prefix when asked for.
std::string integer_digits(int64_t value, const Spec& spec) {
  const uint64_t magnitude = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits = hex_or_octal(magnitude, spec.type);
  if (spec.grouping != '\0') {
    const int step = spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b' ? 4 : 3;
    for (int at = static_cast<int>(digits.size()) - step; at > 0; at -= step) {
      digits.insert(static_cast<size_t>(at), 1, spec.grouping);
    }
  }
  return digits;
}

std::string integer_prefix(const Spec& spec) {
  if (!spec.alternate || (spec.type != 'x' && spec.type != 'X' && spec.type != 'o' && spec.type != 'b')) return "";
  return std::string("0") + spec.type;
}

/// Digits of |value| as printf writes them for f, e, g and their capitals.
Result<std::string> real_digits(double value, const Spec& spec) {
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (precision > kMaxPrecision)
    return bug("a precision of {} digits; at most {} are allowed", precision, kMaxPrecision);
  if (!std::isfinite(value)) {
    const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
    return std::string(std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
  }
  char format[16];
  std::snprintf(format, sizeof format, "%%%s.*%c", spec.alternate ? "#" : "", spec.type == '%' ? 'f' : spec.type);
  char buffer[1024];
  const int n = std::snprintf(buffer, sizeof buffer, format, static_cast<int>(precision), std::fabs(value));
  std::string digits(buffer, static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof buffer) - 1)));
  if (spec.grouping != '\0') {
    const size_t point = std::min(digits.find_first_of(".e"), digits.size());
    for (int at = static_cast<int>(point) - 3; at > 0; at -= 3)
      digits.insert(static_cast<size_t>(at), 1, spec.grouping);
  }
  return digits;
}

std::string sign_text(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

Result<std::string> aligned(Interpreter& in, const std::string& prefix, const std::string& body, const Spec& spec,
                            char own_align) {
  if (spec.width > 0 && static_cast<uint64_t>(spec.width) > in.budget().limits().output_bytes / 4) {
    return fail(ErrorCode::kOutOfRange, "a field {} wide is too long", spec.width);
  }
  const int64_t size = static_cast<int64_t>(count_codepoints(prefix) + count_codepoints(body));
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  switch (spec.align != '\0' ? spec.align : own_align) {
    case '<': return prefix + body + pad(missing, spec.fill);
    case '^': return pad(missing / 2, spec.fill) + prefix + body + pad(missing - missing / 2, spec.fill);
    case '=': return prefix + pad(missing, spec.fill) + body;
    default: return pad(missing, spec.fill) + prefix + body;
  }
}

Result<std::string> format_integer(Interpreter& in, int64_t value, Spec spec, char own_align) {
  if (spec.zero && spec.align == '\0') {
    spec.align = '=';
    spec.fill.assign(1, '0');
  }
  return aligned(in, sign_text(value < 0, spec) + integer_prefix(spec), integer_digits(value, spec), spec, own_align);
}

Result<std::string> format_real(Interpreter& in, double value, Spec spec, char own_align) {
  if (spec.zero && spec.align == '\0') {
    spec.align = '=';
    spec.fill.assign(1, '0');
  }
  std::string digits;
  if (spec.type == '\0' && spec.precision < 0) {
    digits = float_repr(std::fabs(value));
  } else {
    Spec with_type = spec;
    if (spec.type == '\0' || spec.type == 'n') with_type.type = 'g';
    if (spec.type == '%') value *= 100;
    if (with_type.type == 'g' && with_type.precision == 0) with_type.precision = 1;
    GALVANI_TRY(digits, real_digits(value, with_type));
    if (spec.type == '%') digits += '%';
    if (spec.type == '\0' && std::isfinite(value) && digits.find_first_of(".e") == digits.npos) digits += ".0";
  }
  return aligned(in, sign_text(std::signbit(value) && !std::isnan(value), spec), digits, spec, own_align);
}

Result<std::string> format_text(Interpreter& in, std::string text, const Spec& spec, char own_align) {
  if (spec.precision >= 0) text.resize(codepoint_offset(text, static_cast<size_t>(spec.precision)));
  return aligned(in, "", text, spec, own_align);
}

/// Walks the arguments of `format % arguments`.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& in, std::string_view format, const Value& argument)
      : in_(in), format_(format), argument_(argument) {
    tuple_ = argument.is_list() &&
             (argument.list_node()->flavor == ListFlavor::kTuple || argument.list_node()->flavor == ListFlavor::kGroup);
  }

  Result<std::string> run() {
    std::string out;
    for (size_t pos = 0; pos < format_.size();) {
      const size_t percent = std::min(format_.find('%', pos), format_.size());
      out += format_.substr(pos, percent - pos);
      if (percent == format_.size()) break;
      pos = percent + 1;
      GALVANI_TRY(const std::string piece, conversion(pos));
      out += piece;
      in_.budget().create(piece.size());
      GALVANI_TRY_VOID(in_.check_size(out.size(), "formatted text"));
      GALVANI_TRY_VOID(in_.check_budget());
    }
    const size_t available = tuple_ ? argument_.items().size() : 1;
    if (!named_ && used_ < available && !argument_.is_dict() && !argument_.is_undefined() &&
        (tuple_ || !argument_.is_list())) {
      return bug("not all arguments were used by the format string");
    }
    return out;
  }

 private:
  Result<Value> next() {
    if (named_value_.has_value()) return *std::exchange(named_value_, std::nullopt);
    if (tuple_) {
      if (used_ >= argument_.items().size()) return bug("not enough arguments for the format string");
      return argument_.items()[used_++];
    }
    if (used_++ > 0) return bug("not enough arguments for the format string");
    return argument_;
  }

  Result<int64_t> star_or_number(size_t& pos) {
    int64_t number = 0;
    if (pos < format_.size() && format_[pos] == '*') {
      ++pos;
      GALVANI_TRY(const Value value, next());
      if (!value.is_integral()) return bug("* in a format wants an integer");
      return value.as_int();
    }
    read_number(format_, pos, number);
    return number;
  }

  Result<std::string> conversion(size_t& pos) {
    Spec spec;
    if (pos < format_.size() && format_[pos] == '(') {
      const size_t close = format_.find(')', pos);
      if (close == format_.npos) return bug("a format key has no )");
      if (!argument_.is_dict()) return bug("a format with names needs a mapping");
      const std::string key(format_.substr(pos + 1, close - pos - 1));
      const Value* found = argument_.dict_node()->find(key);
      if (found == nullptr) return bug("the format names '{}', which is not given", key);
      named_value_ = *found;
      named_ = true;
      pos = close + 1;
    }
    for (; pos < format_.size() && std::string_view("-+ 0#").find(format_[pos]) != std::string_view::npos; ++pos) {
      switch (format_[pos]) {
        case '-': spec.align = '<'; break;
        case '+': spec.sign = '+'; break;
        case ' ': spec.sign = spec.sign == '+' ? '+' : ' '; break;
        case '0': spec.zero = true; break;
        default: spec.alternate = true;
      }
    }
    GALVANI_TRY(spec.width, star_or_number(pos));
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = spec.width == INT64_MIN ? INT64_MAX : -spec.width;
    }
    if (pos < format_.size() && format_[pos] == '.') {
      ++pos;
      GALVANI_TRY(spec.precision, star_or_number(pos));
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    while (pos < format_.size() && (format_[pos] == 'l' || format_[pos] == 'h' || format_[pos] == 'L')) ++pos;
    if (pos >= format_.size()) return bug("incomplete format");
    spec.type = format_[pos++];
    if (spec.type == '%') return std::string("%");
    GALVANI_TRY(const Value value, next());
    return convert(value, spec);
  }

  Result<std::string> convert(const Value& value, Spec spec) {
    if (spec.type == 's') return format_text(in_, to_str(value, in_.budget()), spec, '>');
    if (spec.type == 'r' || spec.type == 'a') return format_text(in_, to_repr(value, in_.budget()), spec, '>');
    if (spec.type == 'c') {
      if (value.is_string() && count_codepoints(value.text()) == 1) return format_text(in_, value.text(), spec, '>');
      if (!value.is_int() || value.as_int() < 0 || value.as_int() > 0x10FFFF ||
          (value.as_int() >= 0xD800 && value.as_int() < 0xE000)) {
        return bug("%c wants a character or its code");
      }
      std::string text;
      append_utf8(text, static_cast<char32_t>(value.as_int()));
      return format_text(in_, text, spec, '>');
    }
    if (value.is_undefined()) return bug("{}", value.undefined_reason());
    if (!value.is_number()) return bug("%{} wants a number, not {}", spec.type, value.type_name());
    switch (spec.type) {
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
        if (value.is_float() && !decimal) return bug("%{} wants an integer, not float", spec.type);
        if (value.is_float() && !(std::fabs(value.as_real()) < 9e18))
          return bug("%{} of {}", spec.type, value.as_real());
        const int64_t number = value.is_float() ? static_cast<int64_t>(value.as_real()) : value.as_int();
        if (decimal) spec.type = 'd';
        if (spec.precision > 0) {  // least number of digits
          if (spec.precision > kMaxPrecision) return bug("a precision of {} digits is too much", spec.precision);
          const std::string digits = integer_digits(number, spec);
          const std::string zeros = pad(spec.precision - static_cast<int64_t>(digits.size()), "0");
          return aligned(in_, sign_text(number < 0, spec) + integer_prefix(spec), zeros + digits, spec, '>');
        }
        return format_integer(in_, number, spec, '>');
      }
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G': return format_real(in_, value.as_real(), spec, '>');
      default: return bug("unsupported format character '{}'", spec.type);
    }
  }

  Interpreter& in_;
  std::string_view format_;
  const Value& argument_;
  bool tuple_ = false, named_ = false;
  size_t used_ = 0;
  std::optional<Value> named_value_;
};

/// [[fill]align][sign][#][0][width][grouping][.precision][type]
Result<Spec> parse_spec(std::string_view text) {
  static constexpr std::string_view kAligns = "<>^=";
  Spec spec;
  size_t pos = 0;
  if (!text.empty()) {
    size_t after_fill = 0;
    next_codepoint(text, after_fill);
    if (after_fill < text.size() && kAligns.find(text[after_fill]) != kAligns.npos) {
      spec.fill = std::string(text.substr(0, after_fill));
      spec.align = text[after_fill];
      pos = after_fill + 1;
    } else if (kAligns.find(text[0]) != kAligns.npos) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto skip = [&](char c) { return pos < text.size() && text[pos] == c && (++pos, true); };
  if (skip('+'))
    spec.sign = '+';
  else if (skip(' '))
    spec.sign = ' ';
  else
    skip('-');
  spec.alternate = skip('#');
  spec.zero = skip('0');
  read_number(text, pos, spec.width);
  if (skip(','))
    spec.grouping = ',';
  else if (skip('_'))
    spec.grouping = '_';
  if (skip('.') && !read_number(text, pos, spec.precision)) return bug("a format without digits after the point");
  if (pos < text.size()) spec.type = text[pos++];
  if (pos != text.size()) return bug("'{}' is no format specification", text);
  return spec;
}

Result<std::string> format_value(Interpreter& in, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_str(value, in.budget());
  GALVANI_TRY(Spec spec, parse_spec(spec_text));
  if (value.is_string() || value.is_undefined()) {
    if (spec.type != '\0' && spec.type != 's') return bug("the format code '{}' is not for strings", spec.type);
    if (spec.zero && spec.align == '\0') spec.fill.assign(1, '0');
    if (spec.align == '=') return bug("'=' alignment is not for strings");
    return format_text(in, to_str(value, in.budget()), spec, '<');
  }
  if (!value.is_number()) return bug("a value of type {} has no format specification", value.type_name());
  if (value.is_bool() && spec.type == '\0') {
    return format_text(in, to_str(value, in.budget()), spec, '<');
  }
  const bool integer_type = std::string_view("\0bdoxXn", 7).find(spec.type) != std::string_view::npos;
  if (value.is_integral() && integer_type) {
    if (spec.precision >= 0) return bug("precision is not allowed for integers");
    if (spec.type == 'd' || spec.type == 'n') spec.type = '\0';
    return format_integer(in, value.as_int(), spec, '>');
  }
  if (spec.type != '\0' && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) {
    return bug("unknown format code '{}' for {}", spec.type, value.type_name());
  }
  return format_real(in, value.as_real(), spec, '>');
}

/// name.attr[key]…: the argument and what is looked up in it.
Result<Value> resolve_field(Interpreter& in, std::string_view field, const Args& args, size_t& automatic) {
  const size_t name_end = std::min(field.find_first_of(".["), field.size());
  const std::string name(field.substr(0, name_end));
  Value value;
  if (name.empty() || name.find_first_not_of("0123456789") == name.npos) {
    const size_t index = name.empty() ? automatic++ : name.size() < 9 ? std::stoul(name) : SIZE_MAX;
    if (index >= args.positional.size()) return bug("format: no argument number {}", index);
    value = args.positional[index];
  } else {
    const auto found =
        std::find_if(args.named.begin(), args.named.end(), [&](const auto& entry) { return entry.first == name; });
    if (found == args.named.end()) return bug("format: no argument named '{}'", name);
    value = found->second;
  }
  for (size_t pos = name_end; pos < field.size();) {
    const bool bracket = field[pos] == '[';
    const size_t end = bracket ? field.find(']', pos) : std::min(field.find_first_of(".[", pos + 1), field.size());
    if (end == field.npos) return bug("format: a field has no ]");
    const std::string part(field.substr(pos + 1, end - pos - 1));
    if (part.empty()) return bug("format: an empty attribute");
    const bool number = bracket && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    const Value key = number ? Value::integer(std::stoll(part)) : Value::string(part);
    GALVANI_TRY(value, bracket ? item(in, value, key) : attribute(in, value, key));
    pos = end + (bracket ? 1 : 0);
  }
  return value;
}

}  // namespace

Result<std::string> format_percent(Interpreter& in, const std::string& format, const Value& argument) {
  return PercentFormatter(in, format, argument).run();
}

Result<std::string> format_braces(Interpreter& in, const std::string& format, const Args& args) {
  std::string out;
  size_t automatic = 0;
  for (size_t pos = 0; pos < format.size();) {
    const char c = format[pos];
    if (c != '{' && c != '}') {
      out += c;
      ++pos;
      continue;
    }
    if (pos + 1 < format.size() && format[pos + 1] == c) {
      out += c;
      pos += 2;
      continue;
    }
    if (c == '}') return bug("format: a single '}}'");
    const size_t close = format.find_first_of("{}", pos + 1);
    if (close == format.npos) return bug("format: a '{{' without '}}'");
    if (format[close] == '{') return fail(ErrorCode::kUnsupported, "format: nested fields are not supported");
    std::string_view field = std::string_view(format).substr(pos + 1, close - pos - 1);
    std::string_view spec;
    if (const size_t colon = field.find(':'); colon != field.npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (const size_t mark = field.find('!'); mark != field.npos) {
      if (mark + 2 != field.size()) return bug("format: a bad conversion");
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    GALVANI_TRY(Value value, resolve_field(in, field, args, automatic));
    if (conversion == 'r' || conversion == 'a')
      value = Value::string(to_repr(value, in.budget()));
    else if (conversion == 's')
      value = Value::string(to_str(value, in.budget()));
    else if (conversion != '\0')
      return bug("format: unknown conversion '{}'", conversion);
    GALVANI_TRY(const std::string piece, format_value(in, value, spec));
    out += piece;
    in.budget().create(piece.size());
    GALVANI_TRY_VOID(in.check_size(out.size(), "formatted text"));
    GALVANI_TRY_VOID(in.check_budget());
    pos = close + 1;
  }
  return out;
}

}  // namespace galvani::text::jinja
