#include "exec/state.h"

#include <gtest/gtest.h>

#include <cstring>

namespace galvani::exec {
namespace {

StateSpec two_groups() {
  return {.groups = {{.name = "full", .layers = 2, .kv_heads = 2, .k_dim = 8, .v_dim = 4, .window = 0},
                     {.name = "sliding", .layers = 1, .kv_heads = 1, .k_dim = 8, .v_dim = 8, .window = 100}},
          .slots = {{.name = "conv", .shape = {3, 5}, .dtype = DType::kF32},
                    {.name = "state", .shape = {7}, .dtype = DType::kF32}}};
}

std::unique_ptr<State> make(StateSpec spec, StateOptions options) {
  auto state = State::create(std::move(spec), options, host_memory());
  EXPECT_TRUE(state.has_value()) << (state ? "" : state.error().message);
  return std::move(*state);
}

void run(State& state, SeqId sequence, int count) {
  const Chunk chunk{.sequence = sequence, .first_position = state.length(sequence), .count = count};
  const auto reserved = state.reserve(chunk);
  ASSERT_TRUE(reserved.has_value()) << reserved.error().message;
  state.commit(chunk);
}

TEST(State, PagesComeWithTokensAndGoWithTheSequence) {
  auto state = make(two_groups(), {.context = 640, .max_sequences = 2, .max_chunk = 64});
  const int64_t full = state->free_pages(0), sliding = state->free_pages(1);
  EXPECT_EQ(full, 20);
  auto id = state->create_sequence();
  ASSERT_TRUE(id.has_value());
  run(*state, *id, 64);
  EXPECT_EQ(state->free_pages(0), full - 1);
  run(*state, *id, 1);
  EXPECT_EQ(state->free_pages(0), full - 2);
  EXPECT_EQ(state->blocks(*id, 0).size(), 2u);
  state->release(*id);
  EXPECT_EQ(state->free_pages(0), full);
  EXPECT_EQ(state->free_pages(1), sliding);
}

TEST(State, ASlidingWindowGivesPagesBackOnceNoQueryCanSeeThem) {
  auto state = make(two_groups(), {.context = 6400, .max_sequences = 1, .max_chunk = 64});
  auto id = state->create_sequence();
  ASSERT_TRUE(id.has_value());
  for (int i = 0; i < 100; ++i) run(*state, *id, 64);  // the whole context fits although the pool holds a few pages
  const auto blocks = state->blocks(*id, 1);
  ASSERT_EQ(blocks.size(), 100u);
  // The query at 6400 sees positions from 6301 on: page 98 is the first it needs.
  EXPECT_EQ(blocks[97], -1);
  EXPECT_GE(blocks[98], 0);
  EXPECT_GE(blocks[99], 0);
  EXPECT_EQ(state->blocks(*id, 0)[0] >= 0, true);
}

TEST(State, WindowEdgeIsExact) {
  auto state = make(two_groups(), {.context = 640, .max_sequences = 1, .max_chunk = 64});
  auto id = state->create_sequence();
  ASSERT_TRUE(id.has_value());
  run(*state, *id, 64);
  run(*state, *id, 64);
  run(*state, *id, 34);  // length 162: the query at 162 sees 63…162, and 63 is on page 0
  EXPECT_GE(state->blocks(*id, 1)[0], 0);
  run(*state, *id, 1);  // length 163: sees 64…163
  EXPECT_EQ(state->blocks(*id, 1)[0], -1);
}

TEST(State, ForkSharesUntilWrittenAndCopiesSlots) {
  auto state = make(two_groups(), {.context = 640, .max_sequences = 3, .max_chunk = 64});
  auto parent = state->create_sequence();
  ASSERT_TRUE(parent.has_value());
  run(*state, *parent, 64);
  run(*state, *parent, 36);
  std::memset(state->slot(*parent, 1), 7, 28);
  const int64_t before = state->free_pages(0);
  auto child = state->fork(*parent);
  ASSERT_TRUE(child.has_value());
  EXPECT_EQ(state->free_pages(0), before);
  EXPECT_EQ(state->length(*child), 100);
  EXPECT_EQ(state->slot(*child, 1)[27], std::byte{7});
  std::memset(state->slot(*child, 1), 9, 28);
  EXPECT_EQ(state->slot(*parent, 1)[0], std::byte{7});
  // Write a marker through the parent's page; the child's first write must copy it, not share it.
  const auto layer = state->kv_layer(0, 1);
  std::byte* parent_page = layer.k + state->blocks(*parent, 0)[1] * layer.k_page_stride;
  parent_page[0] = std::byte{42};
  run(*state, *child, 1);
  EXPECT_EQ(state->free_pages(0), before - 1);
  EXPECT_EQ(state->blocks(*child, 0)[0], state->blocks(*parent, 0)[0]);
  EXPECT_NE(state->blocks(*child, 0)[1], state->blocks(*parent, 0)[1]);
  EXPECT_EQ(layer.k[state->blocks(*child, 0)[1] * layer.k_page_stride], std::byte{42});
  state->release(*parent);
  state->release(*child);
  EXPECT_EQ(state->free_pages(0), 30);
}

TEST(State, RefusesWhatDoesNotFitAndChangesNothing) {
  StateSpec spec = two_groups();
  spec.slots.clear();
  auto state = make(spec, {.context = 128, .max_sequences = 1, .max_chunk = 64});
  auto id = state->create_sequence();
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(state->create_sequence().error().code, ErrorCode::kOutOfMemory);
  const auto beyond = state->reserve({.sequence = *id, .first_position = 0, .count = 129});
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(state->blocks(*id, 0).size(), 0u);
  run(*state, *id, 128);
  EXPECT_TRUE(state->truncate(*id, 60).has_value());
  EXPECT_EQ(state->length(*id), 60);
  EXPECT_EQ(state->blocks(*id, 0).size(), 1u);
  EXPECT_EQ(state->truncate(*id, 61).error().code, ErrorCode::kOutOfRange);
}

TEST(State, TruncateRefusesWhatIsGone) {
  StateSpec spec = two_groups();
  auto with_slots = make(spec, {.context = 640, .max_sequences = 1, .max_chunk = 64});
  auto id = with_slots->create_sequence();
  run(*with_slots, *id, 10);
  EXPECT_EQ(with_slots->truncate(*id, 5).error().code, ErrorCode::kUnsupported);
  spec.slots.clear();
  auto sliding = make(spec, {.context = 640, .max_sequences = 1, .max_chunk = 64});
  id = sliding->create_sequence();
  for (int i = 0; i < 5; ++i) run(*sliding, *id, 64);
  EXPECT_EQ(sliding->truncate(*id, 100).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(sliding->truncate(*id, 300).has_value());
}

}  // namespace
}  // namespace galvani::exec
