/// Filters that make text from text.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_util.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

/// soft_str: the text of a value, and whether it is already marked as safe.
struct Soft {
  std::string text;
  bool markup;
};
Soft soft(Interpreter& in, const Value& value) {
  in.budget().touch(value.is_string() ? value.text().size() : 64);
  return {to_str(value, in.budget()), value.is_string() && value.string_node().markup};
}

template <std::string (*Convert)(std::string_view)>
Result<Value> convert(Interpreter& in, const Value& self, Args&) {
  const Soft s = soft(in, self);
  return Value::string(Convert(s.text), s.markup);
}

/// The title filter: first letter of each word up, the rest down; words begin after spaces, - ( { [ and <.
std::string title_words(std::string_view text) {
  std::string out;
  size_t word = 0;
  const auto flush = [&](size_t end) {
    if (end <= word) return;
    size_t next = word;
    next_codepoint(text, next);
    out += to_upper(text.substr(word, next - word));
    out += to_lower(text.substr(next, end - next));
  };
  const auto separator = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (!separator(next_codepoint(text, pos))) continue;
    flush(begin);
    out += text.substr(begin, pos - begin);
    word = pos;
  }
  flush(text.size());
  return out;
}

Result<Value> trim(Interpreter& in, const Value& self, Args& args) {
  const Soft s = soft(in, self);
  if (args.get(0) == nullptr || args.at(0).is_none()) {
    return Value::string(std::string(strip(s.text, nullptr, true, true)), s.markup);
  }
  GALVANI_TRY(const std::string chars, string_argument(args, 0, "trim's argument"));
  in.budget().touch(chars.size() * std::min<size_t>(s.text.size(), 1 << 20));
  GALVANI_TRY_VOID(in.check_budget());
  const std::string_view view = chars;
  return Value::string(std::string(strip(s.text, &view, true, true)), s.markup);
}

Result<Value> replace(Interpreter& in, const Value& self, Args& args) {
  const Soft s = soft(in, self), from = soft(in, args.at(0)), to = soft(in, args.at(1));
  GALVANI_TRY(int64_t count, optional_integer(args, 2, -1, "replace's count"));
  const auto hits = static_cast<int64_t>(count_text(s.text, from.text));
  if (count < 0 || count > hits) count = hits;
  GALVANI_TRY_VOID(in.check_size(s.text.size() + static_cast<size_t>(count) * to.text.size(), "the result of replace"));
  return Value::string(replace_text(s.text, from.text, to.text, count), s.markup);
}

Result<Value> indent(Interpreter& in, const Value& self, Args& args) {
  if (!self.is_string()) {
    return bug("indent works on strings, not {}", self.is_undefined() ? self.undefined_reason() : self.type_name());
  }
  Soft s = soft(in, self);
  std::string prefix(4, ' ');
  if (const Value* width = args.get(0)) {
    if (width->is_string()) {
      prefix = width->text();
    } else {
      GALVANI_TRY(const int64_t spaces, integer_argument(args, 0, 4, "indent's width"));
      GALVANI_TRY_VOID(in.check_size(static_cast<size_t>(std::max<int64_t>(spaces, 0)), "an indent"));
      prefix.assign(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
    }
  }
  const bool first = args.get(1) != nullptr && args.at(1).truthy();
  const bool blank = args.get(2) != nullptr && args.at(2).truthy();
  s.text += '\n';  // as jinja2: a newline at the end then keeps an empty line after it
  GALVANI_TRY(const auto lines, split_lines(s.text, false));
  if (prefix.size() > in.budget().limits().output_bytes / (lines.size() + 1)) {
    return fail(ErrorCode::kOutOfRange, "{} lines indented by {} bytes are too much text", lines.size(), prefix.size());
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) out += '\n';
    if (i == 0 ? first : (blank || !lines[i].empty())) out += prefix;
    out += lines[i];
  }
  return Value::string(std::move(out), s.markup);
}

Result<Value> safe(Interpreter& in, const Value& self, Args&) { return Value::string(soft(in, self).text, true); }

