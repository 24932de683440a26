#pragma once
/// The `decoder` of tokenizer.json as a stream: tokens go in one by one, text comes out as soon as it is certain.
/// decode() pushes all tokens through the same stages, so streamed text and decoded text are equal by construction.
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "galvani/error.h"

namespace galvani::text {

/// Immutable list of stages.
class DecoderChain {
 public:
  struct ByteLevel {};     ///< byte-level characters → bytes; the whole becomes one text, bad UTF-8 as U+FFFD
  struct ByteFallback {};  ///< runs of <0xXX> tokens → text, or one U+FFFD a byte when the run is not valid UTF-8
  struct Fuse {};          ///< all tokens become one text
  struct Replace {
    std::string pattern;  ///< a literal, not empty
    std::string content;
  };
  struct Strip {
    std::string character;
    size_t start, stop;  ///< at most so many characters from either end of each token
  };
  struct Metaspace {
    std::string replacement;
    bool drop_first;  ///< drop the replacement in the first token instead of making it a space
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace>;

  /// Errors: a byte fallback or byte-level step after the tokens were fused into one (no real tokenizer has that).
  Status add(Step step);
  bool empty() const { return steps_.empty(); }
  /// The bytes one token's text stands for somewhere inside a text: no stripping at the ends, byte tokens as bytes.
  std::string token_bytes(std::string_view token) const;

 private:
  friend class DecodeStream;
  struct Stage {
    Step step;
    bool fused;  ///< its input is one text that arrives in fragments, not a list of tokens
  };
  std::vector<Stage> steps_;
  bool fused_ = false;
};

/// One decode in progress. Holds a reference to the chain.
class DecodeStream {
 public:
  explicit DecodeStream(const DecoderChain& chain);
  /// Appends to `out` what is certain after this token's text.
  void push(std::string_view token, std::string& out);
  /// Appends what was held back. The stream is then spent.
  void finish(std::string& out);

 private:
  struct State {
    std::string held;  ///< bytes that wait for more
    size_t count = 0;  ///< tokens seen, or characters stripped
    bool open = true;  ///< still at the start of the text
  };
  void run(size_t stage, std::string_view token, std::string& out);
  void end(size_t stage, std::string& out);
  struct Visitor;

  const DecoderChain& chain_;
  std::vector<State> states_;
  bool any_ = false;
};

/// Value of a "<0xXX>" token as the Rust package reads it (two hex digits, or a plus and one), −1 when it is none.
int byte_token_value(std::string_view token);

}  // namespace galvani::text
