#pragma once
/// The `normalizer` of tokenizer.json: a list of text → text steps.
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "galvani/error.h"
#include "text/tokenizer_regex.h"
#include "text/unicode_normalize.h"

namespace galvani::text {

class Normalizer {
 public:
  struct Lowercase {};
  struct StripAccents {};
  struct ByteLevel {};  ///< every byte becomes its byte-level character
  struct Strip {
    bool left, right;
  };
  struct Prepend {
    std::string text;
  };
  struct Replace {
    SplitPattern pattern;
    std::string content;
  };
  using Step = std::variant<NormalForm, Lowercase, StripAccents, ByteLevel, Strip, Prepend, Replace>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  /// `text` is valid UTF-8. Fails only when a regular expression hits its limits.
  Result<std::string> apply(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace galvani::text
