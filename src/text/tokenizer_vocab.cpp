#include "text/tokenizer_vocab.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace galvani::text {

TokenTable::TokenTable(size_t count) : slots_(std::bit_ceil(count * 2 + 8), kNoToken), capacity_(count) {
  by_id_.reserve(count);
}

Status TokenTable::add(std::string_view text, int64_t id, Duplicates duplicates) {
  const auto limit = static_cast<int64_t>(std::min<size_t>(capacity_ * 16 + 65536, 0x7FFFFFFF));
  if (id < 0 || id >= limit) {
    return fail(ErrorCode::kCorrupt, "token \"{}\" has id {}; with {} tokens ids must lie in 0..{}", text.substr(0, 64),
                id, capacity_, limit - 1);
  }
  GALVANI_CHECK(count_ < capacity_, "more tokens than announced");
  if (text.size() > 0x7FFFFFFF) return fail(ErrorCode::kCorrupt, "token {} is {} bytes long", id, text.size());
  const auto index = static_cast<size_t>(id);
  if (index >= by_id_.size()) by_id_.resize(index + 1);
  if (by_id_[index].present) {
    return fail(ErrorCode::kCorrupt, "tokens \"{}\" and \"{}\" share id {}; ids must be unique",
                this->text(static_cast<int32_t>(id)).substr(0, 64), text.substr(0, 64), id);
  }
  const size_t mask = slots_.size() - 1;
  size_t slot = XXH3_64bits(text.data(), text.size()) & mask;
  while (slots_[slot] != kNoToken && this->text(slots_[slot]) != text) slot = (slot + 1) & mask;
  const bool repeated = slots_[slot] != kNoToken;
  if (repeated && duplicates == Duplicates::kRefuse) {
    return fail(ErrorCode::kCorrupt, "token \"{}\" is listed twice, as {} and as {}; texts must be unique",
                text.substr(0, 64), slots_[slot], id);
  }
  by_id_[index] = {arena_.size(), static_cast<uint32_t>(text.size()), true};
  arena_.append(text);
  slots_[slot] = static_cast<int32_t>(id);
  longest_ = std::max(longest_, text.size());
  ++count_;
  return {};
}

int32_t TokenTable::find(std::string_view text) const {
  if (slots_.empty()) return kNoToken;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = XXH3_64bits(text.data(), text.size()) & mask;; slot = (slot + 1) & mask) {
    const int32_t id = slots_[slot];
    if (id == kNoToken) return kNoToken;
    const Entry& entry = by_id_[static_cast<size_t>(id)];
    if (std::string_view(arena_).substr(entry.offset, entry.length) == text) return id;
  }
}

std::string_view TokenTable::text(int32_t id) const {
  if (!has(id)) return {};
  const Entry& entry = by_id_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(entry.offset, entry.length);
}

MergeTable::MergeTable(size_t count) : slots_(std::bit_ceil(count * 2 + 8)), mask_(slots_.size() - 1) {}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = pair_key(left, right);
  size_t i = hash(key);
  while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

}  // namespace galvani::text
