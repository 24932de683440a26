#pragma once
/// Split patterns: a literal, one of the known hand-written patterns, or any other regular expression through PCRE2.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "galvani/error.h"
#include "text/tokenizer_patterns.h"

namespace galvani::text {

/// Half-open byte range.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const Span&) const = default;
};

/// Immutable, cheap to copy, safe to use from any thread.
class SplitPattern {
 public:
  static SplitPattern literal(std::string text);
  static SplitPattern known(KnownPattern pattern);
  /// `source` is in Oniguruma's Ruby syntax (what tokenizer.json files hold). Constructs that PCRE2 reads differently
  /// are an error (kUnsupported) rather than a wrong split.
  static Result<SplitPattern> regex(std::string_view source);
  /// As `regex`, but never the hand-written matcher: the oracle of its test.
  static Result<SplitPattern> pcre2(std::string_view source);

  /// Appends the non-overlapping matches in valid UTF-8, leftmost first; never two empty ones at one place. Fails when
  /// the engine's own limits are hit (a pattern that backtracks without end).
  Status find_all(std::string_view text, std::vector<Span>& out) const;

 private:
  struct Literal {
    std::string text;
  };
  struct Compiled;
  using Kind = std::variant<Literal, KnownPattern, std::shared_ptr<const Compiled>>;
  explicit SplitPattern(Kind kind) : kind_(std::move(kind)) {}
  Kind kind_;
};

}  // namespace galvani::text
