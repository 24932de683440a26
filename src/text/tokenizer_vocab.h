#pragma once
/// Two flat hash tables of a BPE model: token text ↔ id, and pair of ids → merge.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "galvani/error.h"

namespace galvani::text {

inline constexpr int32_t kNoToken = -1;

/// Token text ↔ id. Ids may have holes, but only few: `add` refuses ids far beyond the number of tokens, so that the
/// tables stay a small multiple of the file they came from.
class TokenTable {
 public:
  TokenTable() = default;
  /// `count` tokens will be added at most.
  explicit TokenTable(size_t count);

  enum class Duplicates { kRefuse, kLastWins };
  /// Errors: negative or absurd id, an id given twice, a text given twice (kLastWins: both ids keep the text, and the
  /// text means the later one).
  Status add(std::string_view text, int64_t id, Duplicates duplicates = Duplicates::kRefuse);

  /// kNoToken when there is none.
  int32_t find(std::string_view text) const;
  bool has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < by_id_.size() && by_id_[id].present; }
  /// Empty when there is no such id.
  std::string_view text(int32_t id) const;
  size_t count() const { return count_; }
  /// Highest id + 1.
  size_t id_limit() const { return by_id_.size(); }
  size_t longest() const { return longest_; }

 private:
  struct Entry {
    uint64_t offset = 0;
    uint32_t length = 0;
    bool present = false;
  };
  std::string arena_;
  std::vector<Entry> by_id_;
  std::vector<int32_t> slots_;  ///< open addressing, kNoToken = free
  size_t count_ = 0;
  size_t capacity_ = 0;
  size_t longest_ = 0;
};

/// (left id, right id) → (rank, merged id).
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNone;
    int32_t id = kNoToken;
    static constexpr uint32_t kNone = 0xFFFFFFFF;
    explicit operator bool() const { return rank != kNone; }
  };
  MergeTable() = default;
  explicit MergeTable(size_t count);
  /// A pair given twice takes its later rank, as in the Rust package.
  void set(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const {
    if (slots_.empty()) return {};
    const uint64_t key = pair_key(left, right);
    for (size_t i = hash(key);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return slot.merge;
      if (slot.key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t pair_key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }
  size_t hash(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20) & mask_; }
  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace galvani::text
