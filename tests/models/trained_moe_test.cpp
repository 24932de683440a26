// The trained qwen3_moe (28 M parameters, 64 experts, 8 active): perplexity as Hugging Face and mlx have it, and that
// its experts are really used. The model is large and stays outside the repository.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/runner.h"
#include "formats/npy.h"

namespace galvani::models {
namespace {

constexpr int kWindow = 512;

class TrainedMoe : public testing::Test {
 protected:
  void SetUp() override {
    const char* fixtures = std::getenv("GALVANI_FIXTURES");
    if (fixtures == nullptr) GTEST_SKIP() << "GALVANI_FIXTURES names no folder with the large fixtures";
    root_ = fixtures;
    auto ids = formats::read_npy_ids(root_ / "models/trained-moe/heldout_ids.npy", 8192);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    ids_ = std::move(*ids);
  }

  std::unique_ptr<engine::Runner> load(const char* folder) {
    LoadOptions options;
    options.model = (root_ / folder).string();
    options.act = "f32";
    options.context = kWindow;
    auto runner = engine::Runner::load(options);
    EXPECT_TRUE(runner.has_value()) << (runner ? "" : runner.error().message);
    return runner ? std::move(*runner) : nullptr;
  }

  /// Window i runs ids 512i … 512i + 511 alone and scores the id after each.
  double perplexity(engine::Runner& runner, int windows) {
    double sum = 0;
    const auto vocab = static_cast<size_t>(runner.info().vocab);
    for (int w = 0; w < windows; ++w) {
      const auto begin = static_cast<size_t>(w) * kWindow;
      const auto status = runner.all_logits(
          std::span(ids_).subspan(begin, kWindow), kWindow, [&](int64_t first, int64_t count, const float* rows) {
            for (int64_t r = 0; r < count; ++r) {
              const float* row = rows + static_cast<size_t>(r) * vocab;
              const double top = *std::max_element(row, row + vocab);
              double total = 0;
              for (size_t i = 0; i < vocab; ++i) total += std::exp(row[i] - top);
              sum += std::log(total) + top - row[ids_[begin + static_cast<size_t>(first + r) + 1]];
            }
            return Status{};
          });
      EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
    }
    return std::exp(sum / (static_cast<double>(windows) * kWindow));
  }

  nlohmann::json judgement(const char* file) const {
    std::ifstream in(root_ / file);
    return nlohmann::json::parse(in);
  }

  std::filesystem::path root_;
  std::vector<int32_t> ids_;
};

/// Sets of windows beyond the first few take minutes and are run by hand.
bool all_windows() { return std::getenv("GALVANI_ALL_WINDOWS") != nullptr; }

// The first four windows by Hugging Face (scripts/goldens/make_moe_goldens.py), all 256 by heldout_eval.json.
TEST_F(TrainedMoe, Bf16WeightsHaveTheReferencePerplexity) {
  auto runner = load("models/trained-moe");
  ASSERT_NE(runner, nullptr);
  const double first_four = (956.0662 + 1518.2013 + 1538.0633 + 1689.1244) / (4 * kWindow);
  EXPECT_NEAR(perplexity(*runner, 4) / std::exp(first_four), 1.0, 5e-4);
  // Learned routing uses most experts of every layer even in four texts, and some far more than others.
  const auto& counts = runner->ops().expert_counts();
  ASSERT_EQ(counts.size(), 4u);
  for (const auto& layer : counts) {
    ASSERT_EQ(layer.size(), 64u);
    EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), uint64_t{0}), uint64_t{4} * kWindow * 8);
    EXPECT_GT(std::count_if(layer.begin(), layer.end(), [](uint64_t n) { return n > 0; }), 32);
    EXPECT_GT(*std::max_element(layer.begin(), layer.end()), 2u * 4 * kWindow * 8 / 64);
  }
  if (!all_windows()) return;
  const auto wanted = judgement("models/trained-moe/heldout_eval.json");
  const double got = perplexity(*runner, wanted["windows"].get<int>());
  EXPECT_NEAR(got / wanted["ppl"].get<double>(), 1.0, 5e-4) << got;
  std::cout << "perplexity " << got << " against " << wanted["ppl"] << "\n";
}

TEST_F(TrainedMoe, FourBitsHaveMlxPerplexity) {
  if (!all_windows()) GTEST_SKIP() << "32 windows take a while; GALVANI_ALL_WINDOWS=1 runs them";
  auto runner = load("mlx/trained-moe-4-64-affine");
  ASSERT_NE(runner, nullptr);
  const auto wanted = judgement("mlx/trained-moe-4-64-affine/mlx_eval.json");
  const double got = perplexity(*runner, wanted["windows"].get<int>());
  EXPECT_NEAR(got / wanted["ppl"].get<double>(), 1.0, 5e-4) << got;
  std::cout << "perplexity " << got << " against " << wanted["ppl"] << "\n";
}

}  // namespace
}  // namespace galvani::models
