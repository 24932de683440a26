// What only deepseek_v3 has: pages of latents, layers behind the last one, and configs that cannot be.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/safetensors.h"
#include "models/model_fixture.h"

namespace galvani::models {
namespace {

namespace fs = std::filesystem;

/// A copy of a committed checkpoint with another config, and tensors left out or added.
class EditedCheckpoint {
 public:
  explicit EditedCheckpoint(const std::string& model) : source_(model_data(model)) {
    folder_ = fs::path(testing::TempDir()) /
              ("deepseek_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ifstream(source_ / "config.json") >> config;
  }
  ~EditedCheckpoint() { fs::remove_all(folder_); }

  /// Writes the folder. Tensors whose name contains `without` are left out; copies of layer `copied` are added under
  /// the number after the last one.
  fs::path write(const std::string& without = "", int copied = -1) const {
    std::ofstream(folder_ / "config.json") << config;
    auto file = formats::SafetensorsFile::open(source_ / "model.safetensors");
    EXPECT_TRUE(file.has_value());
    std::vector<formats::SafetensorsToWrite> tensors;
    for (const auto& entry : (*file)->tensors()) {
      const TensorView view = (*file)->view(entry);
      if (without.empty() || entry.name.find(without) == std::string::npos)
        tensors.push_back({entry.name, view.dtype, view.shape, view.bytes});
      const std::string prefix = "model.layers." + std::to_string(copied) + ".";
      if (copied >= 0 && entry.name.starts_with(prefix)) {
        const std::string last = "model.layers." + config["num_hidden_layers"].dump() + ".";
        tensors.push_back({last + entry.name.substr(prefix.size()), view.dtype, view.shape, view.bytes});
      }
    }
    const auto written = formats::write_safetensors(folder_ / "model.safetensors", tensors, (*file)->metadata());
    EXPECT_TRUE(written.has_value()) << (written ? "" : written.error().message);
    return folder_;
  }

  nlohmann::json config;

 private:
  fs::path source_, folder_;
};

Result<std::unique_ptr<engine::Runner>> load_folder(const fs::path& folder) {
  LoadOptions options;
  options.model = folder.string();
  options.act = "f32";
  return engine::Runner::load(options);
}

struct BadConfig {
  const char* name;
  const char* key;
  nlohmann::json value;
  std::vector<std::string> wanted;  ///< parts of the message
};

class DeepseekBadConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(DeepseekBadConfig, IsRefusedByName) {
  EditedCheckpoint checkpoint("hf/deepseek_v3");
  checkpoint.config[GetParam().key] = GetParam().value;
  const auto runner = load_folder(checkpoint.write());
  ASSERT_FALSE(runner.has_value());
  for (const std::string& part : GetParam().wanted)
    EXPECT_NE(runner.error().message.find(part), std::string::npos) << runner.error().message << "\nlacks: " << part;
}

INSTANTIATE_TEST_SUITE_P(
    Keys, DeepseekBadConfig,
    testing::Values(BadConfig{"groups_do_not_divide", "n_group", 3, {"n_group is 3", "n_routed_experts 8", "divide"}},
                    BadConfig{"more_groups_kept", "topk_group", 5, {"topk_group 5", "n_group is 4"}},
                    BadConfig{"no_group_kept", "topk_group", 0, {"topk_group", "0"}},
                    BadConfig{"too_many_active", "num_experts_per_tok", 5, {"5"}},
                    BadConfig{"odd_rope", "qk_rope_head_dim", 15, {"qk_rope_head_dim is 15", "even"}},
                    BadConfig{"rope_of_another_width", "qk_rope_head_dim", 14, {"q_b_proj", "expected"}},
                    BadConfig{"method", "topk_method", "greedy", {"topk_method", "'greedy'", "noaux_tc"}},
                    BadConfig{"scoring", "scoring_func", "softmax", {"scoring_func", "'softmax'", "sigmoid"}},
                    BadConfig{"frequency", "moe_layer_freq", 2, {"moe_layer_freq is 2"}},
                    BadConfig{"kv_heads", "num_key_value_heads", 2, {"num_key_value_heads is 2", "equal"}},
                    BadConfig{"latent", "kv_lora_rank", 32, {"kv_a_proj_with_mqa", "expected"}},
                    BadConfig{"no_latent", "kv_lora_rank", nullptr, {"kv_lora_rank"}},
                    BadConfig{"q_lora_missing", "q_lora_rank", nullptr, {"q_proj"}},
                    BadConfig{"no_experts", "n_routed_experts", nullptr, {"n_routed_experts"}},
                    BadConfig{"huge_heads", "num_attention_heads", 1000000, {"num_attention_heads"}},
                    BadConfig{"softcap", "final_logit_softcapping", 30.0, {"final_logit_softcapping"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(Deepseek, AMissingTensorIsNamed) {
  for (const char* tensor : {"layers.1.self_attn.kv_b_proj", "layers.0.self_attn.kv_a_layernorm",
                             "layers.2.mlp.gate.e_score_correction_bias", "layers.1.mlp.shared_experts.up_proj",
                             "layers.2.mlp.experts.7.down_proj"}) {
    const auto runner = load_folder(EditedCheckpoint("hf/deepseek_v3").write(tensor));
    ASSERT_FALSE(runner.has_value()) << tensor;
    const std::string& message = runner.error().message;
    const std::string name = std::string(tensor).substr(std::string(tensor).rfind('.') + 1);
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
  const auto halves = load_folder(EditedCheckpoint("mlx/deepseek_v3-4-32-affine").write("unembed_out"));
  ASSERT_FALSE(halves.has_value());
  EXPECT_NE(halves.error().message.find("unembed_out"), std::string::npos) << halves.error().message;
}

TEST(Deepseek, Fp8WithoutItsScalesIsRefused) {
  const auto runner = load_folder(EditedCheckpoint("hf/deepseek_v3-fp8").write("q_a_proj.weight_scale_inv"));
  ASSERT_FALSE(runner.has_value());
  EXPECT_NE(runner.error().message.find("q_a_proj"), std::string::npos) << runner.error().message;
  EXPECT_NE(runner.error().message.find("f8_e4m3"), std::string::npos) << runner.error().message;
}

TEST(Deepseek, Fp8OfOtherBlocksIsRefused) {
  EditedCheckpoint checkpoint("hf/deepseek_v3-fp8");
  checkpoint.config["quantization_config"]["weight_block_size"] = {64, 64};
  const auto runner = load_folder(checkpoint.write());
  ASSERT_FALSE(runner.has_value());
  EXPECT_NE(runner.error().message.find("weight_block_size 64, 64"), std::string::npos) << runner.error().message;
}

// Published checkpoints carry a layer that predicts further tokens behind the last one; it is not run.
TEST(Deepseek, LayersBehindTheLastOneAreLeftAlone) {
  EditedCheckpoint checkpoint("hf/deepseek_v3");
  const auto stray = load_folder(checkpoint.write("", 1));
  ASSERT_FALSE(stray.has_value());
  EXPECT_NE(stray.error().message.find("model.layers.3."), std::string::npos) << stray.error().message;
  checkpoint.config["num_nextn_predict_layers"] = 1;
  auto runner = load_folder(checkpoint.write("", 1));
  ASSERT_TRUE(runner.has_value()) << runner.error().message;
  const auto ids = expected<int32_t>("hf/deepseek_v3", "input_ids_0");
  EXPECT_LE(max_abs_difference(logits_of(**runner, ids), expected<float>("hf/deepseek_v3", "logits_0")), 5e-5);
}

TEST(Deepseek, PagesHoldTheLatentAndTheRotatedPartAlone) {
  LoadOptions options;
  options.context = 128;
  auto runner = load("hf/deepseek_v3", options);
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(runner->info().state_bytes, 3 * 128 * (36 + 16) * 4);
}

/// The median over positions of the largest difference of a row.
double median_difference(const std::vector<float>& a, const std::vector<float>& b, size_t vocab) {
  std::vector<double> worst;
  for (size_t row = 0; row + vocab <= a.size(); row += vocab)
    worst.push_back(
        max_abs_difference({a.begin() + static_cast<long>(row), a.begin() + static_cast<long>(row + vocab)},
                           {b.begin() + static_cast<long>(row), b.begin() + static_cast<long>(row + vocab)}));
  std::sort(worst.begin(), worst.end());
  return worst[worst.size() / 2];
}

// f16 and bf16 pages: as close to f32 ones as their rounding allows, and independent of chunks. The median, because at
// some positions of a random model rounding decides which expert is chosen.
TEST(Deepseek, NarrowPagesStayClose) {
  const auto ids = expected<int32_t>("hf/deepseek_v3", "input_ids_0");
  const auto wanted = expected<float>("hf/deepseek_v3", "logits_0");
  for (const auto& [kv, bound] : {std::pair{"f16", 2e-2}, std::pair{"bf16", 1e-1}}) {
    LoadOptions options;
    options.kv = kv;
    options.arms = {{"qmatmul", "rows"}};
    auto runner = load("hf/deepseek_v3", options);
    ASSERT_NE(runner, nullptr);
    const auto whole = logits_of(*runner, ids);
    ASSERT_EQ(whole.size(), wanted.size());
    const double off = median_difference(whole, wanted, static_cast<size_t>(runner->info().vocab));
    EXPECT_LE(off, bound) << kv;
    EXPECT_GT(off, 5e-5) << kv << ": the pages do not seem to be narrow";
    EXPECT_EQ(logits_of(*runner, ids, 3), whole) << kv;
  }
}

}  // namespace
}  // namespace galvani::models
