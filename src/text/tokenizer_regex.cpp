#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer_regex.h"

#include <pcre2.h>

#include "core/error.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

/// Oniguruma's \w as PCRE2 class items: Alphabetic, marks, decimal digits, connectors and six superscripts and
/// fractions.
constexpr std::string_view kWordItems =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})"
    R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

tl::unexpected<Error> unsupported(std::string_view source, size_t offset, std::string_view what) {
  return fail(ErrorCode::kUnsupported,
              "split pattern \"{}\": {} at offset {} means different things to different regex engines; supported are "
              "literals, classes, \\p{{..}}, \\s \\d \\w, groups, alternation, quantifiers and look-around",
              source, what, offset);
}

/// Checks one escape (source[i] is the backslash) and appends its PCRE2 form.
Status translate_escape(std::string_view source, size_t& i, bool in_class, std::string& out) {
  if (i + 1 >= source.size()) return unsupported(source, i, "a trailing backslash");
  const char c = source[i + 1];
  if (c == 'w' || c == 'W') {
    if (in_class && c == 'W') return unsupported(source, i, "\\W inside a class");
    if (!in_class) out += c == 'w' ? "[" : "[^";
    out += kWordItems;
    if (!in_class) out += "]";
    i += 2;
    return {};
  }
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (letter && std::string_view("sSdDpPrntfvxuAzZe").find(c) == std::string_view::npos) {
    return unsupported(source, i, fmt::format("\\{}", c));
  }
  if (c >= '0' && c <= '9') return unsupported(source, i, "a back-reference or octal escape");
  if (c == 'v') {
    out += "\\x0B";  // in Oniguruma one character, in PCRE2 every vertical space
  } else if (c == 'u') {
    const std::string_view hex = source.substr(i + 2, 4);
    if (hex.size() < 4) return unsupported(source, i, "a short \\u escape");
    out += fmt::format("\\x{{{}}}", hex);
    i += 6;
    return {};
  } else {
    out += '\\';
    out += c;
  }
  i += 2;
  if ((c == 'p' || c == 'P' || c == 'x') && source.substr(i, 1) == "{") {
    const size_t end = source.find('}', i);
    if (end == std::string_view::npos) return unsupported(source, i, "an unclosed brace");
    out += source.substr(i, end + 1 - i);
    i = end + 1;
  }
  return {};
}

/// Rewrites Oniguruma syntax for PCRE2, refusing what cannot be carried over exactly.
Result<std::string> translate(std::string_view source) {
  std::string out;
  bool in_class = false;
  size_t class_start = 0;
  for (size_t i = 0; i < source.size();) {
    const char c = source[i];
    if (c == '\\') {
      GALVANI_TRY_VOID(translate_escape(source, i, in_class, out));
      continue;
    }
    if (in_class) {
      if (c == '[') return unsupported(source, i, "a class inside a class");
      if (c == '&' && source.substr(i, 2) == "&&") return unsupported(source, i, "a class intersection");
      if (c == ']' && i > class_start) in_class = false;
    } else if (c == '[') {
      in_class = true;
      class_start = i + 1;
      if (source.substr(i + 1, 1) == "^") ++class_start;
      if (source.substr(class_start, 1) == "]") return unsupported(source, i, "an empty class");
    } else if (c == '(' && (source.substr(i, 2) == "(*")) {
      return unsupported(source, i, "a control verb");
    } else if (c == '(' && source.substr(i, 2) == "(?") {
      const std::string_view rest = source.substr(i + 2);
      constexpr std::string_view kGroups[] = {"i:", "i)", "-i:", ":", "=", "!", "<=", "<!", ">"};
      bool known = false;
      for (const auto group : kGroups) known = known || rest.substr(0, group.size()) == group;
      if (!known) return unsupported(source, i, "this kind of group");
    } else if (c == '}' && source.substr(i + 1, 1) == "+") {
      return unsupported(source, i, "a quantifier after a counted quantifier");
    }
    out += c;
    ++i;
  }
  return out;
}

/// A code point of the same category and UTF-8 length that every supported PCRE2 knows, or 0.
char32_t stand_in(char32_t cp, Category category) {
  const bool wide = cp >= 0x10000;
  switch (category) {
    case Category::Lu: return wide ? 0x10400 : 0x1E00;
    case Category::Ll: return wide ? 0x10428 : 0x1E01;
    case Category::Lm: return wide ? 0x16B40 : 0x1D2C;
    case Category::Lo: return !wide ? 0x1200 : cp >= 0x20000 ? 0x20000 : 0x10000;  // ideographs stay ideographs
    case Category::Mn: return wide ? 0x1D167 : 0x1DC0;
    case Category::Mc: return wide ? 0x1D165 : 0x0903;
    case Category::Nd: return wide ? 0x1D7CE : 0x0966;
    case Category::No: return wide ? 0x10107 : 0x2070;
    case Category::Pd: return wide ? 0x10EAD : 0x2010;
    case Category::Po: return wide ? 0x10100 : 0x2016;
    case Category::Sm: return wide ? 0x1D6C1 : 0x2200;
    case Category::So: return wide ? 0x1D000 : 0x2100;
    case Category::Cf: return wide ? 0x110BD : 0x2060;
    case Category::Cn: return wide ? 0x1FFFE : 0xFDD0;
    default: return 0;
  }
}