Result<Value> escape(Interpreter& in, const Value& self, Args&) {
  const Soft s = soft(in, self);
  return Value::string(s.markup ? s.text : escape_html(s.text), true);
}

Result<Value> force_escape(Interpreter& in, const Value& self, Args&) {
  return Value::string(escape_html(soft(in, self).text), true);
}

Result<Value> string(Interpreter& in, const Value& self, Args&) {
  const Soft s = soft(in, self);
  return Value::string(s.text, s.markup);
}

Result<Value> center(Interpreter& in, const Value& self, Args& args) {
  const Soft s = soft(in, self);
  GALVANI_TRY(const int64_t width, integer_argument(args, 0, 80, "center's width"));
  GALVANI_TRY_VOID(in.check_size(static_cast<size_t>(std::max<int64_t>(width, 0)), "centered text"));
  return Value::string(center_text(s.text, width, " "), s.markup);
}

Result<Value> word_count(Interpreter& in, const Value& self, Args&) {
  const Soft s = soft(in, self);
  int64_t count = 0;
  bool inside = false;
  for (size_t pos = 0; pos < s.text.size();) {
    const bool word = is_word(next_codepoint(s.text, pos));
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::integer(count);
}

Result<Value> format(Interpreter& in, const Value& self, Args& args) {
  const Soft s = soft(in, self);
  Value argument;
  if (!args.named.empty()) {
    if (!args.positional.empty()) return bug("format takes positional or named arguments, not both");
    auto dict = std::make_shared<DictNode>();
    for (auto& [name, value] : args.named) dict->set(Value::string(name), std::move(value));
    argument = Value::dict(std::move(dict));
  } else {
    argument = Value::list(args.positional, ListFlavor::kTuple);
  }
  GALVANI_TRY(std::string text, format_percent(in, s.text, argument));
  return Value::string(std::move(text), s.markup);
}

Result<Value> truncate(Interpreter& in, const Value& self, Args& args) {
  if (!self.is_string()) {  // whatever has a length may pass, if it is short
    GALVANI_TRY(const int64_t size, length(self));
    GALVANI_TRY(const int64_t limit, integer_argument(args, 0, 255, "truncate's length"));
    GALVANI_TRY(const int64_t leeway, optional_integer(args, 3, 5, "truncate's leeway"));
    if (size <= limit || (leeway >= 0 && size - leeway <= limit)) return self;
    return bug("truncate works on strings, not {}", self.type_name());
  }
  const Soft s = soft(in, self);
  GALVANI_TRY(const int64_t wanted, integer_argument(args, 0, 255, "truncate's length"));
  const bool kill_words = args.get(1) != nullptr && args.at(1).truthy();
  const std::string end = args.get(2) != nullptr ? soft(in, args.at(2)).text : "...";
  GALVANI_TRY(const int64_t leeway, optional_integer(args, 3, 5, "truncate's leeway"));
  const int64_t end_size = static_cast<int64_t>(count_codepoints(end));
  if (wanted < end_size) return bug("truncate's length {} is shorter than its end", wanted);
  if (leeway < 0) return bug("truncate's leeway must not be negative");
  const int64_t size = static_cast<int64_t>(count_codepoints(s.text));
  if (size - leeway <= wanted) return Value::string(s.text, s.markup);
  std::string kept = s.text.substr(0, codepoint_offset(s.text, static_cast<size_t>(wanted - end_size)));
  if (!kill_words) {
    const size_t space = kept.rfind(' ');
    if (space != kept.npos) kept.resize(space);
  }
  return Value::string(kept + end, s.markup);
}

/// Percent-encoding of one text; in a query string "/" is encoded too and a space is "+".
std::string url_quote(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain)
      out += c;
    else if (c == ' ' && query)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out;
}

