/// Methods of str.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_util.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

Value like(const Value& self, std::string text) { return Value::string(std::move(text), self.string_node().markup); }

template <std::string (*Convert)(std::string_view)>
Result<Value> convert(Interpreter& in, const Value& self, Args&) {
  in.budget().touch(self.text().size());
  return like(self, Convert(self.text()));
}

template <bool kLeft, bool kRight>
Result<Value> strip_method(Interpreter& in, const Value& self, Args& args) {
  in.budget().touch(self.text().size());
  if (args.get(0) == nullptr || args.at(0).is_none()) {
    return like(self, std::string(strip(self.text(), nullptr, kLeft, kRight)));
  }
  GALVANI_TRY(const std::string chars, string_argument(args, 0, "the characters to strip"));
  in.budget().touch(chars.size() * std::min<size_t>(self.text().size(), 1 << 20));
  GALVANI_TRY_VOID(in.check_budget());
  const std::string_view view = chars;
  return like(self, std::string(strip(self.text(), &view, kLeft, kRight)));
}

/// Byte range of the optional start and end arguments (code points, may be negative); empty when start > end.
struct Range {
  size_t begin = 0, end = 0;
  int64_t first = 0;  ///< code points before `begin`
  bool valid = true;
};
Result<Range> range_of(Interpreter& in, const Value& self, const Args& args, size_t i) {
  const StringNode& node = self.string_node();
  in.budget().touch(node.text.size());
  if (args.get(i) == nullptr && args.get(i + 1) == nullptr) return Range{0, node.text.size(), 0, true};
  GALVANI_TRY(const int64_t size, length(self));
  GALVANI_TRY(int64_t start, optional_integer(args, i, 0, "start"));
  GALVANI_TRY(int64_t stop, optional_integer(args, i + 1, size, "end"));
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + size, 0);
  stop = std::min(stop, size);
  if (start > stop) return Range{0, 0, 0, false};
  return Range{codepoint_offset(node.text, static_cast<size_t>(start)),
               codepoint_offset(node.text, static_cast<size_t>(stop)), start, true};
}

template <bool kStart>
Result<Value> affix(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const Range range, range_of(in, self, args, 1));
  const std::string_view text = std::string_view(self.text()).substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& v) {
    const std::string& part = v.text();
    if (!range.valid || part.size() > text.size()) return false;
    return text.substr(kStart ? 0 : text.size() - part.size(), part.size()) == part;
  };
  const Value& wanted = args.at(0);
  if (wanted.is_string()) return Value::boolean(matches(wanted));
  if (wanted.is_list() && wanted.list_node()->flavor == ListFlavor::kTuple) {
    bool any = false;
    for (const Value& item : wanted.items()) {
      if (!item.is_string()) return bug("startswith and endswith take strings, not {}", item.type_name());
      any = any || matches(item);
    }
    return Value::boolean(any);
  }
  if (wanted.is_undefined()) return bug("{}", wanted.undefined_reason());
  return bug("startswith and endswith take a string or a tuple of strings, not {}", wanted.type_name());
}

template <bool kReverse, bool kMustFind>
Result<Value> find_method(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const std::string wanted, string_argument(args, 0, "the text to find"));
  GALVANI_TRY(const Range range, range_of(in, self, args, 1));
  const std::string_view text = std::string_view(self.text()).substr(range.begin, range.end - range.begin);
  const size_t at = !range.valid ? text.npos : kReverse ? rfind_text(text, wanted) : find_text(text, wanted);
  if (at == text.npos) {
    if (kMustFind) return bug("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(range.first + static_cast<int64_t>(count_codepoints(text.substr(0, at))));
}

Result<Value> count_method(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const std::string wanted, string_argument(args, 0, "the text to count"));
  GALVANI_TRY(const Range range, range_of(in, self, args, 1));
  if (!range.valid) return Value::integer(0);
  const std::string_view text = std::string_view(self.text()).substr(range.begin, range.end - range.begin);
  return Value::integer(static_cast<int64_t>(count_text(text, wanted)));
}

