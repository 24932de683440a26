#include "text/tokenizer_patterns.h"

#include <array>

#include "text/unicode.h"

namespace galvani::text {
namespace {

struct KnownSource {
  KnownPattern pattern;
  std::string_view source;
};
constexpr std::array<KnownSource, 5> kSources = {{
    {KnownPattern::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {KnownPattern::kLlama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::kQwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::kQwen35,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::kO200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

constexpr uint32_t kUpperLike = category_mask(Category::Lu, Category::Lt, Category::Lm, Category::Lo) | kMarks;
constexpr uint32_t kLowerLike = category_mask(Category::Ll, Category::Lm, Category::Lo) | kMarks;
constexpr uint32_t kLetterOrNumber = kLetters | kNumbers;

/// A position in the text with the class of the code point there.
class Cursor {
 public:
  Cursor(std::string_view text, size_t position) : text_(text), table_(CharTable::get()), at_(position) { load(); }

  bool done() const { return at_ >= text_.size(); }
  size_t at() const { return at_; }
  char32_t cp() const { return cp_; }
  CharClass cls() const { return class_; }
  void next() {
    at_ += length_;
    load();
  }
  void seek(size_t position) {
    at_ = position;
    load();
  }
  bool is(uint32_t categories) const { return !done() && class_.in(categories); }
  bool newline() const { return !done() && (cp_ == '\r' || cp_ == '\n'); }
  void skip(uint32_t categories) {
    while (is(categories)) next();
  }

 private:
  void load() {
    if (done()) {
      length_ = 0;
      return;
    }
    cp_ = utf8_at(text_, at_, length_);
    class_ = table_[cp_];
  }
  std::string_view text_;
  const CharTable& table_;
  size_t at_, length_ = 0;
  char32_t cp_ = 0;
  CharClass class_;
};

/// 's 't 're 've 'm 'll 'd, in either case; U+017F folds to s. Returns the end, or `position` when there is none.
size_t contraction(std::string_view text, size_t position, bool fold) {
  if (position + 1 >= text.size() || text[position] != '\'') return position;
  const auto lower = [&](size_t i) -> char {
    const char c = i < text.size() ? text[i] : '\0';
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = lower(position + 1), second = lower(position + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return position + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return position + 3;
  if (first == 'l' && second == 'l') return position + 3;
  if (fold && text.substr(position + 1, 2) == "\xC5\xBF") return position + 3;
  return position;
}

/// ` ?[^\s<letters>\p{N}]+`, or `position`. `others`: the categories the negated class excludes.
size_t punctuation_run(std::string_view text, size_t position, uint32_t others) {
  Cursor c(text, position);
  if (c.cp() == ' ') c.next();
  const size_t start = c.at();
  while (!c.done() && !c.cls().space() && !c.cls().in(others)) c.next();
  return c.at() > start ? c.at() : position;
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+` (the first alternative only with `newlines`), or `position` when no space is there.
size_t space_run(std::string_view text, size_t position, bool newlines) {
  Cursor c(text, position);
  size_t last = position, after_newline = position;
  while (!c.done() && c.cls().space()) {
    last = c.at();
    const bool newline = c.newline();
    c.next();
    if (newline) after_newline = c.at();
  }
  const size_t end = c.at();
  if (newlines && after_newline > position) return after_newline;
  if (end == text.size() || last == position) return end;  // all of it, or one space before something else
  return last;                                             // leave the last space to what follows
}

size_t match_gpt2(std::string_view text, size_t position) {
  if (const size_t end = contraction(text, position, false); end > position) return end;
  Cursor c(text, position);
  if (c.cp() == ' ') c.next();
  for (const uint32_t kind : {kLetters, kNumbers}) {
    if (!c.is(kind)) continue;
    c.skip(kind);
    return c.at();
  }
  if (const size_t end = punctuation_run(text, position, kLetterOrNumber); end > position) return end;
  return space_run(text, position, false);
}

/// What follows the word alternatives of the newer patterns.
size_t match_rest(std::string_view text, size_t position, uint32_t others, unsigned digits, bool slash) {
  Cursor c(text, position);
  if (c.is(kNumbers)) {
    for (unsigned i = 0; i < digits && c.is(kNumbers); ++i) c.next();
    return c.at();
  }
  if (size_t end = punctuation_run(text, position, others); end > position) {
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || (slash && text[end] == '/'))) ++end;
    return end;
  }
  return space_run(text, position, true);
}

/// Llama 3 and its two relatives.
size_t match_llama3(std::string_view text, size_t position, uint32_t letters, unsigned digits) {
  if (const size_t end = contraction(text, position, true); end > position) return end;
  Cursor c(text, position);
  // [^\r\n\p{L}\p{N}]?<letters>+ : the optional prefix first with, then without.
  if (!c.newline() && !c.is(kLetterOrNumber)) {
    c.next();
    if (!c.is(letters)) c.seek(position);
  }
  if (c.is(letters)) {
    c.skip(letters);
    return c.at();
  }
  return match_rest(text, position, letters | kNumbers, digits, false);
}

/// `<upper>*<lower>+` from `start`, else 0. Greedy: when nothing lower-like follows the upper-like run, it gives back
/// down to its last code point that is both.
size_t upper_lower(std::string_view text, size_t start) {
  Cursor c(text, start);
  size_t both_end = 0;
  while (c.is(kUpperLike)) {
    const bool both = c.cls().in(kLowerLike);
    c.next();
    if (both) both_end = c.at();
  }
  if (!c.is(kLowerLike)) return both_end;
  c.skip(kLowerLike);
  return c.at();
}

/// `<upper>+<lower>*` from `start`, else 0.
size_t upper_run(std::string_view text, size_t start) {
  Cursor c(text, start);
  if (!c.is(kUpperLike)) return 0;
  c.skip(kUpperLike);
  c.skip(kLowerLike);
  return c.at();
}

size_t match_o200k(std::string_view text, size_t position) {
  Cursor c(text, position);
  const bool prefix = !c.newline() && !c.is(kLetterOrNumber);
  size_t after_prefix = position;
  if (prefix) {
    c.next();
    after_prefix = c.at();
  }
  for (const auto word : {upper_lower, upper_run}) {
    size_t end = prefix ? word(text, after_prefix) : 0;
    if (end == 0) end = word(text, position);
    if (end != 0) return contraction(text, end, true);
  }
  return match_rest(text, position, kLetterOrNumber, 3, true);
}

}  // namespace

std::string_view pattern_source(KnownPattern pattern) {
  for (const auto& known : kSources) {
    if (known.pattern == pattern) return known.source;
  }
  return {};
}

std::optional<KnownPattern> find_known_pattern(std::string_view source) {
  for (const auto& known : kSources) {
    if (known.source == source) return known.pattern;
  }
  return std::nullopt;
}

size_t match_known(KnownPattern pattern, std::string_view text, size_t position) {
  switch (pattern) {
    case KnownPattern::kGpt2: return match_gpt2(text, position);
    case KnownPattern::kLlama3: return match_llama3(text, position, kLetters, 3);
    case KnownPattern::kQwen2: return match_llama3(text, position, kLetters, 1);
    case KnownPattern::kQwen35: return match_llama3(text, position, kLetters | kMarks, 1);
    case KnownPattern::kO200k: return match_o200k(text, position);
  }
  return text.size();
}

}  // namespace galvani::text
