#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

constexpr int kMaxPrintDepth = 250;

bool full(const std::string& out, Budget& budget) {
  if (out.size() > budget.limits().output_bytes) budget.exhaust("text of one value");
  return budget.exhausted();
}

void append_quoted(std::string& out, std::string_view text) {
  const bool single = text.find('\'') != text.npos, twice = text.find('"') != text.npos;
  const char quote = single && !twice ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = next_codepoint(text, pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(begin, pos - begin);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  out += quote;
}

void append_repr(std::string& out, const Value& value, Budget& budget, int depth);

void append_items(std::string& out, const List& items, Budget& budget, int depth) {
  for (size_t i = 0; i < items.size() && !full(out, budget); ++i) {
    if (i != 0) out += ", ";
    append_repr(out, items[i], budget, depth + 1);
  }
}

void append_dict(std::string& out, const DictNode& node, Budget& budget, int depth) {
  out += '{';
  bool first = true;
  for (const auto& [key, item] : node.entries()) {
    if (full(out, budget)) return;
    if (!first) out += ", ";
    first = false;
    append_repr(out, key, budget, depth + 1);
    out += ": ";
    append_repr(out, item, budget, depth + 1);
  }
  out += '}';
}

void append_list(std::string& out, const ListNode& node, Budget& budget, int depth) {
  const auto wrapped = [&](const char* open, const char* close) {
    out += open;
    append_items(out, node.items, budget, depth);
    out += close;
  };
  switch (node.flavor) {
    case ListFlavor::kList: return wrapped("[", "]");
    case ListFlavor::kTuple:
    case ListFlavor::kGroup: return wrapped("(", node.items.size() == 1 ? ",)" : ")");
    case ListFlavor::kItems: return wrapped("dict_items([", "])");
    case ListFlavor::kKeys: return wrapped("dict_keys([", "])");
    case ListFlavor::kValues: return wrapped("dict_values([", "])");
    case ListFlavor::kGenerator: out += "<generator object>"; return;
    case ListFlavor::kRange:
      out += node.step == 1 ? fmt::format("range({}, {})", node.start, node.stop)
                            : fmt::format("range({}, {}, {})", node.start, node.stop, node.step);
      return;
  }
}

void append_repr(std::string& out, const Value& value, Budget& budget, int depth) {
  if (depth > kMaxPrintDepth) budget.exhaust("nesting of a printed value");
  if (full(out, budget)) return;
  switch (value.kind()) {
    case Kind::kUndefined: out += "Undefined"; return;
    case Kind::kNone: out += "None"; return;
    case Kind::kBool: out += value.as_bool() ? "True" : "False"; return;
    case Kind::kInt: out += std::to_string(value.as_int()); return;
    case Kind::kFloat: out += float_repr(value.as_real()); return;
    case Kind::kString:
      if (value.string_node().markup) out += "Markup(";
      append_quoted(out, value.text());
      if (value.string_node().markup) out += ')';
      return;
    case Kind::kList: return append_list(out, *value.list_node(), budget, depth);
    case Kind::kDict: return append_dict(out, *value.dict_node(), budget, depth);
    case Kind::kFunction: out += fmt::format("<built-in method {}>", value.function_node()->spec->name); return;
    case Kind::kMacro: out += macro_repr(*value.macro_node()); return;
    case Kind::kLoop: out += loop_repr(*value.loop_node()); return;
    case Kind::kNamespace:
      out += "<Namespace ";
      append_dict(out, value.namespace_node()->attributes, budget, depth);
      out += '>';
      return;
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Status write(const Value& value, int level) {
    if (full(out_, budget_)) return {};
    switch (value.kind()) {
      case Kind::kNone: out_ += "null"; return {};
      case Kind::kBool: out_ += value.as_bool() ? "true" : "false"; return {};
      case Kind::kInt: out_ += std::to_string(value.as_int()); return {};
      case Kind::kFloat: write_float(value.as_real()); return {};
      case Kind::kString: write_string(value.text()); return {};
      case Kind::kDict: return write_dict(*value.dict_node(), level);
      case Kind::kList: {
        const ListFlavor flavor = value.list_node()->flavor;
        if (flavor == ListFlavor::kList || flavor == ListFlavor::kTuple || flavor == ListFlavor::kGroup) {
          return write_list(value.items(), level);
        }
        break;
      }
      default: break;
    }
    if (value.is_undefined()) return bug("tojson: {}, and JSON has no undefined", value.undefined_reason());
    return bug("tojson: an object of type {} is not JSON serializable", value.type_name());
  }
  std::string take() { return std::move(out_); }

 private:
  void write_float(double value) {
    if (std::isnan(value))
      out_ += "NaN";
    else if (std::isinf(value))
      out_ += value < 0 ? "-Infinity" : "Infinity";
    else
      out_ += float_repr(value);
  }

  void write_string(std::string_view text) {
    out_ += '"';
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = pos;
      const char32_t c = next_codepoint(text, pos);
      switch (c) {
        case '"': out_ += "\\\""; break;
        case '\\': out_ += "\\\\"; break;
        case '\n': out_ += "\\n"; break;
        case '\r': out_ += "\\r"; break;
        case '\t': out_ += "\\t"; break;
        case '\f': out_ += "\\f"; break;
        case '\b': out_ += "\\b"; break;
        default:
          if (c < 0x20 || (style_.ensure_ascii && c > 0x7E))
            write_escape(c);
          else
            out_ += text.substr(begin, pos - begin);
      }
    }
    out_ += '"';
  }

  void write_escape(char32_t c) {
    if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      const uint32_t v = static_cast<uint32_t>(c) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
    }
  }

  void new_line(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level && !full(out_, budget_); ++i) out_ += *style_.indent;
  }

  Status write_list(const List& items, int level) {
    out_ += '[';
    for (size_t i = 0; i < items.size() && !budget_.exhausted(); ++i) {
      if (i != 0) out_ += style_.item_separator;
      new_line(level + 1);
      GALVANI_TRY_VOID(write(items[i], level + 1));
    }
    if (!items.empty()) new_line(level);
    out_ += ']';
    return {};
  }

  Status write_key(const Value& key) {
    if (key.is_string())
      write_string(key.text());
    else if (key.is_none())
      out_ += "\"null\"";
    else if (key.is_bool())
      out_ += key.as_bool() ? "\"true\"" : "\"false\"";
    else if (key.is_int())
      out_ += fmt::format("\"{}\"", key.as_int());
    else if (key.is_float())
      out_ += '"', write_float(key.as_real()), out_ += '"';
    else
      return bug("tojson: keys must be str, int, float, bool or None, not {}", key.type_name());
    return {};
  }

  Status write_dict(const DictNode& node, int level) {
    std::vector<const DictNode::Entry*> entries;
    for (const auto& entry : node.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (const auto* entry : entries) {
        if (!entry->first.is_string()) return bug("tojson: sort_keys needs keys that are all strings");
      }
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return a->first.text() < b->first.text(); });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size() && !budget_.exhausted(); ++i) {
      if (i != 0) out_ += style_.item_separator;
      new_line(level + 1);
      GALVANI_TRY_VOID(write_key(entries[i]->first));
      out_ += style_.key_separator;
      GALVANI_TRY_VOID(write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) new_line(level);
    out_ += '}';
    return {};
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const bool negative = text.front() == '-';
  if (negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t digits_of_exponent = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + digits_of_exponent, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  std::string out = negative ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(1, '.').append(digits, 1);
    out += fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else if (count <= exponent + 1) {
    out.append(digits).append(static_cast<size_t>(exponent + 1 - count), '0').append(".0");
  } else {
    const auto whole = static_cast<size_t>(exponent + 1);
    out.append(digits, 0, whole).append(1, '.').append(digits, whole);
  }
  return out;
}

std::string quote_python(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

std::string to_str(const Value& value, Budget& budget) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return "";
  return to_repr(value, budget);
}

std::string to_repr(const Value& value, Budget& budget) {
  std::string out;
  append_repr(out, value, budget, 0);
  return out;
}

Result<std::string> to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  GALVANI_TRY_VOID(writer.write(value, 0));
  return writer.take();
}

}  // namespace galvani::text::jinja