Result<Value> replace_method(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const std::string from, string_argument(args, 0, "the text to replace"));
  GALVANI_TRY(const std::string to, string_argument(args, 1, "the replacement"));
  GALVANI_TRY(int64_t count, integer_argument(args, 2, -1, "replace's count"));
  in.budget().touch(self.text().size());
  const auto hits = static_cast<int64_t>(count_text(self.text(), from));
  if (count < 0 || count > hits) count = hits;
  GALVANI_TRY_VOID(in.check_size(self.text().size() + static_cast<size_t>(count) * to.size(), "the result of replace"));
  return like(self, replace_text(self.text(), from, to, count));
}

/// split() without a separator: runs of whitespace.
List split_space(const Value& self, int64_t limit) {
  List out;
  std::string_view rest = strip(self.text(), nullptr, true, false);
  while (!rest.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(like(self, std::string(rest)));
      break;
    }
    size_t end = 0;
    while (end < rest.size()) {
      size_t next = end;
      if (is_space(next_codepoint(rest, next))) break;
      end = next;
    }
    out.push_back(like(self, std::string(rest.substr(0, end))));
    rest = strip(rest.substr(end), nullptr, true, false);
  }
  return out;
}

List rsplit_space(const Value& self, int64_t limit) {
  List out;
  std::string_view rest = strip(self.text(), nullptr, false, true);
  while (!rest.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(like(self, std::string(rest)));
      break;
    }
    size_t begin = rest.size();
    while (begin > 0) {
      size_t previous = begin;
      if (is_space(previous_codepoint(rest, previous))) break;
      begin = previous;
    }
    out.push_back(like(self, std::string(rest.substr(begin))));
    rest = strip(rest.substr(0, begin), nullptr, false, true);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

template <bool kReverse>
Result<Value> split_method(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const int64_t limit, integer_argument(args, 1, -1, "maxsplit"));
  const std::string& text = self.text();
  in.budget().touch(text.size());
  if (args.get(0) == nullptr || args.at(0).is_none()) {
    if (limit < 0 && text.size() > 2 * kMaxItems) return too_many_items(text.size() / 2);
    return Value::list(kReverse ? rsplit_space(self, limit) : split_space(self, limit));
  }
  GALVANI_TRY(const std::string separator, string_argument(args, 0, "the separator"));
  if (separator.empty()) return bug("split needs a separator that is not empty");
  // Reversed text turns rsplit into split; pieces are turned back.
  const std::string source = kReverse ? std::string(text.rbegin(), text.rend()) : text;
  const std::string mark = kReverse ? std::string(separator.rbegin(), separator.rend()) : separator;
  const size_t pieces = count_text(source, mark) + 1;
  if (pieces > kMaxItems) return too_many_items(pieces);
  List out;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    std::string piece = source.substr(begin, end - begin);
    if (kReverse) std::reverse(piece.begin(), piece.end());
    out.push_back(like(self, std::move(piece)));
  };
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t hit = find_text(source, mark, begin);
    if (hit == source.npos) break;
    add(hit);
    begin = hit + mark.size();
  }
  add(source.size());
  if (kReverse) std::reverse(out.begin(), out.end());
  return Value::list(std::move(out));
}

Result<Value> splitlines_method(Interpreter& in, const Value& self, Args& args) {
  in.budget().touch(self.text().size());
  GALVANI_TRY(const auto lines, split_lines(self.text(), args.get(0) != nullptr && args.at(0).truthy()));
  List out;
  for (const std::string_view line : lines) out.push_back(like(self, std::string(line)));
  return Value::list(std::move(out));
}

