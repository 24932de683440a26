#pragma once
/// Added tokens: texts that are cut out of the input before the model sees it.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "galvani/error.h"
#include "text/tokenizer_regex.h"
#include "text/tokenizer_vocab.h"

namespace galvani::text {

struct AddedToken {
  std::string content;
  std::string shown;  ///< what decoding gives: the content, normalised when `normalized` (as the Rust package does)
  int32_t id = kNoToken;
  bool single_word = false;  ///< no word character may touch it
  bool lstrip = false;       ///< swallows white space on its left
  bool rstrip = false;       ///< swallows white space on its right
  bool normalized = true;    ///< matched, normalised itself, in the normalised text
  bool special = false;      ///< control token: dropped by decode(skip_special), ignored under parse_special = false
};

/// Leftmost-longest search for many strings at once.
class TokenTrie {
 public:
  void add(std::string_view text, int32_t value);
  /// Longest string that starts at `position`; kNoToken when none does.
  int32_t longest_at(std::string_view text, size_t position, size_t& end) const;
  bool may_start(unsigned char byte) const { return root_[byte] != 0; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> children;  ///< sorted by byte
    int32_t value = kNoToken;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<uint32_t, 256> root_{};
};

/// A piece of the input: an added token, or text (id kNoToken).
struct AddedPiece {
  Span span;
  int32_t id = kNoToken;
};

class AddedVocabulary {
 public:
  /// Texts are matched by token.shown in the normalised text when token.normalized, else by token.content in the raw
  /// one.
  void add(const AddedToken& token);

  enum class Stage { kRaw, kNormalized };
  /// Cuts `text` (valid UTF-8) into tokens and the gaps between them, in order; white space that a token swallows
  /// belongs to the token's span.
  std::vector<AddedPiece> split(std::string_view text, Stage stage, bool parse_special) const;

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  bool is_special_text(std::string_view content) const { return special_.contains(std::string(content)); }
  /// Highest id + 1, 0 when empty.
  size_t id_limit() const { return id_limit_; }

 private:
  std::unordered_map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> by_content_;
  std::unordered_set<std::string> special_;
  TokenTrie raw_, normalized_;
  size_t id_limit_ = 0;
};

}  // namespace galvani::text
