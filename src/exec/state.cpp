#include "exec/state.h"

#include <algorithm>

#include "core/error.h"

namespace galvani::exec {
namespace {

using kernels::kPageTokens;

int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

// A sliding group keeps the window, the chunk being written and one page of slack at each border.
int64_t pages_per_sequence(const KvGroupSpec& group, const StateOptions& options) {
  const int64_t all = pages_for(options.context);
  if (group.window == 0) return all;
  return std::min(all, pages_for(int64_t{group.window} + options.max_chunk) + 2);
}

int64_t slot_stride(const SlotSpec& slot) {
  const int64_t bytes = slot.shape.elements().value_or(0) * dtype_bytes(slot.dtype);
  return (bytes + 63) / 64 * 64;
}

}  // namespace

StatePlan plan_state(const StateSpec& spec, const StateOptions& options) {
  StatePlan plan;
  for (const KvGroupSpec& group : spec.groups) {
    const int64_t pages = pages_per_sequence(group, options) * options.max_sequences;
    const int64_t page_bytes = int64_t{group.layers} * group.kv_heads * kPageTokens * (group.k_dim + group.v_dim) *
                               dtype_bytes(options.kv_dtype);
    plan.group_pages.push_back(pages);
    plan.group_bytes.push_back(pages * page_bytes);
    plan.kv_bytes += pages * page_bytes;
  }
  for (const SlotSpec& slot : spec.slots) plan.slot_bytes += slot_stride(slot) * options.max_sequences;
  return plan;
}

State::State(StateSpec spec, const StateOptions& options, Memory& memory)
    : spec_(std::move(spec)), options_(options), memory_(memory) {}

Result<std::unique_ptr<State>> State::create(StateSpec spec, const StateOptions& options, Memory& memory) {
  if (options.context < 1 || options.max_sequences < 1 || options.max_chunk < 1)
    return fail(ErrorCode::kInvalidArgument, "context ({}), sequences ({}) and chunk ({}) must be at least 1",
                options.context, options.max_sequences, options.max_chunk);
  std::unique_ptr<State> state(new State(std::move(spec), options, memory));
  GALVANI_TRY_VOID(state->allocate());
  return state;
}

Status State::allocate() {
  const StatePlan plan = plan_state(spec_, options_);
  groups_.resize(spec_.groups.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const KvGroupSpec& spec = spec_.groups[g];
    Group& group = groups_[g];
    const int64_t element = dtype_bytes(options_.kv_dtype);
    group.k_bytes = int64_t{spec.kv_heads} * kPageTokens * spec.k_dim * element;
    group.layer_bytes = group.k_bytes + int64_t{spec.kv_heads} * kPageTokens * spec.v_dim * element;
    group.page_bytes = group.layer_bytes * spec.layers;
    const auto pages = static_cast<int32_t>(plan.group_pages[g]);
    GALVANI_TRY(group.base, memory_.allocate(static_cast<size_t>(plan.group_bytes[g]), "keys and values"));
    group.references.assign(static_cast<size_t>(pages), 0);
    group.free.resize(static_cast<size_t>(pages));
    for (int32_t i = 0; i < pages; ++i) group.free[static_cast<size_t>(i)] = pages - 1 - i;
  }
  for (const SlotSpec& slot : spec_.slots) {
    slot_offsets_.push_back(slot_bytes_);
    slot_bytes_ += slot_stride(slot);
  }
  if (slot_bytes_ > 0) {
    GALVANI_TRY(slots_, memory_.allocate(static_cast<size_t>(slot_bytes_ * options_.max_sequences), "recurrent state"));
  }
  sequences_.resize(static_cast<size_t>(options_.max_sequences));
  for (Sequence& sequence : sequences_) sequence.blocks.resize(groups_.size());
  return {};
}

State::~State() {
  for (Group& group : groups_) {
    if (group.base != nullptr) memory_.release(group.base);
  }
  if (slots_ != nullptr) memory_.release(slots_);
}

Result<SeqId> State::create_sequence() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].used) continue;
    sequences_[i].used = true;
    sequences_[i].spoiled = false;
    sequences_[i].length = 0;
    if (slots_ != nullptr)
      memory_.zero(slots_ + static_cast<int64_t>(i) * slot_bytes_, static_cast<size_t>(slot_bytes_));
    return static_cast<SeqId>(i);
  }
  return fail(ErrorCode::kOutOfMemory,
              "all {} sequences of this engine are in use; wait for one to end or raise the number",
              options_.max_sequences);
}

Result<SeqId> State::fork(SeqId from) {
  GALVANI_TRY(const SeqId id, create_sequence());
  const Sequence& source = sequences_[static_cast<size_t>(from)];
  Sequence& copy = sequences_[static_cast<size_t>(id)];
  copy.length = source.length;
  copy.spoiled = source.spoiled;
  copy.blocks = source.blocks;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t page : copy.blocks[g]) {
      if (page >= 0) ++groups_[g].references[static_cast<size_t>(page)];
    }
  }
  if (slots_ != nullptr)
    memory_.copy(slots_ + id * slot_bytes_, slots_ + from * slot_bytes_, static_cast<size_t>(slot_bytes_));
  return id;
}

void State::drop(Group& group, int32_t page) {
  if (page >= 0 && --group.references[static_cast<size_t>(page)] == 0) group.free.push_back(page);
}

void State::release(SeqId id) {
  Sequence& sequence = sequences_[static_cast<size_t>(id)];
  GALVANI_CHECK(sequence.used, "sequence {}", id);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t page : sequence.blocks[g]) drop(groups_[g], page);
    sequence.blocks[g].clear();
  }
  sequence.used = false;
}