template <bool kReverse>
Result<Value> partition_method(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const std::string mark, string_argument(args, 0, "the separator"));
  if (mark.empty()) return bug("partition needs a separator that is not empty");
  const std::string& text = self.text();
  in.budget().touch(text.size());
  const size_t at = kReverse ? rfind_text(text, mark) : find_text(text, mark);
  List out = {like(self, text.substr(0, at)), like(self, mark),
              like(self, at == text.npos ? "" : text.substr(at + mark.size()))};
  if (at == text.npos) {
    out[1] = like(self, "");
    if (kReverse) std::swap(out[0], out[2]);
  }
  return Value::list(std::move(out), ListFlavor::kTuple);
}

Result<Value> join_method(Interpreter& in, const Value& self, Args& args) {
  if (args.at(0).is_undefined()) return like(self, "");
  GALVANI_TRY(const List items, iterate(args.at(0)));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) return bug("join: item {} is {}, not str", i, items[i].type_name());
    if (i != 0) out += self.text();
    out += items[i].text();
    GALVANI_TRY_VOID(in.check_size(out.size(), "the result of join"));
  }
  return like(self, std::move(out));
}

enum class Side { kLeft, kCenter, kRight };
template <Side kSide>
Result<Value> justify(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const int64_t width, integer_argument(args, 0, 0, "the width"));
  std::string fill = " ";
  if (args.get(1) != nullptr) {
    GALVANI_TRY(fill, string_argument(args, 1, "the fill character"));
    if (count_codepoints(fill) != 1) return bug("the fill must be exactly one character");
  }
  if (width > 0 && static_cast<uint64_t>(width) > in.budget().limits().output_bytes / 4) {
    return fail(ErrorCode::kOutOfRange, "text padded to {} characters is too long", width);
  }
  GALVANI_TRY(const int64_t size, length(self));
  if (kSide == Side::kCenter) return like(self, center_text(self.text(), width, fill));
  const std::string padding = width > size ? pad(width - size, fill) : "";
  return like(self, kSide == Side::kLeft ? self.text() + padding : padding + self.text());
}

Result<Value> zfill(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const int64_t width, integer_argument(args, 0, 0, "the width"));
  GALVANI_TRY_VOID(in.check_size(static_cast<size_t>(std::max<int64_t>(width, 0)), "zero-filled text"));
  GALVANI_TRY(const int64_t size, length(self));
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return like(self, text.substr(0, sign) + (width > size ? pad(width - size, "0") : "") + text.substr(sign));
}

template <bool kPrefix>
Result<Value> remove_affix(Interpreter&, const Value& self, Args& args) {
  GALVANI_TRY(const std::string part, string_argument(args, 0, "the text to remove"));
  std::string_view text = self.text();
  if (part.size() <= text.size()) {
    if (kPrefix && text.substr(0, part.size()) == part)
      text.remove_prefix(part.size());
    else if (!kPrefix && text.substr(text.size() - part.size()) == part)
      text.remove_suffix(part.size());
  }
  return like(self, std::string(text));
}

template <bool (*Test)(char32_t)>
Result<Value> all_of(Interpreter& in, const Value& self, Args&) {
  const std::string& text = self.text();
  in.budget().touch(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (!Test(next_codepoint(text, pos))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_digit(c) || is_numeric(c); }

template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Result<Value> case_test(Interpreter& in, const Value& self, Args&) {
  const std::string& text = self.text();
  in.budget().touch(text.size());
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_codepoint(text, pos);
    if (Other(c) || is_title(c)) return Value::boolean(false);
    any = any || Wanted(c);
  }
  return Value::boolean(any);
}

Result<Value> is_title_case(Interpreter& in, const Value& self, Args&) {
  const std::string& text = self.text();
  in.budget().touch(text.size());
  bool any = false, in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_codepoint(text, pos);
    const bool up = is_upper(c) || is_title(c), low = is_lower(c);
    if ((up && in_word) || (low && !in_word)) return Value::boolean(false);
    in_word = up || low;
    any = any || in_word;
  }
  return Value::boolean(any);
}

Result<Value> is_ascii_method(Interpreter&, const Value& self, Args&) {
  return Value::boolean(self.string_node().ascii);
}

