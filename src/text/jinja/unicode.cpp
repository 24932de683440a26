#include "text/jinja/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace galvani::text::jinja {
namespace {

struct SpecialCase {
  char32_t code;
  const char32_t* upper;
  const char32_t* title;
};
constexpr SpecialCase kSpecialCases[] = {
#include "text/jinja/special_casing.inc"
};

const SpecialCase* special_case(char32_t c) {
  const auto* found = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                       [](const SpecialCase& entry, char32_t code) { return entry.code < code; });
  return found != std::end(kSpecialCases) && found->code == c ? found : nullptr;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

/// Characters that do not end a word for the final-sigma rule.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
  }
  return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCase* entry = special_case(c)) {
    for (const char32_t* p = entry->upper; *p != 0; ++p) append_utf8(out, *p);
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCase* entry = special_case(c)) {
    for (const char32_t* p = entry->title; *p != 0; ++p) append_utf8(out, *p);
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

/// Capital sigma is ς at the end of a word: a cased letter before it and none after it.
bool final_sigma(std::string_view text, size_t begin, size_t end) {
  size_t pos = begin;
  bool before = false;
  while (pos > 0) {
    const char32_t c = previous_codepoint(text, pos);
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  while (end < text.size()) {
    const char32_t c = next_codepoint(text, end);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, char32_t c, std::string_view text, size_t begin, size_t end) {
  if (c == 0x130) {
    append_utf8(out, 'i');
    append_utf8(out, 0x307);
  } else if (c == 0x3A3) {
    append_utf8(out, final_sigma(text, begin, end) ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

/// Calls body(code point, begin, end) for each code point.
template <typename Body>
void for_each(std::string_view text, const Body& body) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = next_codepoint(text, pos);
    body(c, begin, pos);
  }
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t pos = 0; pos < text.size();) {
    if (data[pos] < 0x80) {
      ++pos;
      continue;
    }
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t used = utf8proc_iterate(data + pos, static_cast<utf8proc_ssize_t>(text.size() - pos), &code);
    if (used <= 0) return pos;
    pos += static_cast<size_t>(used);
  }
  return std::string_view::npos;
}

size_t count_codepoints(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t codepoint_offset(std::string_view text, size_t index) {
  // The offset of the first byte that starts code point `index`; only starts are counted.
  size_t pos = 0;
  for (; pos < text.size(); ++pos) {
    if ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return pos;
  }
  return pos;
}

char32_t next_codepoint(std::string_view text, size_t& pos) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(pos);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (pos + length > text.size()) {  // not reached on valid UTF-8
    pos = text.size();
    return 0xFFFD;
  }
  char32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) code = (code << 6) | (byte(pos + i) & 0x3F);
  pos += length;
  return code;
}

char32_t previous_codepoint(std::string_view text, size_t& pos) {
  do --pos;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  size_t end = pos;
  return next_codepoint(text, end);
}

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(std::max<utf8proc_ssize_t>(n, 0)));
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  if (is_decimal(c)) return true;
  // Unicode Numeric_Type=Digit: superscripts, subscripts and enclosed digits.
  static constexpr std::array<std::pair<char32_t, char32_t>, 20> kRanges = {
      {{0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
       {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
       {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
       {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}}};
  return std::any_of(kRanges.begin(), kRanges.end(), [c](const auto& r) { return c >= r.first && c <= r.second; });
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) || c == 0x2C0 ||
         c == 0x2C1 || (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A || (c >= 0x1D2C && c <= 0x1D6A) ||
         c == 0x1D78 || (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 || c == 0x207F || (c >= 0x2090 && c <= 0x209C) ||
         (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
  }
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each(text, [&](char32_t c, size_t, size_t) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each(text, [&](char32_t c, size_t begin, size_t end) { append_lower(out, c, text, begin, end); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each(text, [&](char32_t c, size_t begin, size_t end) {
    if (in_word)
      append_lower(out, c, text, begin, end);
    else
      append_title(out, c);
    in_word = is_cased(c);
  });
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, size_t begin, size_t end) {
    if (begin == 0)
      append_title(out, c);
    else
      append_lower(out, c, text, begin, end);
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, size_t begin, size_t end) {
    if (is_upper(c))
      append_lower(out, c, text, begin, end);
    else if (is_lower(c))
      append_upper(out, c);
    else
      append_utf8(out, c);
  });
  return out;
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const auto drop = [&](char32_t c) {
    if (chars == nullptr) return is_space(c);
    for (size_t pos = 0; pos < chars->size();) {
      if (next_codepoint(*chars, pos) == c) return true;
    }
    return false;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!drop(next_codepoint(text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    size_t previous = end;
    if (!drop(previous_codepoint(text, previous))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

size_t find_text(std::string_view text, std::string_view pattern, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (pattern.empty()) return from;
  // memmem is the two-way algorithm: linear whatever the pattern. It works on windows that grow, because a sanitizer's
  // memmem looks at all it is given, which would make many hits quadratic.
  size_t window = std::max<size_t>(64, 4 * pattern.size());
  for (size_t begin = from; text.size() - begin >= pattern.size();) {
    const size_t length = std::min(window, text.size() - begin);
    if (const void* hit = memmem(text.data() + begin, length, pattern.data(), pattern.size())) {
      return static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    }
    begin += length - pattern.size() + 1;
    window *= 2;
  }
  return std::string_view::npos;
}

size_t rfind_text(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return text.size();
  const std::string backwards(text.rbegin(), text.rend()), wanted(pattern.rbegin(), pattern.rend());
  const size_t at = find_text(backwards, wanted);
  return at == std::string_view::npos ? at : text.size() - at - pattern.size();
}

size_t count_text(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return count_codepoints(text) + 1;
  size_t count = 0;
  for (size_t pos = 0; (pos = find_text(text, pattern, pos)) != std::string_view::npos; pos += pattern.size()) ++count;
  return count;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  size_t pos = 0;
  if (from.empty()) {
    for (; count != 0; --count) {
      out += to;
      if (pos >= text.size()) return out;
      const size_t begin = pos;
      next_codepoint(text, pos);
      out += text.substr(begin, pos - begin);
    }
    return out += text.substr(pos);
  }
  for (; count != 0; --count) {
    const size_t hit = find_text(text, from, pos);
    if (hit == std::string_view::npos) break;
    out.append(text.substr(pos, hit - pos)).append(to);
    pos = hit + from.size();
  }
  return out += text.substr(pos);
}

}  // namespace galvani::text::jinja
