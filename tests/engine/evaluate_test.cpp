#include "engine/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

namespace galvani::engine {
namespace {

std::unique_ptr<Runner> load(const EvalOptions& eval, const std::string& model = "llama") {
  LoadOptions options;
  options.model = (std::filesystem::path(GALVANI_TEST_DATA) / "models/hf" / model).string();
  options.act = options.kv = "f32";
  options.context = eval.window;
  options.max_sequences = eval_sequences(eval);
  options.max_batch_tokens = static_cast<int>(eval.step_tokens);
  auto runner = Runner::load(options);
  EXPECT_TRUE(runner.has_value()) << (runner ? "" : runner.error().message);
  return runner ? std::move(*runner) : nullptr;
}

std::vector<int32_t> some_ids(size_t count) {
  std::mt19937 random(5);
  std::vector<int32_t> ids(count);
  for (auto& id : ids) id = static_cast<int32_t>(random() % 256);
  return ids;
}

/// -log softmax(row)[target] in f64.
double nll_of(const float* row, int64_t vocab, int32_t target) {
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]));
  return std::log(sum) - row[target];
}

/// Windows one by one through all_logits, scored as the header says.
double slow_nll(Runner& runner, const std::vector<int32_t>& ids, const EvalOptions& options, int64_t windows) {
  double total = 0;
  for (int64_t i = 0; i < windows; ++i) {
    std::vector<int32_t> input(ids.begin() + i * options.window, ids.begin() + (i + 1) * options.window);
    const bool half = options.convention == EvalConvention::kSecondHalf;
    if (half && options.bos) input[0] = *options.bos;
    EXPECT_TRUE(runner.all_logits(input, 7, [&](int64_t first, int64_t count, const float* rows) -> Status {
      for (int64_t r = 0; r < count; ++r) {
        const int64_t p = first + r;
        if (half && (p < options.window / 2 || p == options.window - 1)) continue;
        total += nll_of(rows + r * runner.info().vocab, runner.info().vocab,
                        ids[static_cast<size_t>(i * options.window + p + 1)]);
      }
      return {};
    }));
  }
  return total;
}

TEST(Evaluate, BothConventionsScoreTheTokensTheySay) {
  const auto ids = some_ids(3 * 32 + 1);
  for (const bool half : {false, true})
    for (const int64_t step : {96, 70, 20}) {  // three windows at once, two, and one in pieces
      EvalOptions options{.convention = half ? EvalConvention::kSecondHalf : EvalConvention::kWhole,
                          .window = 32,
                          .windows = 0,
                          .bos = {},
                          .step_tokens = step};
      if (half) options.bos = 1;
      auto runner = load(options);
      ASSERT_NE(runner, nullptr);
      const auto result = evaluate(*runner, nullptr, ids, options);
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_EQ(result->windows, 3);
      EXPECT_EQ(result->tokens, half ? 3 * 15 : 3 * 32);
      const double slow = slow_nll(*runner, ids, options, 3);
      EXPECT_NEAR(result->nll, slow, 2e-4 * slow) << half << ' ' << step;
      EXPECT_NEAR(result->ppl, std::exp(slow / static_cast<double>(result->tokens)), 1e-3 * result->ppl);
      EXPECT_EQ(result->not_finite, 0);
    }
}

TEST(Evaluate, DistanceFromItselfIsNothing) {
  const auto ids = some_ids(65);
  const EvalOptions options{.window = 32, .windows = 2};
  auto model = load(options), same = load(options), other = load(options, "qwen3");
  ASSERT_TRUE(model && same && other);
  const auto zero = evaluate(*model, same.get(), ids, options);
  ASSERT_TRUE(zero) << zero.error().message;
  ASSERT_TRUE(zero->against);
  EXPECT_LE(zero->against->kl_max, 1e-9);
  EXPECT_EQ(zero->against->top1_agreement, 1);
  EXPECT_EQ(zero->against->ppl_ratio, 1);
  const auto far = evaluate(*model, other.get(), ids, options);
  ASSERT_TRUE(far) << far.error().message;
  EXPECT_GT(far->against->kl_mean, 0.1);
  EXPECT_LT(far->against->top1_agreement, 0.5);
  EXPECT_NEAR(far->against->ppl_ratio, far->ppl / far->against->reference_ppl, 1e-12);
  EXPECT_LE(far->against->kl_p999, far->against->kl_max);
}

TEST(Evaluate, OnePositionByTheFormula) {
  const std::vector<float> z = {1.5f, -2.0f, 0.25f, 30.0f}, r = {0.5f, 1.0f, 29.0f, 28.5f};
  const PositionScore is = score_position(z.data(), r.data(), 4, 2);
  double zs = 0, rs = 0, kl = 0;
  for (size_t i = 0; i < 4; ++i) zs += std::exp(static_cast<double>(z[i]));
  for (size_t i = 0; i < 4; ++i) rs += std::exp(static_cast<double>(r[i]));
  for (size_t i = 0; i < 4; ++i) {
    const double p = std::exp(static_cast<double>(r[i])) / rs;
    kl += p * std::log(p / (std::exp(static_cast<double>(z[i])) / zs));
  }
  EXPECT_NEAR(is.nll, std::log(zs) - 0.25, 1e-6);
  EXPECT_NEAR(is.reference_nll, std::log(rs) - 29.0, 1e-6);
  EXPECT_NEAR(is.kl, kl, 1e-5);
  EXPECT_FALSE(is.same_top1);
  EXPECT_TRUE(is.finite);
  const std::vector<float> bad = {1, NAN, 2, 3};
  EXPECT_FALSE(score_position(bad.data(), nullptr, 4, 0).finite);
  EXPECT_FALSE(score_position(z.data(), bad.data(), 4, 0).finite);
}

TEST(Evaluate, RefusesWhatCannotBeScored) {
  const auto expect = [](const auto& result, const std::string& words) {
    ASSERT_FALSE(result) << words;
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  };
  const EvalOptions options{.window = 32, .windows = 3};
  expect(eval_windows(96, options), "96 ids are too few: 3 window(s) of 32 take 97");
  expect(eval_windows(5, {.window = 32}), "5 ids are too few: 1 window(s) of 32 take 33");
  expect(eval_windows(5, {.window = 1}), "at least 2");
  EXPECT_EQ(*eval_windows(97, options), 3);
  EXPECT_EQ(*eval_windows(96, {.convention = EvalConvention::kSecondHalf, .window = 32}), 3);
  EXPECT_EQ(*eval_windows(1 << 20, {.window = 32}), 256);
  auto model = load(options);
  ASSERT_NE(model, nullptr);
  auto ids = some_ids(97);
  ids[40] = 256;
  expect(evaluate(*model, nullptr, ids, options), "id 256 at index 40 is outside the vocabulary; allowed: 0 to 255");
  ids[40] = -1;
  expect(evaluate(*model, nullptr, ids, options), "id -1 at index 40");
  const auto many = some_ids(2000);
  expect(evaluate(*model, nullptr, many, {.window = 1024}), "longer than the 512 positions");
  EvalOptions stopped{.window = 32, .windows = 1};
  stopped.stop = [] { return true; };
  expect(evaluate(*model, nullptr, some_ids(97), stopped), "interrupted");
  EXPECT_TRUE(evaluate(*model, nullptr, some_ids(97), options)) << "sequences were given back";
}

}  // namespace
}  // namespace galvani::engine