Result<Value> expand_tabs(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const int64_t width, integer_argument(args, 0, 8, "the tab size"));
  const std::string& text = self.text();
  const size_t tabs = count_text(text, "\t");
  if (width > 0 && tabs != 0 && static_cast<uint64_t>(width) > in.budget().limits().output_bytes / tabs) {
    return fail(ErrorCode::kOutOfRange, "{} tabs of {} columns are too much text", tabs, width);
  }
  std::string out;
  int64_t column = 0;
  for (const char c : text) {
    if (c == '\t') {
      const int64_t spaces = width > 0 ? width - column % width : 0;
      out += pad(spaces, " ");
      column += spaces;
    } else {
      out += c;
      if (c == '\n' || c == '\r')
        column = 0;
      else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80)
        ++column;
    }
  }
  return like(self, std::move(out));
}

Result<Value> format_method(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(std::string text, format_braces(in, self.text(), args));
  return like(self, std::move(text));
}

constexpr NativeSpec kMethods[] = {
    {"capitalize", convert<to_capitalized>, ""},
    {"casefold", convert<to_lower>, ""},
    {"center", justify<Side::kCenter>, "width,fillchar", 1},
    {"count", count_method, "sub,start,end", 1},
    {"endswith", affix<false>, "suffix,start,end", 1},
    {"expandtabs", expand_tabs, "tabsize"},
    {"find", find_method<false, false>, "sub,start,end", 1},
    {"format", format_method, "*"},
    {"index", find_method<false, true>, "sub,start,end", 1},
    {"isalnum", all_of<is_alnum>, ""},
    {"isalpha", all_of<is_alpha>, ""},
    {"isascii", is_ascii_method, ""},
    {"isdecimal", all_of<is_decimal>, ""},
    {"isdigit", all_of<is_digit>, ""},
    {"islower", case_test<is_lower, is_upper>, ""},
    {"isnumeric", all_of<is_numeric>, ""},
    {"isprintable", all_of<is_printable>, ""},
    {"isspace", all_of<is_space>, ""},
    {"istitle", is_title_case, ""},
    {"isupper", case_test<is_upper, is_lower>, ""},
    {"join", join_method, "iterable", 1},
    {"ljust", justify<Side::kLeft>, "width,fillchar", 1},
    {"lower", convert<to_lower>, ""},
    {"lstrip", strip_method<true, false>, "chars"},
    {"partition", partition_method<false>, "sep", 1},
    {"removeprefix", remove_affix<true>, "prefix", 1},
    {"removesuffix", remove_affix<false>, "suffix", 1},
    {"replace", replace_method, "old,new,count", 2},
    {"rfind", find_method<true, false>, "sub,start,end", 1},
    {"rindex", find_method<true, true>, "sub,start,end", 1},
    {"rjust", justify<Side::kRight>, "width,fillchar", 1},
    {"rpartition", partition_method<true>, "sep", 1},
    {"rsplit", split_method<true>, "sep,maxsplit"},
    {"rstrip", strip_method<false, true>, "chars"},
    {"split", split_method<false>, "sep,maxsplit"},
    {"splitlines", splitlines_method, "keepends"},
    {"startswith", affix<true>, "prefix,start,end", 1},
    {"strip", strip_method<true, true>, "chars"},
    {"swapcase", convert<swap_case>, ""},
    {"title", convert<to_title>, ""},
    {"upper", convert<to_upper>, ""},
    {"zfill", zfill, "width", 1},
};

}  // namespace

const NativeSpec* find_string_method(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const auto& m) { return m.name == name; });
  return found != std::end(kMethods) ? found : nullptr;
}

Result<std::vector<std::string_view>> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const char32_t c = next_codepoint(text, pos);
    const bool end = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!end) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    out.push_back(text.substr(begin, (keep_ends ? pos : at) - begin));
    begin = pos;
    if (out.size() > kMaxItems) return too_many_items(out.size());
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

}  // namespace galvani::text::jinja
