#pragma once
/// The `pre_tokenizer` of tokenizer.json: cuts a text into the pieces that the model encodes one by one.
#include <string>
#include <variant>
#include <vector>

#include "galvani/error.h"
#include "text/tokenizer_regex.h"

namespace galvani::text {

/// A text and the pieces it is cut into, in order. Steps may rewrite the text (byte-level characters, "▁" for spaces).
struct PieceList {
  std::string text;
  std::vector<Span> pieces;
  bool at_start = true;  ///< text[0] is the start of the whole input
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Cuts `piece` of `text` at `matches` (ordered, inside the piece, offsets of the text) and appends the non-empty
/// parts. `invert`: what lies between the matches counts as the delimiter.
void split_at(Span piece, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
              std::vector<Span>& out);

class PreTokenizer {
 public:
  struct Split {
    SplitPattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct ByteLevel {
    bool add_prefix_space;
    bool use_regex;
  };
  struct Digits {
    bool individual;
  };
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever } prepend;
    std::string replacement;
    bool split;
  };
  struct Punctuation {
    SplitBehavior behavior;
  };
  struct Whitespace {};       ///< \w+|[^\w\s]+
  struct WhitespaceSplit {};  ///< [^\s]+
  using Step = std::variant<Split, ByteLevel, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  /// `list` comes in as one piece. Fails only when a regular expression hits its limits.
  Status apply(PieceList& list) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace galvani::text
