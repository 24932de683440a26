// The two real GGUF models against llama.cpp (which rounds activations to 8 bits), and the bf16 arithmetic against f32.
// The models are large and stay outside the repository; `scripts/fetch-model` puts them into the cache.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/model_fixture.h"

namespace galvani::models {
namespace {

struct RealModel {
  const char* name;  ///< of the file in the model cache and of the goldens in tests/data/llama_cpp
};

std::filesystem::path cache_file(const char* name) {
  const char* cache = std::getenv("GALVANI_CACHE");
  if (cache != nullptr) return std::filesystem::path(cache) / name;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "" : home) / ".cache/galvani" / name;
}

class GgufModels : public testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    path_ = cache_file((std::string(GetParam().name) + ".gguf").c_str());
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << path_.string() << " is not there; scripts/fetch-model downloads it";
    golden_ = read_golden(GetParam().name);
    golden_f32_ = read_golden(std::string(GetParam().name) + "-f32");
    ASSERT_FALSE(golden_.is_discarded() || golden_f32_.is_discarded());
  }

  static nlohmann::json read_golden(const std::string& name) {
    std::ifstream file(std::filesystem::path(GALVANI_TEST_DATA) / "llama_cpp" / (name + ".json"));
    return nlohmann::json::parse(file, nullptr, false);
  }

  std::unique_ptr<engine::Runner> load_real(const char* act) {
    LoadOptions options;
    options.model = path_.string();
    options.act = act;
    options.context = 1024;
    auto runner = engine::Runner::load(options);
    EXPECT_TRUE(runner.has_value()) << (runner ? "" : runner.error().message);
    return runner ? std::move(*runner) : nullptr;
  }

  std::filesystem::path path_;
  nlohmann::json golden_;      // the file as it is: llama.cpp rounds activations to 8 bits
  nlohmann::json golden_f32_;  // the same weights as F32: llama.cpp multiplies in f32
};

/// Log-probability of `id` under one row of logits, in f64.
double logprob(const float* row, size_t vocab, int32_t id) {
  const double top = *std::max_element(row, row + vocab);
  double sum = 0;
  for (size_t i = 0; i < vocab; ++i) sum += std::exp(row[i] - top);
  return row[id] - top - std::log(sum);
}

struct TextScore {
  std::vector<int32_t> best;
  std::vector<float> margin;
  double perplexity = 0;
};

TextScore score(engine::Runner& runner, const std::vector<int32_t>& ids) {
  TextScore result;
  const auto vocab = static_cast<size_t>(runner.info().vocab);
  double sum = 0;
  const auto status = runner.all_logits(ids, 64, [&](int64_t first, int64_t count, const float* rows) -> Status {
    for (int64_t r = 0; r < count; ++r) {
      std::vector<float> row(rows + static_cast<size_t>(r) * vocab, rows + static_cast<size_t>(r + 1) * vocab);
      const auto next = static_cast<size_t>(first + r + 1);
      if (next < ids.size()) sum += logprob(row.data(), vocab, ids[next]);
      std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
      result.margin.push_back(row[0] - row[1]);
      const float* original = rows + static_cast<size_t>(r) * vocab;
      result.best.push_back(static_cast<int32_t>(std::max_element(original, original + vocab) - original));
    }
    return {};
  });
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  result.perplexity = std::exp(-sum / static_cast<double>(ids.size() - 1));
  return result;
}

// How often the best token is the same where the golden's margin exceeds `least`.
std::pair<int, int> top1(const nlohmann::json& golden, const TextScore& got, float least) {
  const auto best = golden["best"].get<std::vector<int32_t>>();
  const auto margin = golden["margin"].get<std::vector<float>>();
  int compared = 0, equal = 0;
  for (size_t i = 0; i < best.size(); ++i) {
    if (margin[i] <= least) continue;
    ++compared;
    equal += got.best[i] == best[i];
  }
  return {equal, compared};
}

