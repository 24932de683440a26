#include "engine/runner.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace galvani::engine {
namespace {

std::unique_ptr<Runner> load(const char* act, bool count) {
  LoadOptions options;
  options.model = (std::filesystem::path(GALVANI_TEST_DATA) / "models/hf/llama").string();
  options.act = act;
  options.count_activations = count;
  auto runner = Runner::load(options);
  EXPECT_TRUE(runner.has_value()) << (runner ? "" : runner.error().message);
  return runner ? std::move(*runner) : nullptr;
}

TEST(Runner, CountsActivationsByLayer) {
  auto runner = load("f16", true);
  ASSERT_NE(runner, nullptr);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  ASSERT_TRUE(runner->all_logits(ids, 5, [](int64_t, int64_t, const float*) -> Status { return {}; }).has_value());
  const auto& counters = runner->ops().activation_counters();
  ASSERT_EQ(counters.size(), 3u);                                // outside layers, then the two layers
  EXPECT_EQ(counters[0].values, 5u * 64u);                       // the head's input
  EXPECT_EQ(counters[1].values, 5u * (64u + 64u + 64u + 128u));  // q/k/v, o, gate/up, down
  EXPECT_EQ(counters[2].values, counters[1].values);
  for (const auto& layer : counters) EXPECT_EQ(layer.non_finite + layer.saturated, 0u);
}

// An error inside a step is the step's result, and the sequence is as it was.
TEST(Runner, AnIdOutsideTheVocabularyFailsTheStepOnly) {
  auto runner = load("f32", false);
  ASSERT_NE(runner, nullptr);
  auto sequence = runner->state().create_sequence();
  ASSERT_TRUE(sequence.has_value());
  for (const auto& [id, good] : {std::pair{256, false}, std::pair{-1, false}, std::pair{255, true}}) {
    exec::Batch batch;
    const int32_t token = id;
    batch.add(*sequence, 0, std::span(&token, 1), exec::WantLogits::kLast);
    const auto logits = runner->forward(batch);
    EXPECT_EQ(logits.has_value(), good) << id;
    if (logits) continue;
    EXPECT_EQ(logits.error().code, ErrorCode::kOutOfRange);
    EXPECT_NE(logits.error().message.find(std::to_string(id)), std::string::npos);
    EXPECT_EQ(runner->state().length(*sequence), 0);
  }
  EXPECT_EQ(runner->state().length(*sequence), 1);
}

}  // namespace
}  // namespace galvani::engine
