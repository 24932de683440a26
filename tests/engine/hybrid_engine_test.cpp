// The scheduler with recurrent families: what a sequence carries from step to step is its own, whatever runs beside it,
// however its prompt is cut, and whoever had its place before.
#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace galvani {
namespace {

constexpr const char* kHybrid = "hf/qwen3_5";

std::vector<int32_t> prompt_of(int length, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back((i * 31 + seed * 17 + i / 5) % 256);
  return ids;
}

std::unique_ptr<Engine> load_hybrid(int sequences, int batch_tokens = 512, const char* name = kHybrid) {
  LoadOptions options;
  options.model = model(name);
  options.act = "f32";
  options.max_sequences = sequences;
  options.max_batch_tokens = batch_tokens;
  options.batch_invariant = true;
  options.poison = true;
  auto engine = Engine::load(options);
  EXPECT_TRUE(engine.has_value()) << (engine ? "" : engine.error().message);
  return engine ? std::move(*engine) : nullptr;
}

TEST(HybridEngine, RaggedRequestsEqualSingleOnes) {
  for (const char* name : {kHybrid, "mlx/qwen3_next-4-32-affine"}) {
    std::vector<std::vector<int32_t>> alone;
    const std::vector<int> lengths = {1, 70, 3, 129, 2, 40};
    {
      auto engine = load_hybrid(1, 512, name);
      ASSERT_NE(engine, nullptr);
      for (size_t i = 0; i < lengths.size(); ++i)
        alone.push_back(
            run(*engine, engine->submit(request_of(prompt_of(lengths[i], static_cast<int>(i)), 10)).value()).tokens);
    }
    EXPECT_NE(alone[1], alone[3]);
    // More requests than run at once, prompts cut by a small budget and mixed with others' decode steps.
    auto engine = load_hybrid(3, 48, name);
    ASSERT_NE(engine, nullptr);
    std::vector<RequestId> ids;
    for (size_t i = 0; i < lengths.size(); ++i)
      ids.push_back(engine->submit(request_of(prompt_of(lengths[i], static_cast<int>(i)), 10)).value());
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(run(*engine, ids[i]).tokens, alone[i]) << name << " " << i;
  }
}

TEST(HybridEngine, LongPromptsAreCutByTheBudget) {
  std::vector<std::vector<int32_t>> outputs;
  for (const int budget : {512, 65, 64, 63, 7, 1}) {
    auto engine = load_hybrid(1, budget);
    ASSERT_NE(engine, nullptr);
    outputs.push_back(run(*engine, engine->submit(request_of(prompt_of(200, 1), 8)).value()).tokens);
    EXPECT_EQ(outputs.back(), outputs.front()) << "budget " << budget;
  }
}

// A request that was cancelled in the middle leaves nothing behind for the next one in its place.
TEST(HybridEngine, ACancelledRequestLeavesNoState) {
  auto engine = load_hybrid(1, 16);
  ASSERT_NE(engine, nullptr);
  const Request request = request_of(prompt_of(40, 2), 12);
  const auto wanted = run(*engine, engine->submit(request).value()).tokens;
  for (const int steps : {1, 2, 6}) {  // during its prompt, and while it answers
    const RequestId other = engine->submit(request_of(prompt_of(41, 9), 100)).value();
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(engine->step().value());
    EXPECT_TRUE(engine->cancel(other));
    EXPECT_EQ(run(*engine, other).finish, FinishReason::kCancelled);
    EXPECT_EQ(run(*engine, engine->submit(request).value()).tokens, wanted) << "after " << steps << " steps";
  }
}

// The arms that the plan may choose give the same greedy text here as the recurrence (their logits are within
// rounding).
TEST(HybridEngine, ChunkedArmsGiveTheSameText) {
  std::vector<std::vector<int32_t>> outputs;
  for (const char* arm : {"recurrent", "chunk16", "chunk32", "chunk64", "ref", "auto"}) {
    LoadOptions options;
    options.model = model(kHybrid);
    options.act = "f32";
    options.max_batch_tokens = 50;
    options.arms = {{"gated_delta", arm}};
    options.poison = true;
    auto engine = Engine::load(options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    outputs.push_back(run(**engine, (*engine)->submit(request_of(prompt_of(130, 4), 16)).value()).tokens);
    EXPECT_EQ(outputs.back(), outputs.front()) << arm;
  }
}

}  // namespace
}  // namespace galvani
