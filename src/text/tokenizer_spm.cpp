#include "text/tokenizer_spm.h"

#include <queue>

#include "core/error.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

struct Symbol {
  size_t begin, length;  ///< length 0: joined into its left neighbour
  int32_t previous, next;
};

struct Pair {
  float score;
  int32_t left;
  size_t length;  ///< of the joined text; tells a stale entry
  bool operator<(const Pair& other) const { return score != other.score ? score < other.score : left > other.left; }
};

}  // namespace

SpmModel::SpmModel(TokenTable vocab, std::vector<float> scores, int32_t unk)
    : vocab_(std::move(vocab)), scores_(std::move(scores)), unk_(unk) {
  scores_.resize(vocab_.id_limit(), 0.0f);
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocab_.find(fmt::format("<0x{:02X}>", byte));
    const char raw = static_cast<char>(byte);
    if (byte_ids_[byte] == kNoToken) byte_ids_[byte] = vocab_.find({&raw, 1});
  }
}

Status SpmModel::append_bytes(std::string_view character, std::vector<int32_t>& out) const {
  for (const char c : character) {
    const auto byte = static_cast<unsigned char>(c);
    const int32_t id = byte_ids_[byte] != kNoToken ? byte_ids_[byte] : unk_;
    if (id == kNoToken) {
      return fail(ErrorCode::kCorrupt,
                  "the text holds byte 0x{:02X}, but the vocabulary has neither a token <0x{:02X}> "
                  "nor an unknown token",
                  byte, byte);
    }
    out.push_back(id);
  }
  return {};
}

Status SpmModel::tokenize(std::string_view piece, std::vector<int32_t>& out) const {
  std::vector<Symbol> symbols;
  size_t length = 0;
  for (size_t i = 0; i < piece.size(); i += length) {
    utf8_at(piece, i, length);
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({i, length, index - 1, index + 1});
  }
  if (symbols.empty()) return {};
  symbols.back().next = -1;
  std::priority_queue<Pair> queue;
  const auto push = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const Symbol& a = symbols[left];
    const size_t joined = a.length + symbols[a.next].length;
    if (joined > vocab_.longest()) return;
    const int32_t id = vocab_.find(piece.substr(a.begin, joined));
    if (id != kNoToken) queue.push({scores_[id], left, joined});
  };
  for (size_t i = 0; i < symbols.size(); ++i) push(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Pair top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    if (left.length == 0 || left.next < 0 || left.length + symbols[left.next].length != top.length) continue;
    Symbol& right = symbols[left.next];
    left.length = top.length;
    right.length = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    push(left.previous);
    push(top.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    const std::string_view text = piece.substr(symbols[i].begin, symbols[i].length);
    const int32_t id = vocab_.find(text);
    if (id != kNoToken) {
      out.push_back(id);
    } else {
      GALVANI_TRY_VOID(append_bytes(text, out));
    }
  }
  return {};
}

}  // namespace galvani::text
