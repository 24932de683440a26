// What the golden file of plans does not show: the split of keys.
#include <gtest/gtest.h>

#include <random>

#include "device/parts.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {
namespace {

// Whatever the rows, the segments fit what a captured graph has room for; they cover each row's keys exactly.
TEST(AttentionCudaPlan, SegmentsFitTheRoomAndCoverTheKeys) {
  std::mt19937_64 random(fresh_seed());
  int64_t schedules = 0;
  for (const Part& part : known_parts()) {
    for (const auto& [heads, kv_heads] : {std::pair{9, 3}, {32, 8}, {4, 1}, {16, 16}, {64, 4}, {71, 1}}) {
      const AttentionCudaShape shape{heads, kv_heads, 128, 128, DType::kBF16};
      for (int round = 0; round < 30; ++round) {
        const int context = 64 << random() % 12, rows = 1 << random() % 7,
                  window = random() % 3 ? 0 : 1 + static_cast<int>(random() % 5000);
        std::vector<int> positions;
        for (int r = 0; r < rows; ++r)
          positions.push_back(static_cast<int>(random() % static_cast<uint64_t>(context + 1)) - 1);
        for (const bool invariant : {false, true}) {
          const int segment = plan_attention_segment(part.caps, shape, positions.data(), rows, window, invariant);
          ASSERT_EQ(segment % 64, 0);
          ASSERT_TRUE(!invariant || segment == kInvariantSegment);
          std::vector<int> schedule(positions.size() + 2);
          const int segments = attention_schedule(positions, window, segment, schedule.data());
          ASSERT_LE(segments, attention_most_segments(part.caps, shape, rows, context, invariant))
              << part.caps.sms << " multiprocessors, " << rows << " rows, context " << context << ", segment "
              << segment;
          ASSERT_EQ(schedule[0], segment);
          for (int r = 0; r < rows; ++r) {
            const int position = positions[static_cast<size_t>(r)],
                      own = schedule[static_cast<size_t>(r) + 2] - schedule[static_cast<size_t>(r) + 1];
            const int first = window > 0 ? std::max(0, position - window + 1) : 0;
            ASSERT_EQ(own, position < 0 ? 0 : position / segment - first / segment + 1);
          }
          ++schedules;
        }
      }
    }
  }
  EXPECT_GT(schedules, 1000);
}

// The best of the segments measured on an H200, or next to it (README.md).
TEST(AttentionCudaPlan, SegmentsFillOneWaveOfAnH200) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  const auto segment = [&](int dim, int rows, int heads, int kv_heads, int length) {
    const std::vector<int> positions(static_cast<size_t>(rows), length - 1);
    const AttentionCudaShape shape{heads, kv_heads, dim, dim, DType::kBF16};
    return plan_attention_segment(h200, shape, positions.data(), rows, 0, false);
  };
  EXPECT_EQ(segment(128, 3, 32, 8, 4096), 320);
  EXPECT_EQ(segment(64, 8, 9, 3, 8192), 384);
  EXPECT_EQ(segment(128, 4, 32, 8, 4096), 384);
  EXPECT_EQ(segment(128, 1, 64, 8, 32768), 704);
  EXPECT_EQ(segment(64, 16, 9, 3, 8192), 768);
  EXPECT_EQ(segment(256, 8, 4, 1, 16384), 512);
  EXPECT_EQ(segment(128, 1, 32, 8, 8192), 192);
  EXPECT_EQ(segment(128, 16, 32, 8, 4096), 1408);
}

// What GALVANI_TRACE=plan prints of a launch; each text is printed once, so it holds the problem and no more.
TEST(AttentionCudaPlan, ALaunchIsALineOfText) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  const AttentionCudaShape heads{32, 8, 128, 128, DType::kBF16};
  const PagedKv kv{.kv_heads = 8, .k_dim = 128, .v_dim = 128};
  EXPECT_EQ(attention_cuda_launch_str(plan_attention_decode(h200, heads), kv, 32, {.scale = 1, .window = 512}, 4),
            "attention 32 heads, 8 kv x 128/128, window 512, 4 rows: kernel=attention_decode_bf16_d128_sm80 rows=1 "
            "threads=128 shared=17152");
  EXPECT_EQ(attention_cuda_launch_str(plan_attention_tiles(h200, heads, 512), kv, 32, {.scale = 1, .softcap = 50}, 0),
            "attention 32 heads, 8 kv x 128/128, softcap, chunks: kernel=attention_wgmma_bf16_d128_sm90a rows=128 "
            "threads=384 shared=165120");
}

}  // namespace
}  // namespace galvani::kernels
