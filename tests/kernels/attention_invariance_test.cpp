// What must hold bit for bit: a row's result does not depend on its chunk, its batch, the arm, the threads, or on
// anything it does not see.
#include "kernels/attention_testing.h"

namespace galvani::kernels {
namespace {

using Arms = std::vector<AttentionArm>;
const Arms kArms = {AttentionArm::kTiles, AttentionArm::kSplit, AttentionArm::kAuto};

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}

/// Runs one sequence in pieces, appending and attending in turn as an engine does; pages that fell out of the window
/// are taken away first.
std::vector<float> in_chunks(PagedSequences& s, int piece, AttentionArm arm) {
  std::fill(s.k_pool.begin(), s.k_pool.end(), std::byte{0xff});
  std::fill(s.v_pool.begin(), s.v_pool.end(), std::byte{0xff});
  const auto blocks = s.blocks[0];
  GuardedBuffer out(s.out_size());
  for (int first = 0; first < s.shape.length; first += piece) {
    if (s.shape.window > 0) {
      const int seen = std::max(0, first - s.shape.window + 1);
      for (int page = 0; page < seen / kPageTokens; ++page) s.blocks[0][static_cast<size_t>(page)] = -1;
    }
    const AttentionChunk chunk = s.chunk(0, first, std::min(piece, s.shape.length - first));
    s.append({&chunk, 1});
    s.attend({&chunk, 1}, out.data(), arm);
  }
  EXPECT_TRUE(out.guards_intact());
  s.blocks[0] = blocks;
  return {out.data(), out.data() + out.size()};
}

TEST(AttentionInvariance, Chunks) {
  std::mt19937_64 random(fresh_seed());
  const std::vector<AttentionCase> cases = {
      {9, 3, 64, 64, 0, 0, false, DType::kF32, 600},       {4, 1, 40, 24, 100, 30.0f, true, DType::kBF16, 600},
      {2, 2, 16, 16, 64, 0, false, DType::kF16, 330},      {3, 1, 8, 8, 257, 0, false, DType::kF32, 780},
      {5, 1, 40, 33, 0, 0, false, DType::kF32, 600, true}, {5, 1, 40, 32, 0, 0, false, DType::kBF16, 600, true},
  };
  for_each_target([&] {
    for (const AttentionCase& c : cases) {
      SCOPED_TRACE(testing::Message() << c);
      PagedSequences s(c, 1, random);
      const std::vector<float> whole = in_chunks(s, c.length, AttentionArm::kTiles);
      for (float value : whole) ASSERT_FALSE(std::isnan(value));
      for (int piece : {1, 3, 63, 64, 65, c.length}) {
        for (AttentionArm arm : kArms) {
          const std::vector<float> pieces = in_chunks(s, piece, arm);
          ASSERT_TRUE(same_bits(pieces.data(), whole.data(), static_cast<int64_t>(whole.size())))
              << "pieces of " << piece << ", arm " << static_cast<int>(arm);
        }
      }
    }
  });
}

TEST(AttentionInvariance, BatchThreadsAndArm) {
  std::mt19937_64 random(fresh_seed());
  const AttentionCase c{6, 2, 32, 48, 0, 0, true, DType::kF32, 520};
  PagedSequences s(c, 4, random);
  s.append(s.whole());
  // Ragged: prefill pieces and decodes of different sequences in one call, in mixed order.
  const std::vector<AttentionChunk> batch = {s.chunk(2, 519, 1), s.chunk(0, 100, 130), s.chunk(3, 0, 65),
                                             s.chunk(1, 300, 1), s.chunk(1, 7, 2)};
  for_each_target([&] {
    for (const AttentionChunk& chunk : batch) {
      GuardedBuffer alone(s.out_size());
      s.attend({&chunk, 1}, alone.data(), AttentionArm::kTiles);
      for (int count : {1, 2, 3}) {
        set_threads(count);
        for (AttentionArm arm : kArms) {
          GuardedBuffer together(s.out_size());
          s.attend(batch, together.data(), arm);
          const int64_t at = chunk.row * s.out_width();
          ASSERT_TRUE(same_bits(together.data() + at, alone.data() + at, chunk.count * s.out_width()))
              << count << " threads, arm " << static_cast<int>(arm);
        }
      }
      set_threads(0);
      for (size_t i = 0; i < alone.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i) / s.out_width();
        ASSERT_EQ(alone.untouched(i), row < chunk.row || row >= chunk.row + chunk.count) << i;
      }
    }
  });
}

TEST(AttentionInvariance, WhatARowDoesNotSeeDoesNotReachIt) {
  std::mt19937_64 random(fresh_seed());
  for (int window : {0, 70}) {
    const AttentionCase c{3, 1, 16, 16, window, 0, false, DType::kF32, 200};
    PagedSequences s(c, 1, random);
    const auto chunks = s.whole();
    s.append(chunks);
    for_each_target([&] {
      GuardedBuffer clean(s.out_size()), dirty(s.out_size());
      s.attend(chunks, clean.data(), AttentionArm::kTiles);
      for (int bad : {0, 63, 64, 101, 199}) {
        PagedSequences broken = s;
        broken.layer.k = broken.k_pool.data();
        broken.layer.v = broken.v_pool.data();
        broken.k[static_cast<size_t>(bad * 16 + 3)] = NAN;
        broken.v[static_cast<size_t>(bad * 16 + 5)] = NAN;
        broken.append(broken.whole());
        broken.attend(broken.whole(), dirty.data(), AttentionArm::kTiles);
        for (int row = 0; row < c.length; ++row) {
          const int64_t at = row * s.out_width();
          const bool sees = bad <= row && (window == 0 || row - bad < window);
          if (sees) {
            ASSERT_TRUE(std::isnan(dirty.data()[at])) << "row " << row << " sees a NaN at " << bad;
          } else {
            ASSERT_TRUE(same_bits(dirty.data() + at, clean.data() + at, s.out_width())) << row << ' ' << bad;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace galvani::kernels
