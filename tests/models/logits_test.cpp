// Logits against Hugging Face (float32, eager) and MLX, on random checkpoints of every family: models.md section 9.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/checkpoint_edit.h"
#include "models/model_fixture.h"

namespace galvani::models {
namespace {

/// Checkpoints with Hugging Face's logits, greedy tokens and hidden states.
class HuggingFaceLogits : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_data(GetParam()) / "model.safetensors"))
      GTEST_SKIP() << GetParam() << " is not committed, and GALVANI_FIXTURES names no folder that holds it";
  }
};
/// Checkpoints quantised by mlx-lm, with mlx's logits.
class MlxLogits : public ::testing::TestWithParam<std::string> {};

/// A GGUF file and the checkpoint that it was made from.
class GgufLogits : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

void expect_reference_logits(const std::string& model) {
  auto runner = load(model);
  ASSERT_NE(runner, nullptr);
  for (const std::string which : {"0", "1"}) {
    const auto ids = expected<int32_t>(model, "input_ids_" + which);
    const auto wanted = expected<float>(model, "logits_" + which);
    ASSERT_FALSE(ids.empty());
    EXPECT_LE(max_abs_difference(logits_of(*runner, ids), wanted), logits_bound(model)) << model << " input " << which;
  }
}

TEST_P(HuggingFaceLogits, MatchTheReference) { expect_reference_logits(GetParam()); }
TEST_P(MlxLogits, MatchTheReference) { expect_reference_logits(GetParam()); }

// The same weights out of a GGUF file: names, transforms and config keys undone.
TEST_P(GgufLogits, MatchTheReference) {
  const auto& [gguf, twin] = GetParam();
  auto runner = load(gguf);
  ASSERT_NE(runner, nullptr);
  for (const std::string which : {"0", "1"}) {
    const auto ids = expected<int32_t>(twin, "input_ids_" + which);
    const auto wanted = expected<float>(twin, "logits_" + which);
    ASSERT_FALSE(ids.empty());
    EXPECT_LE(max_abs_difference(logits_of(*runner, ids), wanted), logits_bound(twin)) << gguf << " input " << which;
  }
}

TEST_P(HuggingFaceLogits, EveryArmMatchesTheReference) {
  const std::string& model = GetParam();
  const auto ids = expected<int32_t>(model, "input_ids_0");
  const auto wanted = expected<float>(model, "logits_0");
  for (const char* matmul : {"ref", "rows", "panel"}) {
    for (const char* attention : {"ref", "tiles", "split"}) {
      LoadOptions options;
      options.arms = {{"qmatmul", matmul}, {"attention", attention}};
      auto runner = load(model, options);
      ASSERT_NE(runner, nullptr);
      EXPECT_LE(max_abs_difference(logits_of(*runner, ids), wanted), logits_bound(model))
          << model << " " << matmul << " " << attention;
    }
  }
}

// Teacher-forced along the reference's 24 greedy tokens, EOS ignored; a token whose margin is under 1e-3 may differ.
TEST_P(HuggingFaceLogits, GreedyTokensMatchWhereTheMarginDecides) {
  const std::string& model = GetParam();
  auto runner = load(model);
  ASSERT_NE(runner, nullptr);
  auto ids = expected<int32_t>(model, "input_ids_0");
  const size_t prompt = ids.size();
  const auto greedy = expected<int32_t>(model, "greedy_0");
  const auto margin = expected<float>(model, "greedy_margin_0");
  ASSERT_EQ(greedy.size(), 24u);
  ids.insert(ids.end(), greedy.begin(), greedy.end());
  const auto logits = logits_of(*runner, ids);
  const auto vocab = static_cast<size_t>(runner->info().vocab);
  int compared = 0;
  for (size_t i = 0; i < greedy.size(); ++i) {
    const float* row = logits.data() + (prompt - 1 + i) * vocab;
    const auto best = static_cast<int32_t>(std::max_element(row, row + vocab) - row);
    if (margin[i] <= 1e-3f) continue;
    EXPECT_EQ(best, greedy[i]) << model << " token " << i;
    ++compared;
  }
  EXPECT_GE(compared, 12);
}

