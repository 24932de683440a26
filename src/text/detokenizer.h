#pragma once
/// Ids in, text out, as soon as it is certain.
#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"
#include "text/tokenizer_decoder.h"

namespace galvani::text {

/// Streaming detokenizer of one sequence. Every string it gives is valid UTF-8, and all of them together, finish()
/// included, are exactly Tokenizer::decode of the same ids, for every decoder. What is held back: the bytes of an
/// unfinished character (byte-level); a run of <0xXX> tokens until another token ends it, because one bad byte turns
/// the whole run into U+FFFD (byte fallback); spaces a decoder may strip from the end. Nothing else is ever held.
class Detokenizer {
 public:
  /// `skip_special`: special tokens give no text.
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  /// The text that is now certain, possibly empty. Ids outside the vocabulary give none.
  std::string push(int32_t id);
  /// The rest. Call once; start a new Detokenizer for the next sequence.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeStream stream_;
  bool skip_special_;
};

}  // namespace galvani::text
