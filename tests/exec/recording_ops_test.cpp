// What a recorded pass says about a model's calls: the shapes that plans are asked for.
#include "exec/recording_ops.h"

#include <gtest/gtest.h>

#include <map>

#include "models/model.h"

namespace galvani::exec {
namespace {

using Call = RecordingOps::Call;

std::vector<Call> calls_of(const std::string& model_folder, int64_t rows) {
  auto checkpoint = quant::Checkpoint::open(std::string(GALVANI_TEST_DATA) + "/models/" + model_folder);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  RecordingOps ops;
  auto model = models::load_model(**checkpoint, ops);
  EXPECT_TRUE(model) << model.error().message;
  const Batch batch = ops.begin_recording(rows);
  (*model)->forward(batch, ops);
  return ops.calls();
}

TEST(RecordingOps, CallsOfADenseModel) {
  // Two layers of hidden 64, 4 heads and 2 kv heads of 16, intermediate 128; vocabulary 256.
  const std::vector<Call> calls = calls_of("mlx/llama-4-64-affine", 7);
  struct Expected {
    int layer;
    Call::Kind kind;
    int64_t rows, out, in;
    size_t parts;
  };
  const Expected layer[] = {{0, Call::Kind::kProduct, 7, 128, 64, 3},
                            {0, Call::Kind::kAttention, 7, 0, 0, 0},
                            {0, Call::Kind::kProduct, 7, 64, 64, 1},
                            {0, Call::Kind::kProduct, 7, 256, 64, 2},
                            {0, Call::Kind::kProduct, 7, 64, 128, 1}};
  ASSERT_EQ(calls.size(), 11u);
  for (size_t i = 0; i < 10; ++i) {
    const Call& call = calls[i];
    const Expected& expected = layer[i % 5];
    EXPECT_EQ(call.layer, static_cast<int>(i / 5)) << i;
    EXPECT_EQ(call.kind, expected.kind) << i;
    EXPECT_EQ(call.rows, expected.rows) << i;
    EXPECT_EQ(call.out, expected.out) << i;
    EXPECT_EQ(call.in, expected.in) << i;
    EXPECT_EQ(call.parts.size(), expected.parts) << i;
    for (const quant::MatrixPtr& part : call.parts) EXPECT_EQ(part->bits(), 4);
  }
  EXPECT_EQ(calls[1].heads, 4);
  EXPECT_EQ(calls[1].kv_heads, 2);
  EXPECT_EQ(calls[1].k_dim, 16);
  // Logits of the last row alone.
  EXPECT_EQ(calls[10].rows, 1);
  EXPECT_EQ(calls[10].out, 256);
  EXPECT_EQ(calls[10].layer, -1);
}

TEST(RecordingOps, ExpertsCountTheirPairs) {
  int experts = 0;
  for (const Call& call : calls_of("hf/qwen3_moe", 5)) {
    if (call.kind != Call::Kind::kExperts) continue;
    ++experts;
    EXPECT_GT(call.experts, 1);
    EXPECT_EQ(call.rows % 5, 0) << "tokens times chosen experts";
    EXPECT_GT(call.rows, 5);
  }
  EXPECT_GT(experts, 1);
}

}  // namespace
}  // namespace galvani::exec
