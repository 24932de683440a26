#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "formats/gguf.h"
#include "formats/gguf_builder.h"
#include "formats/rope_config.h"
#include "quant/checkpoint.h"

namespace galvani::quant {
namespace {

using testing::GgufBuilder;
using testing::TempFolder;

const std::filesystem::path kModels = std::filesystem::path(GALVANI_TEST_DATA) / "models";

std::shared_ptr<Checkpoint> open_or_die(const std::filesystem::path& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
  return *checkpoint;
}

struct Pair {
  const char *family, *gguf;
};

class SameModel : public ::testing::TestWithParam<Pair> {
 protected:
  std::shared_ptr<Checkpoint> hf_ = open_or_die(kModels / "hf" / GetParam().family);
  std::shared_ptr<Checkpoint> gguf_ = open_or_die(kModels / "gguf" / GetParam().gguf);
};

TEST_P(SameModel, ConfigSaysTheSame) {
  const auto &hf = hf_->config(), &gguf = gguf_->config();
  EXPECT_EQ(gguf_->format(), CheckpointFormat::kGguf);
  EXPECT_NE(gguf_->gguf(), nullptr);
  EXPECT_EQ(gguf_->eos_ids(), hf_->eos_ids());
  for (const char* key :
       {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "intermediate_size", "head_dim", "rms_norm_eps", "max_position_embeddings", "vocab_size", "tie_word_embeddings",
        "hidden_act", "hidden_activation", "attention_bias", "mlp_bias", "sliding_window", "query_pre_attn_scalar",
        "use_sliding_window", "bos_token_id"}) {
    if (!hf.contains(key) || hf.at(key).is_null()) continue;
    ASSERT_TRUE(gguf.contains(key)) << key;
    EXPECT_EQ(gguf.at(key), hf.at(key)) << key;
  }
  if (std::string(GetParam().family).starts_with("gemma")) {
    EXPECT_EQ(gguf.at("layer_types"), hf.at("layer_types"));
  }
  if (std::string(GetParam().family) == "gemma4_edge") {
    for (const char* key :
         {"per_layer_config", "num_kv_shared_layers", "use_double_wide_mlp", "attention_k_eq_v", "enable_moe_block",
          "hidden_size_per_layer_input", "vocab_size_per_layer_input", "final_logit_softcapping"})
      EXPECT_EQ(gguf.at(key), hf.at(key)) << key;
  }
}

TEST_P(SameModel, RopeIsTheSame) {
  formats::ConfigReader hf(hf_->config(), "hf"), gguf(gguf_->config(), "gguf");
  for (const char* type : {"full_attention", "sliding_attention"}) {
    auto a = formats::parse_rope(hf, type, {}), b = formats::parse_rope(gguf, type, {});
    ASSERT_TRUE(a) << a.error().message;
    ASSERT_TRUE(b) << b.error().message;
    int64_t head_dim = gguf_->config().at("head_dim").get<int64_t>();
    const bool gemma4 = gguf_->config().contains("per_layer_config"), full = std::string(type) == "full_attention";
    if (gemma4 && full) head_dim = gguf_->config()["per_layer_config"]["1"]["head_dim"].get<int64_t>();
    auto expected = formats::rope_inv_freq(*a, head_dim), found = formats::rope_inv_freq(*b, head_dim);
    ASSERT_TRUE(expected && found);
    if (gguf_->has("rope_freqs.weight") && (full || !gemma4)) {
      auto factors = gguf_->vector("rope_freqs.weight", head_dim / 2);
      ASSERT_TRUE(factors);
      ASSERT_TRUE(formats::apply_rope_factors(*found, *factors));
    }
    ASSERT_EQ(expected->size(), found->size());
    for (size_t i = 0; i < found->size(); ++i)  // a dead pair is 0, or something divided by 1e30
      EXPECT_NEAR((*found)[i], (*expected)[i], 1e-6f * (*expected)[i] + 1e-25f) << type << ' ' << i;
  }
}

TEST_P(SameModel, TensorsAreEqual) {
  const bool folded = gguf_->norms_folded();
  EXPECT_EQ(folded, std::string(GetParam().family) == "gemma3");
  int compared = 0;
  for (const auto& name : hf_->unused()) {
    ASSERT_TRUE(gguf_->has(name)) << name;
    const auto shape = *hf_->shape(name);
    EXPECT_EQ(*gguf_->shape(name), shape) << name;
    if (shape.rank() == 1) {
      auto a = hf_->vector(name, shape[0]), b = gguf_->vector(name, shape[0]);
      ASSERT_TRUE(a && b) << name;
      if (folded && name.ends_with("norm.weight"))
        for (float& x : *a) x += 1.0f;
      EXPECT_EQ(*a, *b) << name;
    } else {
      const std::string module = name.substr(0, name.size() - 7);
      auto a = hf_->matrix(module, shape[0], shape[1]), b = gguf_->matrix(module, shape[0], shape[1]);
      ASSERT_TRUE(a && b) << name;
      const auto size = static_cast<size_t>(shape[0] * shape[1]);
      std::vector<float> x(size), y(size);
      ASSERT_TRUE((*a)->dequant_rows(0, shape[0], x.data()));
      ASSERT_TRUE((*b)->dequant_rows(0, shape[0], y.data()));
      EXPECT_EQ(x, y) << name;
      ASSERT_TRUE((*b)->dequant_rows(5, 6, y.data()));
      EXPECT_EQ(std::memcmp(x.data() + 5 * shape[1], y.data(), static_cast<size_t>(shape[1]) * 4), 0) << name;
      const bool interleaved = std::string(GetParam().family) == "llama" &&
                               (name.find("q_proj") != name.npos || name.find("k_proj") != name.npos);
      EXPECT_EQ((*b)->dense_rows(0, 2).empty(), interleaved) << name;
    }
    ++compared;
  }
  EXPECT_GT(compared, 18);
  EXPECT_TRUE(hf_->unused().empty());
  const auto left = gguf_->unused();
  EXPECT_EQ(left, gguf_->has("rope_freqs.weight") ? std::vector<std::string>{"rope_freqs.weight"}
                                                  : std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(All, SameModel,
                         ::testing::Values(Pair{"llama", "llama.gguf"}, Pair{"qwen2", "qwen2.gguf"},
                                           Pair{"qwen3", "qwen3-00001-of-00002.gguf"}, Pair{"gemma3", "gemma3.gguf"},
                                           Pair{"gemma4_edge", "gemma4_edge.gguf"}),
                         [](const ::testing::TestParamInfo<Pair>& test) { return std::string(test.param.family); });

/// A small llama of one layer, to bend.
GgufBuilder tiny() {
  GgufBuilder b;
  b.string("general.architecture", "llama")
      .u32("llama.block_count", 1)
      .u32("llama.embedding_length", 32)
      .u32("llama.context_length", 64);
  b.u32("llama.feed_forward_length", 32)
      .u32("llama.attention.head_count", 2)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  b.tensor("token_embd.weight", {32, 4}, 0, 0).tensor("blk.0.attn_q.weight", {32, 32}, 2, 512);
  b.data = std::string(512 + 18 * 32, '\0');
  return b;
}

std::string open_error(const GgufBuilder& builder) {
  TempFolder folder;
  folder.write("m.gguf", builder.build());
  auto checkpoint = Checkpoint::open(folder.path() / "m.gguf");
  return checkpoint ? "no error" : checkpoint.error().message;
}

void expect_error(const GgufBuilder& builder, const std::string& words) {
  const auto message = open_error(builder);
  EXPECT_NE(message.find(words), std::string::npos) << "expected '" << words << "' in: " << message;
  EXPECT_NE(message.find("m.gguf"), std::string::npos) << message;
}

TEST(GgufCheckpoint, RefusesMetadataThatMakesNoSense) {
  EXPECT_EQ(open_error(tiny()), "no error");
  const auto without = [](const std::string& key) {
    GgufBuilder b = tiny();
    const auto at = b.values.find(key);
    b.values[at] = 'X';
    return b;
  };
  expect_error(without("general.architecture"), "'general.architecture'");
  expect_error(without("llama.block_count"), "'llama.block_count'");
  expect_error(without("llama.attention.head_count"), "'llama.attention.head_count'");
  expect_error(without("llama.attention.layer_norm_rms_epsilon"), "'llama.attention.layer_norm_rms_epsilon'");
  const auto with = [](const std::string& key, uint32_t value) {
    GgufBuilder b = tiny();
    b.values[b.values.find(key)] = 'X';
    return b.u32(key, value);
  };
  expect_error(with("llama.block_count", 0), "it must be from 1 to 4096");
  expect_error(with("llama.block_count", 0xffffffff), "it must be from 1 to 4096");
  expect_error(with("llama.attention.head_count", 0), "from 1 to");
  expect_error(with("llama.attention.head_count", 0xffffffff), "from 1 to");
  expect_error(with("llama.embedding_length", 0), "from 1 to");
  GgufBuilder b = tiny();
  expect_error(b.u32("llama.attention.key_length", 0x80000000), "from 1 to 65536");
  b = tiny();
  expect_error(b.u32("llama.attention.value_length", 8), "must be equal");
  b = tiny();
  expect_error(b.u32("llama.rope.dimension_count", 8), "partial rotary");
  b = tiny();
  expect_error(b.u32("tokenizer.ggml.eos_token_id", 4), "beyond the vocabulary of 4");
  b = tiny();
  expect_error(b.tensor("model.embed_tokens.weight", {1}, 0, 512 + 18 * 32), "reach past");
  b = tiny();
  b.tensor("model.embed_tokens.weight", {1}, 0, 512 + 18 * 32).data += std::string(4, '\0');
  expect_error(b, "mean the same thing");
  b = tiny();
  b.tensors[0].name = "token_embd.bias";
  expect_error(b, "token_embd.weight");
  b = tiny();
  b.values[b.values.find("llama.block_count") - 17 + 12] = 'x';  // the architecture's name
  EXPECT_NE(open_error(b), "no error");
}

TEST(GgufCheckpoint, KeysThatMatterReachTheConfig) {
  TempFolder folder;
  GgufBuilder b = tiny();
  b.f32("llama.logit_scale", 0.5f)
      .u32("llama.strange_key", 3)
      .string("llama.rope.scaling.type", "longrope")
      .f32("llama.rope.scaling.factor", 2);
  folder.write("m.gguf", b.build());
  auto checkpoint = open_or_die(folder.path() / "m.gguf");
  formats::ConfigReader reader(checkpoint->config(), "m.gguf");
  auto rope = formats::parse_rope(reader, "full_attention", {});
  ASSERT_FALSE(rope);
  EXPECT_NE(rope.error().message.find("'longrope' is not supported"), std::string::npos) << rope.error().message;
  auto status = reader.finish();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("'logit_scale' = 0.5"), std::string::npos) << status.error().message;
  const auto unknown = reader.unknown_keys();
  EXPECT_NE(std::find(unknown.begin(), unknown.end(), "llama.strange_key"), unknown.end());
}

TEST(GgufCheckpoint, ErrorsNameFileTensorAndExpectation) {
  TempFolder folder;
  folder.write("m.gguf", tiny().build());
  auto checkpoint = open_or_die(folder.path() / "m.gguf");
  const auto expect = [](const auto& result, std::initializer_list<const char*> words) {
    ASSERT_FALSE(result);
    for (const char* word : words)
      EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  };
  expect(checkpoint->matrix("model.layers.0.self_attn.q_proj", 64, 32),
         {"m.gguf", "'blk.0.attn_q.weight'", "Q4_0 [32, 32]", "[64, 32]"});
  expect(checkpoint->matrix("model.layers.0.self_attn.k_proj", 32, 32),
         {"m.gguf", "blk.0.attn_k.weight", "self_attn.k_proj"});
  expect(checkpoint->vector("model.norm.weight", 32), {"output_norm.weight"});
  std::filesystem::resize_file(folder.path() / "m.gguf", 100);
  auto matrix = checkpoint->matrix("model.layers.0.self_attn.q_proj", 32, 32);
  ASSERT_TRUE(matrix);
  std::vector<float> out(32);
  expect((*matrix)->dequant_rows(0, 1, out.data()), {"m.gguf", "when it was opened"});
  expect((*matrix)->affine(0, 1, 0, 32), {"m.gguf", "when it was opened"});
}

TEST(GgufCheckpoint, RealFiles) {
  const char* cache = std::getenv("GALVANI_CACHE");
  if (cache == nullptr) GTEST_SKIP() << "GALVANI_CACHE names no folder with downloaded models";
  int opened = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache)) {
    if (entry.path().extension() != ".gguf") continue;
    auto checkpoint = Checkpoint::open(entry.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    ++opened;
    for (const auto& name : (*checkpoint)->unused()) {
      const auto shape = *(*checkpoint)->shape(name);
      if (shape.rank() != 2) continue;
      const int64_t rows = std::min<int64_t>(shape[0], 64);
      auto matrix = (*checkpoint)->matrix(name.substr(0, name.rfind('.')), shape[0], shape[1]);
      ASSERT_TRUE(matrix) << matrix.error().message;
      ASSERT_EQ((*matrix)->kind(), MatrixKind::kAffine) << name;
      std::vector<float> x(static_cast<size_t>(rows * shape[1])), y(x.size());
      ASSERT_TRUE((*matrix)->dequant_rows(0, rows, x.data()));
      auto part = (*matrix)->affine(0, rows, 0, shape[1]);
      ASSERT_TRUE(part) << part.error().message;
      affine_dequant_rows(part->view, 0, rows, y.data());
      EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * 4), 0) << name;
    }
  }
  if (opened == 0) GTEST_SKIP() << cache << " holds no .gguf file";
}

}  // namespace
}  // namespace galvani::quant