/// PCRE2 classifies by its own Unicode release. Code points on which it may differ are replaced, byte for byte in
/// length, by ones that have the right category in every release; only where matches lie is read from the result.
std::string_view with_stand_ins(std::string_view text, std::string& storage) {
  const CharTable& table = CharTable::get();
  size_t length = 0;
  bool copied = false;
  for (size_t i = 0; i < text.size(); i += length) {
    const char32_t cp = utf8_at(text, i, length);
    if (cp < 0x800) continue;
    const CharClass cls = table[cp];
    // U+180E is not White_Space, but PCRE2's \s takes it.
    if (!cls.newer_than_14() && cls.category() != Category::Cn && cp != 0x180E) continue;
    const char32_t other = stand_in(cp, cls.category());
    if (other == 0) continue;
    if (!copied) storage.assign(text);
    copied = true;
    std::string encoded;
    append_utf8(encoded, other);
    storage.replace(i, length, encoded);
  }
  return copied ? std::string_view(storage) : text;
}

/// What one thread needs to run any pattern; only the whole match is asked for, so one pair of offsets is enough.
struct MatchScratch {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  MatchScratch()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr)) {
    if (context && stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
};

std::string pcre2_message(int code) {
  unsigned char buffer[256];
  const int n = pcre2_get_error_message(code, buffer, sizeof buffer);
  return n >= 0 ? std::string(reinterpret_cast<char*>(buffer), static_cast<size_t>(n)) : fmt::format("error {}", code);
}

void find_literal(std::string_view needle, std::string_view text, std::vector<Span>& out) {
  if (needle.empty()) return;
  for (size_t at = text.find(needle); at != std::string_view::npos; at = text.find(needle, at + needle.size())) {
    out.push_back({at, at + needle.size()});
  }
}

}  // namespace

struct SplitPattern::Compiled {
  std::string source;
  pcre2_code* code = nullptr;

  ~Compiled() { pcre2_code_free(code); }

  Status find_all(std::string_view original, std::vector<Span>& out) const {
    std::string storage;
    const std::string_view text = with_stand_ins(original, storage);
    thread_local const MatchScratch scratch;  // its stack is costly to make and a text has many pieces
    if (!scratch.data) return fail(ErrorCode::kOutOfMemory, "no memory to match split pattern \"{}\"", source);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    size_t start = 0, last_end = std::string_view::npos;
    while (start <= text.size()) {
      const int rc = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        return fail(ErrorCode::kUnsupported,
                    "split pattern \"{}\" gave up on a text of {} bytes: {}. The pattern backtracks too much for "
                    "this text; split the text or simplify the pattern",
                    source, text.size(), pcre2_message(rc));
      }
      const size_t* ends = pcre2_get_ovector_pointer(scratch.data);
      if (ends[0] == ends[1] && ends[1] == last_end) {  // an empty match right after a match: move on by one
        size_t length = 1;
        if (start < text.size()) utf8_at(text, start, length);
        start += length;
        continue;
      }
      out.push_back({ends[0], ends[1]});
      start = last_end = ends[1];
    }
    return {};
  }
};

SplitPattern SplitPattern::literal(std::string text) { return SplitPattern(Literal{std::move(text)}); }
SplitPattern SplitPattern::known(KnownPattern pattern) { return SplitPattern(pattern); }

Result<SplitPattern> SplitPattern::pcre2(std::string_view source) {
  if (source.size() > 64 * 1024) {
    return fail(ErrorCode::kUnsupported, "a split pattern of {} bytes; at most 65536 are allowed", source.size());
  }
  GALVANI_TRY(const std::string pattern, translate(source));
  int error = 0;
  size_t offset = 0;
  auto* context = pcre2_compile_context_create(nullptr);
  if (context) pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  auto* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!code) {
    return fail(ErrorCode::kUnsupported, "split pattern \"{}\" does not compile: {} (offset {} of \"{}\")", source,
                pcre2_message(error), offset, pattern);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter gives the same matches, slower
  auto compiled = std::make_shared<Compiled>();
  compiled->source = std::string(source);
  compiled->code = code;
  return SplitPattern(Kind(std::shared_ptr<const Compiled>(std::move(compiled))));
}

Result<SplitPattern> SplitPattern::regex(std::string_view source) {
  if (const auto known_pattern = find_known_pattern(source)) return known(*known_pattern);
  return pcre2(source);
}

Status SplitPattern::find_all(std::string_view text, std::vector<Span>& out) const {
  if (const auto* literal_text = std::get_if<Literal>(&kind_)) {
    find_literal(literal_text->text, text, out);
    return {};
  }
  if (const auto* known_pattern = std::get_if<KnownPattern>(&kind_)) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = match_known(*known_pattern, text, at);
      out.push_back({at, end});
      at = end;
    }
    return {};
  }
  return std::get<std::shared_ptr<const Compiled>>(kind_)->find_all(text, out);
}

}  // namespace galvani::text