TEST_P(GgufModels, TextMatchesLlamaCpp) {
  auto runner = load_real("f32");
  ASSERT_NE(runner, nullptr);
  const TextScore got = score(*runner, golden_["ids"].get<std::vector<int32_t>>());
  const auto [equal, compared] = top1(golden_, got, 0.1f);
  EXPECT_GE(compared, 250);
  EXPECT_GE(equal, 0.97 * compared) << equal << " of " << compared;
  RecordProperty("top1", fmt::format("{}/{}", equal, compared));
}

// The stricter judge: llama.cpp in f32 on the same weights (its keys and values are f16).
TEST_P(GgufModels, TextMatchesLlamaCppInF32) {
  ASSERT_EQ(golden_f32_["ids"], golden_["ids"]);
  const auto logprobs = golden_f32_["next_logprob"].get<std::vector<double>>();
  double sum = 0;
  for (double value : logprobs) sum += value;
  const double wanted = std::exp(-sum / static_cast<double>(logprobs.size()));
  auto runner = load_real("f32");
  ASSERT_NE(runner, nullptr);
  const TextScore got = score(*runner, golden_["ids"].get<std::vector<int32_t>>());
  const auto [equal, compared] = top1(golden_f32_, got, 0.1f);
  EXPECT_GE(compared, 250);
  EXPECT_EQ(equal, compared);
  EXPECT_NEAR(got.perplexity / wanted, 1.0, 0.005) << got.perplexity << " against " << wanted;
  RecordProperty("perplexity", fmt::format("{:.4f} against {:.4f}", got.perplexity, wanted));
}

// Teacher-forced along llama.cpp's greedy text: equal wherever its margin exceeds 0.5.
TEST_P(GgufModels, GreedyTextMatchesLlamaCpp) {
  auto runner = load_real("f32");
  ASSERT_NE(runner, nullptr);
  int compared = 0;
  for (const auto& prompt : golden_["prompts"]) {
    auto ids = prompt["ids"].get<std::vector<int32_t>>();
    const size_t start = ids.size();
    const auto greedy = prompt["greedy"].get<std::vector<int32_t>>();
    const auto margin = prompt["margin"].get<std::vector<float>>();
    ids.insert(ids.end(), greedy.begin(), greedy.end());
    const TextScore got = score(*runner, ids);
    for (size_t i = 0; i < greedy.size(); ++i) {
      if (margin[i] <= 0.5f) continue;
      EXPECT_EQ(got.best[start - 1 + i], greedy[i]) << prompt["text"] << " token " << i;
      ++compared;
    }
  }
  EXPECT_GE(compared, 80);
}

// bf16 against f32: greedy tokens equal wherever the margin exceeds 0.1, perplexity within 0.2 %.
TEST_P(GgufModels, Bf16StaysCloseToF32) {
  const auto ids = golden_["ids"].get<std::vector<int32_t>>();
  auto f32 = load_real("f32"), bf16 = load_real("bf16");
  ASSERT_NE(f32, nullptr);
  ASSERT_NE(bf16, nullptr);
  const TextScore a = score(*f32, ids), b = score(*bf16, ids);
  int compared = 0;
  for (size_t i = 0; i < a.best.size(); ++i) {
    if (a.margin[i] <= 0.1f) continue;
    EXPECT_EQ(a.best[i], b.best[i]) << "position " << i << ", margin " << a.margin[i];
    ++compared;
  }
  EXPECT_GE(compared, 250);
  EXPECT_NEAR(b.perplexity / a.perplexity, 1.0, 0.002) << b.perplexity << " against " << a.perplexity;
}

INSTANTIATE_TEST_SUITE_P(Models, GgufModels, testing::Values(RealModel{"smollm2-135m"}, RealModel{"gemma3-270m"}),
                         [](const auto& instance) { return std::string(instance.index == 0 ? "smollm2" : "gemma3"); });

}  // namespace
}  // namespace galvani::models
