#pragma once
/// The SentencePiece BPE that GGUF files of kind "llama" hold: no merge list; the adjacent pair whose joined text is
/// the token of highest score is joined first, the leftmost among equals.
#include <array>
#include <string_view>
#include <vector>

#include "galvani/error.h"
#include "text/tokenizer_vocab.h"

namespace galvani::text {

class SpmModel {
 public:
  /// scores[id] is finite; `unk` may be kNoToken.
  SpmModel(TokenTable vocab, std::vector<float> scores, int32_t unk);

  /// Appends the ids of `piece` (spaces already replaced by U+2581). Characters without a token become byte tokens,
  /// else unk; fails when there is neither.
  Status tokenize(std::string_view piece, std::vector<int32_t>& out) const;

  const TokenTable& vocab() const { return vocab_; }

 private:
  Status append_bytes(std::string_view character, std::vector<int32_t>& out) const;

  TokenTable vocab_;
  std::vector<float> scores_;
  int32_t unk_;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace galvani::text
