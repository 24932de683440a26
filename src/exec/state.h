#pragma once
/// The memory of sequences: one store with two kinds of thing.
///
/// Pages hold keys and values: 64 tokens, [page][layer of the group][K: kv head][token][k_dim] then V likewise,
/// reference-counted; one block table per sequence and KV group. Slots hold what a recurrent layer carries along:
/// named tensors of any shape, one of each per sequence. A model never knows who owns a sequence; the scheduler never
/// knows what a layer is. Not thread-safe: one engine thread owns it.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "exec/batch.h"
#include "exec/memory.h"
#include "kernels/attention/attention.h"

namespace galvani::exec {

/// Layers that share block tables: same window, same head counts and widths.
struct KvGroupSpec {
  std::string name;  ///< "full", "sliding", … for messages and inspect
  int layers = 0;
  int kv_heads = 0;
  int k_dim = 0, v_dim = 0;
  int window = 0;  ///< 0: all positions are kept
};

/// One recurrent tensor of one layer, per sequence; starts as zeros.
struct SlotSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
};

struct StateSpec {
  std::vector<KvGroupSpec> groups;
  std::vector<SlotSpec> slots;
};

struct StateOptions {
  DType kv_dtype = DType::kF32;
  int64_t context = 2048;  ///< positions a sequence may reach
  int max_sequences = 1;   ///< running at once
  int max_chunk = 512;     ///< most tokens of a sequence in one step (sizes sliding windows)
};

/// Bytes State would take, by part.
struct StatePlan {
  int64_t kv_bytes = 0, slot_bytes = 0;
  std::vector<int64_t> group_pages, group_bytes;
};
StatePlan plan_state(const StateSpec& spec, const StateOptions& options);

class State {
 public:
  static Result<std::unique_ptr<State>> create(StateSpec spec, const StateOptions& options, Memory& memory);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const StateSpec& spec() const { return spec_; }
  const StateOptions& options() const { return options_; }

  /// A new, empty sequence with zeroed slots; kOutOfMemory when all max_sequences are taken.
  Result<SeqId> create_sequence();
  /// A second sequence that continues from the same past: pages are shared until written, slots are copied.
  Result<SeqId> fork(SeqId from);
  /// Gives everything back. The id may be handed out again.
  void release(SeqId sequence);

  /// Makes room for the chunk's tokens before a step: takes pages and un-shares the one written into.
  /// kOutOfRange past the context, kOutOfMemory without free pages; then nothing was changed.
  Status reserve(const Chunk& chunk);
  /// After a step: the sequence is now this long; pages wholly below a sliding window are given back.
  void commit(const Chunk& chunk);
  /// After a step that failed: recurrent state may have moved on in some layers and not in others, so that the sequence
  /// can only be released; reserve() refuses it. Nothing happens to sequences of a State without slots.
  void spoil(SeqId sequence);
  /// Forget positions >= length. Refused for a State with slots (recurrent state cannot run backwards) and when a
  /// sliding window has already dropped positions that would be visible again.
  Status truncate(SeqId sequence, int32_t length);

  int32_t length(SeqId sequence) const;
  int64_t free_pages(int group) const;
  int sequences() const;

  /// Page ids of a sequence in a group, index = position / 64; -1 where a window has moved on.
  std::span<const int32_t> blocks(SeqId sequence, int group) const;
  /// Where layer `layer` of a group keeps its keys and values.
  kernels::KvLayer kv_layer(int group, int layer) const;
  /// The slot tensor `slot` (index into spec().slots) of a sequence.
  std::byte* slot(SeqId sequence, int slot) const;

 private:
  struct Group {
    std::byte* base = nullptr;
    int64_t page_bytes = 0, layer_bytes = 0, k_bytes = 0;
    std::vector<int32_t> references;
    std::vector<int32_t> free;
  };
  struct Sequence {
    bool used = false, spoiled = false;
    int32_t length = 0;
    std::vector<std::vector<int32_t>> blocks;
  };
  State(StateSpec spec, const StateOptions& options, Memory& memory);
  Status allocate();
  void drop(Group& group, int32_t page);

  StateSpec spec_;
  StateOptions options_;
  Memory& memory_;
  std::vector<Group> groups_;
  std::vector<Sequence> sequences_;
  std::byte* slots_ = nullptr;
  std::vector<int64_t> slot_offsets_;
  int64_t slot_bytes_ = 0;
};

}  // namespace galvani::exec
