#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace galvani::text::jinja {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), s_(source_) {}

  Result<std::vector<Token>> run() {
    while (pos_ < s_.size()) GALVANI_TRY_VOID(data());
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  char at(size_t i) const { return i < s_.size() ? s_[i] : '\0'; }
  bool starts(std::string_view text) const { return s_.substr(pos_, text.size()) == text; }

  /// Moves on, counting lines.
  void advance_to(size_t pos) {
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         s_.begin() + static_cast<std::ptrdiff_t>(pos), '\n'));
    pos_ = pos;
  }

  size_t after_space(size_t pos) const {
    while (pos < s_.size()) {
      size_t next = pos;
      if (!is_space(next_codepoint(s_, next))) break;
      pos = next;
    }
    return pos;
  }

  void add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  /// Text before a tag: `sign` is the character after the tag's opening, `variable` a {{ tag (never lstripped).
  void add_data(std::string_view text, char sign, bool variable, bool line_starting) {
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && !variable) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == text.npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting) && strip(text.substr(begin), nullptr, true, false).empty()) {
        text = text.substr(0, begin);
      }
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  bool line_starting() const { return pos_ == 0 || s_[pos_ - 1] == '\n'; }

  static char sign_of(char c) { return c == '-' || c == '+' ? c : '\0'; }

  /// Plain text up to the next tag, and that tag.
  Status data() {
    const bool starting = line_starting();
    size_t tag = pos_;
    while (true) {
      tag = s_.find('{', tag);
      if (tag == s_.npos) {
        add(TokenKind::kData, std::string(s_.substr(pos_)));
        advance_to(s_.size());
        return {};
      }
      const char next = at(tag + 1);
      if (next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    const char kind = s_[tag + 1], sign = sign_of(at(tag + 2));
    add_data(s_.substr(pos_, tag - pos_), sign, kind == '{', starting);
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') return comment(tag, inside);
    if (kind == '%') {
      if (const size_t raw_begin = raw_tag(inside, "raw"); raw_begin != 0) return raw(tag, raw_begin);
    }
    advance_to(tag);
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    advance_to(inside);
    return tag_body(kind == '{');
  }

  Status comment(size_t tag, size_t inside) {
    advance_to(tag);
    const size_t close = s_.find("#}", inside);
    if (close == s_.npos) return bug("line {}: the comment {{# has no end #}}", line_);
    size_t end = close + 2;
    // A sign belongs to the end only when it is not also the sign of the opening.
    const char sign = close > inside ? sign_of(s_[close - 1]) : '\0';
    if (sign == '-')
      end = after_space(end);
    else if (sign == '\0' && at(end) == '\n')
      ++end;
    advance_to(end);
    return {};
  }

  /// Position after "word %}" (with signs and spaces) at `pos`, or 0 when something else stands there.
  size_t raw_tag(size_t pos, std::string_view word) const {
    pos = after_space(pos);
    if (s_.substr(pos, word.size()) != word) return 0;
    pos = after_space(pos + word.size());
    if (s_.substr(pos, 3) == "-%}") return after_space(pos + 3);
    if (word == "endraw" && s_.substr(pos, 3) == "+%}") return pos + 3;
    if (s_.substr(pos, 2) != "%}") return 0;
    pos += 2;
    return word == "endraw" && at(pos) == '\n' ? pos + 1 : pos;
  }

  Status raw(size_t tag, size_t begin) {
    advance_to(tag);
    const int opened = line_;
    advance_to(begin);
    const bool starting = line_starting();
    for (size_t close = s_.find("{%", begin); close != s_.npos; close = s_.find("{%", close + 1)) {
      const char sign = sign_of(at(close + 2));
      const size_t end = raw_tag(close + 2 + (sign != '\0' ? 1 : 0), "endraw");
      if (end == 0) continue;
      add_data(s_.substr(begin, close - begin), sign, false, starting);
      advance_to(end);
      return {};
    }
    return bug("line {}: {{% raw %}} has no {{% endraw %}}", opened);
  }

  /// Tokens inside {{ }} or {% %}.
  Status tag_body(bool variable) {
    const int opened = line_;
    const std::string_view close = variable ? "}}" : "%}";
    std::string open_brackets;
    while (true) {
      advance_to(after_space(pos_));
      if (pos_ >= s_.size()) {
        return bug("line {}: the tag {} has no end {}", opened, variable ? "{{" : "{%", close);
      }
      if (open_brackets.empty()) {
        const bool minus = at(pos_) == '-', plus = at(pos_) == '+' && !variable;
        const size_t mark = pos_ + (minus || plus ? 1 : 0);
        if (s_.substr(mark, 2) == close) {
          add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
          size_t end = mark + 2;
          if (minus)
            end = after_space(end);
          else if (!variable && !plus && at(end) == '\n')
            ++end;
          advance_to(end);
          return {};
        }
      }
      GALVANI_TRY_VOID(token(open_brackets));
    }
  }

  Status token(std::string& open_brackets) {
    const char c = s_[pos_];
    if (digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    size_t end = pos_;
    while (end < s_.size()) {
      size_t next = end;
      const char32_t code = next_codepoint(s_, next);
      if (!is_word(code)) break;
      end = next;
    }
    if (end > pos_) {
      add(TokenKind::kName, std::string(s_.substr(pos_, end - pos_)));
      advance_to(end);
      return {};
    }
    return punctuation(open_brackets);
  }

  Status punctuation(std::string& open_brackets) {
    static constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,";
    const std::string_view two = s_.substr(pos_, 2);
    if (std::find(kPairs.begin(), kPairs.end(), two) != kPairs.end()) {
      add(TokenKind::kOperator, std::string(two));
      advance_to(pos_ + 2);
      return {};
    }
    const char c = s_[pos_];
    if (kSingles.find(c) == kSingles.npos) {
      size_t end = pos_;
      next_codepoint(s_, end);
      return bug("line {}: unexpected character '{}' in a tag", line_, s_.substr(pos_, end - pos_));
    }
    if (c == '(')
      open_brackets += ')';
    else if (c == '[')
      open_brackets += ']';
    else if (c == '{')
      open_brackets += '}';
    else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) return bug("line {}: unexpected '{}'", line_, c);
      if (open_brackets.back() != c)
        return bug("line {}: unexpected '{}', expected '{}'", line_, c, open_brackets.back());
      open_brackets.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    advance_to(pos_ + 1);
    return {};
  }

  /// Digits with single underscores between them, from `pos`; returns the end.
  template <typename IsDigit>
  size_t digits(size_t pos, const IsDigit& is) const {
    while (is(at(pos)) || (at(pos) == '_' && is(at(pos + 1)))) ++pos;
    return pos;
  }

  Status number() {
    size_t end = digits(pos_, digit);
    bool real = false;
    const bool after_dot = pos_ > 0 && s_[pos_ - 1] == '.';
    if (!after_dot) {
      size_t fraction = end;
      if (at(end) == '.' && digit(at(end + 1))) fraction = digits(end + 1, digit);
      size_t exponent = fraction;
      if (at(exponent) == 'e' || at(exponent) == 'E') {
        ++exponent;
        if (at(exponent) == '+' || at(exponent) == '-') ++exponent;
        exponent = digit(at(exponent)) ? digits(exponent, digit) : fraction;
      }
      real = exponent > end;
      if (real) end = exponent;
    }
    int base = 10;
    size_t begin = pos_;
    if (!real && s_[pos_] == '0') {
      const auto with_base = [&](int b, const auto& is) {
        size_t first = pos_ + 2;
        if (at(first) == '_') ++first;
        if (!is(at(first))) return;
        base = b;
        begin = pos_ + 2;
        end = digits(first, is);
      };
      const char mark = static_cast<char>(at(pos_ + 1) | 0x20);
      if (mark == 'x') with_base(16, [](char c) { return digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
      if (mark == 'o') with_base(8, [](char c) { return c >= '0' && c <= '7'; });
      if (mark == 'b') with_base(2, [](char c) { return c == '0' || c == '1'; });
      if (base == 10 && end > pos_ + 1) {
        const auto rest = s_.substr(pos_, end - pos_);
        if (rest.find_first_not_of("0_") != rest.npos) {
          return bug("line {}: the number {} has leading zeros", line_, rest);
        }
      }
    }
    std::string text(s_.substr(begin, end - begin));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Token token;
    token.kind = real ? TokenKind::kFloat : TokenKind::kInteger;
    token.line = line_;
    token.text = text;
    const auto parsed = real ? std::from_chars(text.data(), text.data() + text.size(), token.real)
                             : std::from_chars(text.data(), text.data() + text.size(), token.integer, base);
    if (parsed.ec != std::errc()) {
      return bug("line {}: the number {} is beyond {}", line_, text, real ? "a double" : "64 bits");
    }
    tokens_.push_back(std::move(token));
    advance_to(end);
    return {};
  }

  Status string(char quote) {
    size_t end = pos_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) return bug("line {}: the string that starts here has no end {}", line_, quote);
    GALVANI_TRY(std::string text, unescape(s_.substr(pos_ + 1, end - pos_ - 1)));
    add(TokenKind::kString, std::move(text));
    advance_to(end + 1);
    return {};
  }

  /// Python's string escapes; an unknown one keeps its backslash.
  Result<std::string> unescape(std::string_view raw) {
    static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out += raw[i];
        continue;
      }
      const char c = raw[++i];
      if (const size_t known = kFrom.find(c); known != kFrom.npos) {
        out += kTo[known];
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        size_t length = 1;
        while (length < 3 && i + length < raw.size() && raw[i + length] >= '0' && raw[i + length] <= '7') ++length;
        append_utf8(out, static_cast<char32_t>(std::stoul(std::string(raw.substr(i, length)), nullptr, 8)));
        i += length - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        const std::string_view hex = raw.substr(i + 1, length);
        const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        if (hex.size() != length || parsed.ptr != hex.data() + length || code > 0x10FFFF) {
          return bug("line {}: the escape \\{} in a string needs {} hexadecimal digits of a code point", line_, c,
                     length);
        }
        if (code >= 0xD800 && code < 0xE000) return bug("line {}: \\{}{} is half of a surrogate pair", line_, c, hex);
        append_utf8(out, code);
        i += length;
      } else if (c == 'N') {
        return fail(ErrorCode::kUnsupported, "line {}: \\N{{name}} escapes are not supported; write \\u and the code",
                    line_);
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  std::string source_;
  std::string_view s_;
  size_t pos_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize_template(std::string_view source) { return Lexer(source).run(); }

}  // namespace galvani::text::jinja