// Hidden states layer by layer, so that a wrong layer is named rather than only its effect on the logits.
TEST_P(HuggingFaceLogits, HiddenStatesMatchLayerByLayer) {
  const std::string& model = GetParam();
  auto runner = load(model);
  ASSERT_NE(runner, nullptr);
  const auto ids = expected<int32_t>(model, "input_ids_0");
  const auto wanted = expected<float>(model, "hidden_0");
  auto sequence = runner->state().create_sequence();
  ASSERT_TRUE(sequence.has_value());
  exec::Batch batch;
  batch.tap_hidden = true;
  batch.add(*sequence, 0, ids, exec::WantLogits::kLast);
  ASSERT_TRUE(runner->forward(batch).has_value());
  const auto& taps = runner->ops().taps();
  ASSERT_EQ(taps.size(), static_cast<size_t>(runner->info().layers) + 1);
  size_t offset = 0;
  for (size_t layer = 0; layer < taps.size(); ++layer) {
    ASSERT_LE(offset + taps[layer].size(), wanted.size());
    double error = 0, power = 0;
    for (size_t i = 0; i < taps[layer].size(); ++i) {
      error += std::pow(static_cast<double>(taps[layer][i]) - wanted[offset + i], 2);
      power += std::pow(static_cast<double>(wanted[offset + i]), 2);
    }
    EXPECT_LE(error / power, 1e-10) << model << " after layer " << layer;
    offset += taps[layer].size();
  }
  EXPECT_EQ(offset, wanted.size());
}

// The released files have no clip_qkv; Hugging Face's logits with one (scripts/goldens/make_moe_goldens.py).
TEST(OlmoeLogits, ClipMatchesTheReference) {
  EditedCheckpoint clipped("hf/olmoe");
  clipped.config["clip_qkv"] = 0.75;
  auto runner = clipped.load();
  ASSERT_NE(runner, nullptr);
  auto golden = formats::SafetensorsFile::open(model_data("hf/olmoe") / "clipped.safetensors");
  ASSERT_TRUE(golden.has_value()) << golden.error().message;
  EXPECT_EQ((*golden)->metadata().at("clip_qkv"), "0.75");
  auto view = (*golden)->tensor("logits_0");
  ASSERT_TRUE(view.has_value()) << view.error().message;
  std::vector<float> wanted(view->bytes.size() / sizeof(float));
  std::memcpy(wanted.data(), view->bytes.data(), view->bytes.size());
  EXPECT_LE(max_abs_difference(logits_of(*runner, expected<int32_t>("hf/olmoe", "input_ids_0")), wanted),
            logits_bound("hf/olmoe"));
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.find('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// One row a line.
// clang-format off
const auto kHuggingFace = ::testing::Values(
    "hf/deepseek_v3",
    "hf/deepseek_v3-direct",
    "hf/deepseek_v3-fp8",
    "hf/deepseek_v3-kv_b",
    "hf/gemma3",
    "hf/gemma4_dense",
    "hf/gemma4_edge",
    "hf/gpt_oss",
    "hf/llama",
    "hf/mixtral",
    "hf/olmoe",
    "hf/qwen2",
    "hf/qwen3",
    "hf/qwen3_5",
    "hf/qwen3_moe",
    "tiny/gemma4_moe",
    "tiny/qwen3_5_moe",
    "tiny/qwen3_next");
const auto kMlx = ::testing::Values(
    "mlx/deepseek_v3-4-32-affine",
    "mlx/deepseek_v3-6-64-affine",
    "mlx/gemma3-8-64-affine",
    "mlx/gemma4_edge-4-32-affine",
    "mlx/gemma4_moe-5-64-affine",
    "mlx/llama-3-32-affine",
    "mlx/llama-4-64-affine",
    "mlx/llama-8-32-mxfp8",
    "mlx/llama-mixed-128-affine",
    "mlx/mixtral-2-32-affine",
    "mlx/olmoe-4-64-affine",
    "mlx/qwen2-5-64-affine",
    "mlx/qwen3-4-16-nvfp4",
    "mlx/qwen3-6-32-affine",
    "mlx/qwen3_5-4-64-affine",
    "mlx/qwen3_5_moe-4-64-affine",
    "mlx/qwen3_moe-4-32-affine",
    "mlx/qwen3_moe-4-32-mxfp4",
    "mlx/qwen3_moe-5-128-affine",
    "mlx/qwen3_next-4-32-affine");
const auto kGguf = ::testing::Values(
    std::pair{"gguf/gemma3.gguf", "hf/gemma3"},
    std::pair{"gguf/gemma4_edge.gguf", "hf/gemma4_edge"},
    std::pair{"gguf/llama.gguf", "hf/llama"},
    std::pair{"gguf/qwen2.gguf", "hf/qwen2"},
    std::pair{"gguf/qwen3-00001-of-00002.gguf", "hf/qwen3"},
    std::pair{"gguf/qwen35.gguf", "hf/qwen3_5"},
    std::pair{"gguf/qwen3moe.gguf", "hf/qwen3_moe"});
// clang-format on

INSTANTIATE_TEST_SUITE_P(Models, HuggingFaceLogits, kHuggingFace, test_name);
INSTANTIATE_TEST_SUITE_P(Models, MlxLogits, kMlx, test_name);
INSTANTIATE_TEST_SUITE_P(Models, GgufLogits, kGguf,
                         [](const auto& instance) { return std::string(instance.param.second).substr(3); });

}  // namespace
}  // namespace galvani::models
