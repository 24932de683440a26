#include "core/arena.h"

#include <gtest/gtest.h>

#include <cstring>

namespace galvani {
namespace {

TEST(Arena, PiecesAreAlignedDisjointAndReused) {
  Arena arena(256);
  auto* a = static_cast<std::byte*>(arena.allocate(100));
  auto* b = static_cast<std::byte*>(arena.allocate(100));
  auto* big = static_cast<std::byte*>(arena.allocate(10000));
  for (std::byte* p : {a, b, big}) EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  std::memset(a, 1, 100);
  std::memset(b, 2, 100);
  std::memset(big, 3, 10000);
  EXPECT_EQ(a[99], std::byte{1});
  EXPECT_EQ(b[99], std::byte{2});
  const size_t capacity = arena.capacity_bytes();
  arena.reset();
  EXPECT_EQ(arena.allocate(100), a);
  EXPECT_EQ(arena.allocate(100), b);
  EXPECT_EQ(arena.allocate(10000), big);
  EXPECT_EQ(arena.capacity_bytes(), capacity);
}

TEST(Arena, RewindFreesWhatCameAfterTheMark) {
  Arena arena(256);
  void* kept = arena.allocate(64);
  const Arena::Mark mark = arena.mark();
  void* first = arena.allocate(64);
  void* big = arena.allocate(4096);
  arena.rewind(mark);
  EXPECT_EQ(arena.allocate(64), first);
  EXPECT_EQ(arena.allocate(4096), big);
  EXPECT_NE(arena.allocate(64), kept);
}

}  // namespace
}  // namespace galvani