Status State::reserve(const Chunk& chunk) {
  Sequence& sequence = sequences_[static_cast<size_t>(chunk.sequence)];
  GALVANI_CHECK(sequence.used && chunk.first_position == sequence.length && chunk.count > 0,
                "sequence {}: chunk at {}, length {}", chunk.sequence, chunk.first_position, sequence.length);
  if (sequence.spoiled)
    return fail(
        ErrorCode::kUnsupported,
        "a step of this sequence failed and left its recurrent state half advanced; release it and start again");
  const int64_t end = int64_t{chunk.first_position} + chunk.count;
  if (end > options_.context)
    return fail(ErrorCode::kOutOfRange, "the sequence would reach {} tokens, the context holds {}; raise it with -c",
                end, options_.context);
  const auto last = static_cast<size_t>((end - 1) / kPageTokens);
  const auto first = static_cast<size_t>(chunk.first_position / kPageTokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& blocks = sequence.blocks[g];
    int64_t needed = last + 1 > blocks.size() ? static_cast<int64_t>(last + 1 - blocks.size()) : 0;
    if (first < blocks.size() && blocks[first] >= 0 && groups_[g].references[static_cast<size_t>(blocks[first])] > 1)
      ++needed;
    if (needed > static_cast<int64_t>(groups_[g].free.size()))
      return fail(ErrorCode::kOutOfMemory,
                  "KV group '{}' has {} free pages, this step needs {}; run fewer sequences or a smaller context",
                  spec_.groups[g].name, groups_[g].free.size(), needed);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    auto& blocks = sequence.blocks[g];
    const auto take = [&group] {
      const int32_t page = group.free.back();
      group.free.pop_back();
      group.references[static_cast<size_t>(page)] = 1;
      return page;
    };
    if (first < blocks.size() && blocks[first] >= 0 && group.references[static_cast<size_t>(blocks[first])] > 1) {
      const int32_t shared = blocks[first], own = take();
      memory_.copy(group.base + own * group.page_bytes, group.base + shared * group.page_bytes,
                   static_cast<size_t>(group.page_bytes));
      drop(group, shared);
      blocks[first] = own;
    }
    while (blocks.size() <= last) blocks.push_back(take());
  }
  return {};
}

void State::commit(const Chunk& chunk) {
  Sequence& sequence = sequences_[static_cast<size_t>(chunk.sequence)];
  sequence.length = chunk.first_position + chunk.count;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int window = spec_.groups[g].window;
    if (window == 0) continue;
    // The next query stands at `length` and sees positions above length - window.
    const int64_t keep_from = std::max<int64_t>(0, int64_t{sequence.length} - window + 1) / kPageTokens;
    for (int64_t i = 0; i < keep_from; ++i) {
      int32_t& page = sequence.blocks[g][static_cast<size_t>(i)];
      drop(groups_[g], page);
      page = -1;
    }
  }
}

void State::spoil(SeqId id) {
  if (slot_bytes_ > 0) sequences_[static_cast<size_t>(id)].spoiled = true;
}

Status State::truncate(SeqId id, int32_t length) {
  Sequence& sequence = sequences_[static_cast<size_t>(id)];
  if (length < 0 || length > sequence.length)
    return fail(ErrorCode::kOutOfRange, "cannot cut a sequence of {} tokens to {}", sequence.length, length);
  if (length == sequence.length) return {};
  if (slot_bytes_ > 0)
    return fail(ErrorCode::kUnsupported,
                "this model carries recurrent state, which cannot be cut back; fork the sequence before");
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int window = spec_.groups[g].window;
    const auto first_visible = static_cast<size_t>(std::max<int64_t>(0, int64_t{length} - window + 1) / kPageTokens);
    if (window > 0 && length > 0 && sequence.blocks[g][first_visible] < 0)
      return fail(ErrorCode::kUnsupported,
                  "cannot cut the sequence to {} tokens: its sliding window has already let go of earlier positions",
                  length);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    auto& blocks = sequence.blocks[g];
    const auto keep = static_cast<size_t>(pages_for(length));
    while (blocks.size() > keep) {
      drop(groups_[g], blocks.back());
      blocks.pop_back();
    }
  }
  sequence.length = length;
  return {};
}

int32_t State::length(SeqId sequence) const { return sequences_[static_cast<size_t>(sequence)].length; }
int64_t State::free_pages(int group) const {
  return static_cast<int64_t>(groups_[static_cast<size_t>(group)].free.size());
}

int State::sequences() const {
  return static_cast<int>(
      std::count_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return s.used; }));
}

std::span<const int32_t> State::blocks(SeqId sequence, int group) const {
  return sequences_[static_cast<size_t>(sequence)].blocks[static_cast<size_t>(group)];
}

kernels::KvLayer State::kv_layer(int group_index, int layer) const {
  const Group& group = groups_[static_cast<size_t>(group_index)];
  const KvGroupSpec& spec = spec_.groups[static_cast<size_t>(group_index)];
  std::byte* k = group.base + layer * group.layer_bytes;
  return {.k = k,
          .v = k + group.k_bytes,
          .k_page_stride = group.page_bytes,
          .v_page_stride = group.page_bytes,
          .kv_heads = spec.kv_heads,
          .k_dim = spec.k_dim,
          .v_dim = spec.v_dim,
          .dtype = options_.kv_dtype};
}

std::byte* State::slot(SeqId sequence, int slot) const {
  return slots_ + sequence * slot_bytes_ + slot_offsets_[static_cast<size_t>(slot)];
}

}  // namespace galvani::exec