/// Text is quoted; a mapping or a list of pairs becomes a query string.
Result<Value> url_encode(Interpreter& in, const Value& self, Args&) {
  if (!self.is_dict() && !self.is_list() && !self.is_undefined()) {
    return Value::string(url_quote(soft(in, self).text, false));
  }
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += url_quote(soft(in, key).text, true);
    out += '=';
    out += url_quote(soft(in, value).text, true);
    return in.check_size(out.size(), "the result of urlencode");
  };
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict_node()->entries()) GALVANI_TRY_VOID(add(key, value));
    return Value::string(std::move(out));
  }
  GALVANI_TRY(const List pairs, iterate(self));
  for (const Value& pair : pairs) {
    GALVANI_TRY(const List both, iterate(pair));
    if (both.size() != 2) return bug("urlencode of a list needs pairs; found an item of length {}", both.size());
    GALVANI_TRY_VOID(add(both[0], both[1]));
  }
  return Value::string(std::move(out));
}

/// The Hugging Face filter, not jinja2's: no HTML escaping.
Result<Value> to_json_filter(Interpreter& in, const Value& self, Args& args) {
  JsonStyle style;
  style.ensure_ascii = args.get(0) != nullptr && args.at(0).truthy();
  style.sort_keys = args.get(3) != nullptr && args.at(3).truthy();
  if (const Value* width = args.get(1); width != nullptr && !width->is_none()) {
    style.item_separator.assign(1, ',');
    if (width->is_string()) {
      style.indent = width->text();
    } else {
      GALVANI_TRY(const int64_t spaces, integer_argument(args, 1, 0, "tojson's indent"));
      if (spaces > 1000) return bug("tojson's indent {} is more than 1000", spaces);
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
    }
  }
  if (const Value* separators = args.get(2); separators != nullptr && !separators->is_none()) {
    const bool pair = separators->is_list() && separators->items().size() == 2 && separators->items()[0].is_string() &&
                      separators->items()[1].is_string();
    if (!pair) return bug("tojson's separators must be two strings");
    style.item_separator = separators->items()[0].text();
    style.key_separator = separators->items()[1].text();
  }
  GALVANI_TRY(std::string text, to_json(self, style, in.budget()));
  return Value::string(std::move(text));
}

Result<Value> join(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const List items, iterate(self));
  const std::string separator = args.get(0) != nullptr ? soft(in, args.at(0)).text : "";
  const Value* by = args.get(1) != nullptr && !args.at(1).is_none() ? &args.at(1) : nullptr;
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += separator;
    Value part = items[i];
    if (by != nullptr) {
      GALVANI_TRY(part, attribute_path(in, part, *by));
    }
    out += soft(in, part).text;
    GALVANI_TRY_VOID(in.check_size(out.size(), "the result of join"));
    GALVANI_TRY_VOID(in.check_budget());
  }
  return Value::string(std::move(out));
}

constexpr NativeSpec kFilters[] = {
    {"capitalize", convert<to_capitalized>, ""},
    {"center", center, "width"},
    {"e", escape, ""},
    {"escape", escape, ""},
    {"forceescape", force_escape, ""},
    {"format", format, "*"},
    {"indent", indent, "width,first,blank"},
    {"join", join, "d,attribute"},
    {"lower", convert<to_lower>, ""},
    {"replace", replace, "old,new,count", 2},
    {"safe", safe, ""},
    {"string", string, ""},
    {"title", convert<title_words>, ""},
    {"tojson", to_json_filter, "ensure_ascii,indent,separators,sort_keys"},
    {"trim", trim, "chars"},
    {"truncate", truncate, "length,killwords,end,leeway"},
    {"upper", convert<to_upper>, ""},
    {"urlencode", url_encode, ""},
    {"wordcount", word_count, ""},
};

}  // namespace

std::span<const NativeSpec> text_filters() { return kFilters; }

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string center_text(std::string_view text, int64_t width, std::string_view fill) {
  const int64_t size = static_cast<int64_t>(count_codepoints(text));
  if (width <= size) return std::string(text);
  const int64_t missing = width - size;
  // CPython's rule for an odd remainder: it goes left when the width is odd too.
  const int64_t left = missing / 2 + (missing & width & 1);
  return pad(left, fill) + std::string(text) + pad(missing - left, fill);
}

std::string pad(int64_t count, std::string_view fill) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += fill;
  return out;
}

}  // namespace galvani::text::jinja
