#pragma once
/// The BPE model of tokenizer.json: characters, then merges in order of rank. O(n log n) in the length of a piece.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "galvani/error.h"
#include "text/tokenizer_vocab.h"

namespace galvani::text {

class BpeModel {
 public:
  struct Options {
    bool byte_fallback = false;  ///< a character without a token becomes its bytes' <0xXX> tokens, if all exist
    bool fuse_unk = false;       ///< adjacent unknown characters become one unk
    bool ignore_merges = false;  ///< a piece that is a token is that token, whatever the merges say
    std::string unk_token;       ///< empty: characters without a token are dropped, as the Rust package does
  };
  BpeModel(TokenTable vocab, MergeTable merges, Options options);

  /// Appends the ids of one piece. Fails only when an unknown character needs an unk token that the vocabulary lacks.
  Status tokenize(std::string_view piece, std::vector<int32_t>& out) const;

  const TokenTable& vocab() const { return vocab_; }

 private:
  struct Symbols;
  Status split_characters(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_short(std::vector<int32_t>& ids) const;
  void merge_long(std::vector<int32_t>& ids) const;

  TokenTable vocab_;
  MergeTable merges_;
  Options options_;
  int32_t unk_ = kNoToken;
  std::array<int32_t, 256> byte_ids_{};   ///< <0xXX>
  std::array<int32_t, 0x200> low_ids_{};  ///< tokens of the characters U+0000..U+01FF (all of the byte-level map)
};

}  // namespace galvani::text
