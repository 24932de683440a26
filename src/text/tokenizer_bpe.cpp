#include "text/tokenizer_bpe.h"

#include <algorithm>

#include "core/error.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

/// Up to this many symbols, scanning for the best pair beats a heap.
constexpr size_t kShort = 24;

/// A possible merge; the heap gives the lowest rank first, the leftmost among equals.
struct Candidate {
  uint64_t rank_and_position;
  int32_t merged;
  bool operator<(const Candidate& other) const { return rank_and_position > other.rank_and_position; }
};

}  // namespace

BpeModel::BpeModel(TokenTable vocab, MergeTable merges, Options options)
    : vocab_(std::move(vocab)), merges_(std::move(merges)), options_(std::move(options)) {
  if (!options_.unk_token.empty()) unk_ = vocab_.find(options_.unk_token);
  for (unsigned byte = 0; byte < 256; ++byte) byte_ids_[byte] = vocab_.find(fmt::format("<0x{:02X}>", byte));
  for (char32_t cp = 0; cp < low_ids_.size(); ++cp) {
    std::string text;
    append_utf8(text, cp);
    low_ids_[cp] = vocab_.find(text);
  }
}

Status BpeModel::split_characters(std::string_view piece, std::vector<int32_t>& ids) const {
  size_t length = 0;
  bool pending_unk = false;  // an unk is written late so that its neighbours can fuse with it
  for (size_t i = 0; i < piece.size(); i += length) {
    const char32_t cp = utf8_at(piece, i, length);
    const std::string_view character = piece.substr(i, length);
    const int32_t id = cp < low_ids_.size() ? low_ids_[cp] : vocab_.find(character);
    if (id != kNoToken) {
      if (pending_unk) ids.push_back(unk_);
      pending_unk = false;
      ids.push_back(id);
      continue;
    }
    if (options_.byte_fallback) {
      const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
      if (std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) != kNoToken; })) {
        // A pending unk stays pending: the Rust package writes it after these bytes.
        for (const char c : character) ids.push_back(byte_id(c));
        continue;
      }
    }
    if (options_.unk_token.empty()) continue;
    if (unk_ == kNoToken) {
      return fail(ErrorCode::kCorrupt,
                  "the text holds U+{:04X}, which has no token, and the unknown token \"{}\" is not "
                  "in the vocabulary either",
                  static_cast<uint32_t>(cp), options_.unk_token);
    }
    if (pending_unk && !options_.fuse_unk) ids.push_back(unk_);
    pending_unk = true;
  }
  if (pending_unk) ids.push_back(unk_);
  return {};
}

void BpeModel::merge_short(std::vector<int32_t>& ids) const {
  MergeTable::Merge pairs[kShort];
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (!pairs[best]) break;
    ids[best] = pairs[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --count;
    if (best > 0) pairs[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = merges_.find(ids[best], ids[best + 1]);
  }
  ids.resize(count);
}

void BpeModel::merge_long(std::vector<int32_t>& ids) const {
  // A doubly linked list over positions; a symbol that was merged into its left neighbour gets id kNoToken.
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<int32_t> next(ids.size()), previous(ids.size());
  std::vector<Candidate> heap;
  heap.reserve(ids.size());
  const auto candidate = [&](int32_t at, MergeTable::Merge merge) {
    return Candidate{(static_cast<uint64_t>(merge.rank) << 32) | static_cast<uint32_t>(at), merge.id};
  };
  for (int32_t i = 0; i < count; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1 < count ? i + 1 : -1;
    if (i + 1 == count) break;
    if (const auto merge = merges_.find(ids[i], ids[i + 1])) heap.push_back(candidate(i, merge));
  }
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](int32_t left, int32_t right) {
    if (const auto merge = merges_.find(ids[left], ids[right])) {
      heap.push_back(candidate(left, merge));
      std::push_heap(heap.begin(), heap.end());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(top.rank_and_position & 0xFFFFFFFF);
    if (ids[at] == kNoToken || next[at] < 0) continue;
    const int32_t right = next[at];
    // Stale: one of the two has changed since this candidate was pushed.
    if (merges_.find(ids[at], ids[right]).id != top.merged) continue;
    ids[at] = top.merged;
    ids[right] = kNoToken;
    next[at] = next[right];
    if (next[at] >= 0) previous[next[at]] = at;
    if (previous[at] >= 0) push(previous[at], at);
    if (next[at] >= 0) push(at, next[at]);
  }
  ids.erase(std::remove(ids.begin(), ids.end(), kNoToken), ids.end());
}

Status BpeModel::tokenize(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.empty()) return {};
  if (options_.ignore_merges) {
    if (const int32_t id = vocab_.find(piece); id != kNoToken) {
      out.push_back(id);
      return {};
    }
  }
  thread_local std::vector<int32_t> ids;
  ids.clear();
  GALVANI_TRY_VOID(split_characters(piece, ids));
  if (ids.size() <= kShort) {
    merge_short(ids);
  } else {
    merge_long(ids);
  }
  out.insert(out.end(), ids.begin(), ids.end());
  if (ids.capacity() > 65536) ids = {};  // do not keep a long prompt's memory on this thread
  return {};
}

}  // namespace galvani::text
