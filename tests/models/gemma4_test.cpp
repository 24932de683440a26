// Gemma 4 beyond the logits of its fixtures: both generations of config keys, wrappers, GGUF files, memory of shared
// layers, and configs that must be refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/recording_ops.h"
#include "formats/bytes.h"
#include "models/model_fixture.h"

namespace galvani::models {
namespace {

using nlohmann::json;
using testing::TempFolder;

std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

json config_of(const std::string& model) { return json::parse(slurp(model_data(model) / "config.json")); }

/// A copy of a fixture with another config and, if wanted, other tensor names.
class Changed {
 public:
  Changed(const std::string& model, const json& config) : Changed(slurp(model_data(model) / "model.safetensors")) {
    folder_.write("config.json", config.dump());
  }
  Changed(const std::string& model, const json& config, const std::function<std::string(const std::string&)>& rename)
      : Changed(renamed(slurp(model_data(model) / "model.safetensors"), rename)) {
    folder_.write("config.json", config.dump());
  }
  std::string path() const { return folder_.path().string(); }

 private:
  explicit Changed(const std::string& tensors) { folder_.write("model.safetensors", tensors); }

  static std::string renamed(const std::string& file, const std::function<std::string(const std::string&)>& rename) {
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const json header = json::parse(file.substr(8, length));
    json changed = json::object();
    for (const auto& [name, entry] : header.items()) {
      changed[name == "__metadata__" ? name : rename(name)] = entry;
    }
    std::string text = changed.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t now = text.size();
    std::string out(8, '\0');
    std::memcpy(out.data(), &now, 8);
    return out + text + file.substr(8 + length);
  }

  TempFolder folder_;
};

std::unique_ptr<engine::Runner> load_path(const std::string& path) {
  LoadOptions options;
  options.model = path;
  options.act = "f32";
  options.poison = true;
  auto runner = engine::Runner::load(options);
  EXPECT_TRUE(runner.has_value()) << (runner ? "" : runner.error().message);
  return runner ? std::move(*runner) : nullptr;
}

/// The error of loading it, nothing computed; empty when it loads.
std::string load_error(const std::string& path) {
  auto checkpoint = quant::Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error().message;
  exec::RecordingOps ops;
  auto model = load_model(**checkpoint, ops);
  return model ? "" : model.error().message;
}

void expect_same_logits(const std::string& model, const std::string& changed) {
  auto a = load(model), b = load_path(changed);
  ASSERT_TRUE(a && b);
  const auto ids = expected<int32_t>(model, "input_ids_1");
  EXPECT_EQ(logits_of(*a, ids), logits_of(*b, ids));
}

// The keys of checkpoints from before per_layer_config.
TEST(Gemma4, TheOlderKeysMeanTheSame) {
  for (const char* model : {"hf/gemma4_dense", "hf/gemma4_edge"}) {
    json config = config_of(model);
    config.erase("per_layer_config");
    config["global_head_dim"] = 32;
    config["num_global_key_value_heads"] = config["attention_k_eq_v"] == true ? json(2) : json(1);  // else not honoured
    expect_same_logits(model, Changed(model, config).path());
  }
}

TEST(Gemma4, WrappersNestTheLanguageModel) {
  const std::string model = "hf/gemma4_edge";
  json inner = config_of(model);
  inner["vocab_size"] = 262144;  // the wrapper's own number wins
  for (const char* type : {"gemma4", "gemma4_unified"}) {
    inner["model_type"] = std::string(type) + "_text";
    const json wrapper = {{"model_type", type},
                          {"text_config", inner},
                          {"vision_config", {{"hidden_size", 3}}},
                          {"vocab_size", 256},
                          {"tie_word_embeddings", true}};
    for (const char* prefix : {"model.language_model.", "language_model.model."}) {
      const Changed changed(
          model, wrapper, [&](const std::string& name) { return prefix + name.substr(std::string("model.").size()); });
      expect_same_logits(model, changed.path());
    }
  }
}

// Vision and audio parts are left alone, and so are the k and v of layers that read another layer's.
TEST(Gemma4, TensorsOfOtherPartsAreIgnored) {
  const std::string model = "hf/gemma4_edge";
  json config = config_of(model);
  config["num_kv_shared_layers"] = 3;  // layer 3 reads layer 1 now, and its own k and v are left over
  EXPECT_EQ(load_error(Changed(model, config).path()), "");
  for (const std::string other :
       {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.", "model.strange."}) {
    const Changed changed(model, config, [&](const std::string& name) {
      return name.starts_with("model.layers.3.self_attn.k") ? other + name : name;
    });
    const std::string error = load_error(changed.path());
    if (other == "model.strange.")
      EXPECT_NE(error.find("holds 2 tensors that this model family does not use"), std::string::npos) << error;
    else
      EXPECT_EQ(error, "");
  }
}

TEST(Gemma4, SharedLayersTakeNoMemory) {
  auto runner = load("hf/gemma4_edge");
  ASSERT_NE(runner, nullptr);
  const exec::StateSpec spec = runner->model().state_spec();
  ASSERT_EQ(spec.groups.size(), 2u);
  EXPECT_EQ(spec.groups[0].name, "sliding");
  EXPECT_EQ(spec.groups[0].window, 8);
  EXPECT_EQ(spec.groups[0].layers, 2);  // layers 0 and 2; layer 4 reads layer 2
  EXPECT_EQ(spec.groups[0].k_dim, 16);
  EXPECT_EQ(spec.groups[1].name, "full");
  EXPECT_EQ(spec.groups[1].window, 0);
  EXPECT_EQ(spec.groups[1].layers, 2);  // layers 1 and 3; layer 5 reads layer 3
  EXPECT_EQ(spec.groups[1].k_dim, 32);
}

// Saved configs leave out what equals the default.
TEST(Gemma4, WhatAConfigLeavesOutHasTheFamilysDefault) {
  for (const auto& [type, window] : {std::pair{"gemma4_text", 512}, {"gemma4_unified_text", 1024}}) {
    json config = config_of("hf/gemma4_dense");
    for (const char* key : {"layer_types", "sliding_window", "rope_parameters", "rms_norm_eps", "hidden_activation",
                            "tie_word_embeddings", "max_position_embeddings"})
      config.erase(key);
    config["model_type"] = type;
    const Changed changed("hf/gemma4_dense", config);
    auto checkpoint = quant::Checkpoint::open(changed.path());
    ASSERT_TRUE(checkpoint.has_value());
    exec::RecordingOps ops;
    auto model = load_model(**checkpoint, ops);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    const exec::StateSpec spec = (*model)->state_spec();
    ASSERT_EQ(spec.groups.size(), 2u);
    EXPECT_EQ(spec.groups[0].window, window);
    EXPECT_EQ(spec.groups[0].layers, 5);
    EXPECT_EQ(spec.groups[1].window, 0);
    EXPECT_EQ((*model)->info().context, window * 256);  // 131072 and 262144
  }
}

TEST(Gemma4, KeysThatAreEqualToValuesAreStoredTwice) {
  auto runner = load("mlx/gemma4_edge-4-32-affine");
  ASSERT_NE(runner, nullptr);
  const exec::StateSpec spec = runner->model().state_spec();
  ASSERT_EQ(spec.groups.size(), 2u);
  EXPECT_EQ(spec.groups[1].kv_heads, 1);  // num_global_key_value_heads
  EXPECT_EQ(spec.groups[1].k_dim, 32);
  EXPECT_EQ(spec.groups[1].v_dim, 32);
  EXPECT_EQ(spec.groups[1].layers, 1);
}

// suppress_tokens of generation_config.json; ids beyond the vocabulary say nothing.
TEST(Gemma4, SuppressedTokensAreNeverDrawn) {
  auto runner = load("mlx/gemma4_edge-4-32-affine");
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(runner->suppressed(), std::vector<int32_t>{7});
}

struct Refusal {
  const char* what;
  const char* model;
  const char* patch;  ///< JSON merge patch of the config
  const char* words;
};

class Gemma4Refuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(Gemma4Refuses, ByName) {
  const Refusal& refusal = GetParam();
  json config = config_of(refusal.model);
  config.merge_patch(json::parse(refusal.patch));
  const std::string error = load_error(Changed(refusal.model, config).path());
  EXPECT_NE(error.find(refusal.words), std::string::npos) << "expected '" << refusal.words << "' in: " << error;
}

INSTANTIATE_TEST_SUITE_P(
    Configs, Gemma4Refuses,
    ::testing::Values(
        Refusal{"LayerTypesLength", "hf/gemma4_dense", R"({"layer_types": ["full_attention"]})",
                "layer_types has 1 entries, num_hidden_layers says 6"},
        Refusal{"LayerTypesName", "hf/gemma4_dense", R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})",
                "layer_types[0] is 'linear_attention'"},
        Refusal{"AllShared", "hf/gemma4_edge", R"({"num_kv_shared_layers": 6})", "'num_kv_shared_layers' is 6"},
        Refusal{"MoreThanAllShared", "hf/gemma4_edge", R"({"num_kv_shared_layers": 7})", "'num_kv_shared_layers' is 7"},
        Refusal{"NoDonor", "hf/gemma4_edge", R"({"num_kv_shared_layers": 5})",
                "no layer of its type stands before layer 1"},
        Refusal{"DonorOfAnotherShape", "hf/gemma4_edge", R"({"per_layer_config": {"5": {"head_dim": 16}}})",
                "reads the keys of layer 3, which has 2 of 32"},
        Refusal{"PerLayerConfigIndex", "hf/gemma4_dense", R"({"per_layer_config": {"6": {"head_dim": 32}}})",
                "has an entry '6'; the model's layers are 0 to 5"},
        Refusal{"PerLayerConfigKey", "hf/gemma4_dense", R"({"per_layer_config": {"5": {"sliding_window": 4}}})",
                "per_layer_config.5 sets 'sliding_window'"},
        Refusal{"PerLayerConfigType", "hf/gemma4_dense", R"({"per_layer_config": [1]})", "must be an object"},
        Refusal{"PerLayerHeads", "hf/gemma4_dense", R"({"per_layer_config": {"5": {"num_key_value_heads": 3}}})",
                "not a multiple of 3 key heads"},
        Refusal{"GlobalHeadDim", "hf/gemma4_dense", R"({"per_layer_config": null, "global_head_dim": 64})",
                "'model.layers.5.self_attn.q_proj.weight' is bf16 [128, 64]; expected"},
        Refusal{"DoubleWide", "hf/gemma4_edge", R"({"use_double_wide_mlp": true})",
                "'model.layers.4.mlp.gate_proj.weight'"},
        Refusal{"PerLayerWidth", "hf/gemma4_edge", R"({"hidden_size_per_layer_input": 8})", "embed_tokens_per_layer"},
        Refusal{"PerLayerLeftOut", "hf/gemma4_edge", R"({"hidden_size_per_layer_input": 0})",
                "tensors that this model family does not use"},
        Refusal{"KeqVWithValues", "hf/gemma4_edge", R"({"attention_k_eq_v": true})",
                "tensors that this model family does not use (model.layers.1.self_attn.v_proj.weight"},
        Refusal{"Bidirectional", "hf/gemma4_dense", R"({"use_bidirectional_attention": "all"})",
                "use_bidirectional_attention is \"all\""},
        Refusal{"RopeWithoutType", "hf/gemma4_dense", R"({"rope_parameters": {"full_attention": {"rope_type": null}}})",
                "name no rope_type for full_attention"},
        Refusal{"RopeIsAList", "hf/gemma4_dense", R"({"rope_parameters": [1]})", "rope_parameters: must be an object"},
        Refusal{"TooManyExperts", "hf/gemma4_dense",
                R"({"enable_moe_block": true, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8})",
                "'top_k_experts' is 5"},
        Refusal{"UnknownMaths", "hf/gemma4_dense", R"({"attn_logit_softcapping": 50.0})", "attn_logit_softcapping"},
        Refusal{"NegativeSoftcap", "hf/gemma4_dense", R"({"final_logit_softcapping": -1})", "final_logit_softcapping"}),
    [](const ::testing::TestParamInfo<Refusal>& test) { return std::string(test.param.what); });

TEST(Gemma4, ALayerScalarThatIsNoNumberIsNamed) {
  const TempFolder folder;
  folder.write("config.json", config_of("hf/gemma4_dense").dump());
  std::string file = slurp(model_data("hf/gemma4_dense") / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const json header = json::parse(file.substr(8, length));
  const auto at = header["model.layers.3.layer_scalar"]["data_offsets"][0].get<size_t>();
  file[8 + length + at] = '\xff';
  file[8 + length + at + 1] = '\x7f';
  folder.write("model.safetensors", file);
  const std::string error = load_error(folder.path().string());
  EXPECT_NE(error.find("model.layers.3.layer_scalar[0] is nan"), std::string::npos) << error;
}

TEST(Gemma4, AMissingLayerScalarIsNamed) {
  const std::string model = "hf/gemma4_dense";
  const Changed changed(model, config_of(model),
                        [](const std::string& name) { return name == "model.layers.3.layer_scalar" ? "" : name; });
  const std::string error = load_error(changed.path());
  EXPECT_NE(error.find("no tensor 'model.layers.3.layer_scalar'"), std::string::npos) << error;
}

// One byte string of the committed file changed at a time.
TEST(Gemma4Gguf, RefusesMetadataThatMakesNoSense) {
  const std::string file = slurp(model_data("gguf/gemma4_edge.gguf"));
  const auto error = [](const std::string& bytes) {
    TempFolder folder;
    folder.write("m.gguf", bytes);
    return load_error((folder.path() / "m.gguf").string());
  };
  const auto without = [&](const std::string& name) {
    std::string bytes = file;
    bytes[bytes.find(name)] = 'X';
    return bytes;
  };
  // A scalar stands 4 bytes after its key, an array's elements 16 bytes (types, count).
  const auto with = [&](const std::string& key, size_t skip, uint32_t value) {
    std::string bytes = file;
    std::memcpy(bytes.data() + bytes.find(key) + key.size() + skip, &value, 4);
    return bytes;
  };
  std::string wide = with("gemma4.feed_forward_length", 16 + 4 * 4, 256);  // layers 4 and 5, the two that share
  const uint32_t twice = 256;
  const std::string widths = "gemma4.feed_forward_length";
  std::memcpy(wide.data() + wide.find(widths) + widths.size() + 16 + 5 * 4, &twice, 4);
  const struct {
    std::string bytes;
    const char* words;
  } cases[] = {
      {wide, "'blk.4.ffn_gate.weight' is BF16 [128, 64]; expected [256, 64]"},
      {without("gemma4.attention.sliding_window_pattern"), "needs the key 'gemma4.attention.sliding_window_pattern'"},
      {without("gemma4.attention.sliding_window"), "'gemma4.attention.sliding_window'"},
      {without("gemma4.attention.key_length_swa"), "keys of 32 and values of 16"},
      {without("rope_freqs.weight"), "needs the tensor rope_freqs.weight"},
      {without("blk.2.layer_output_scale.weight"), "'blk.2.layer_output_scale.weight' (model.layers.2.layer_scalar)"},
      {with("gemma4.attention.shared_kv_layers", 4, 6),
       "'gemma4.attention.shared_kv_layers' is 6; it must be from 0 to 5"},
      {with("gemma4.attention.shared_kv_layers", 4, 1), "blk.4.attn_k.weight"},
      {with("gemma4.embedding_length_per_layer_input", 4, 8), "per_layer_token_embd.weight"},
      {with("gemma4.attention.head_count_kv", 16, 0), "'gemma4.attention.head_count_kv' must be from 1"},
      {with("gemma4.attention.head_count_kv", 16, 3), "not a multiple of"},
      {with("gemma4.feed_forward_length", 20, 64), "feed_forward_length of layer 1 is 64, expected 128"},
      {with("gemma4.attention.value_length_swa", 4, 8), "keys of 16 and values of 8"},
  };
  for (const auto& c : cases) {
    const std::string message = error(c.bytes);
    EXPECT_NE(message.find(c.words), std::string::npos) << "expected '" << c.words << "' in: " << message;
  }
}

// llama.cpp's own reading of the same file. Its gelu is a table of f16 values, which costs about 4e-3.
TEST(Gemma4Gguf, MatchesLlamaCpp) {
  for (const std::string name : {"gguf/gemma4_edge", "gguf/gemma4_moe"}) {
    auto runner = load(name + ".gguf");
    ASSERT_NE(runner, nullptr);
    auto golden = formats::SafetensorsFile::open(model_data(name + ".safetensors"));
    ASSERT_TRUE(golden.has_value()) << golden.error().message;
    auto ids_view = (*golden)->tensor("input_ids");
    auto logits_view = (*golden)->tensor("logits");
    ASSERT_TRUE(ids_view && logits_view);
    std::vector<int32_t> ids(ids_view->bytes.size() / 4);
    std::vector<float> wanted(logits_view->bytes.size() / 4);
    std::memcpy(ids.data(), ids_view->bytes.data(), ids_view->bytes.size());
    std::memcpy(wanted.data(), logits_view->bytes.data(), logits_view->bytes.size());
    ASSERT_EQ(ids.size(), 32u);
    EXPECT_LE(max_abs_difference(logits_of(*runner, ids), wanted), 1e-2) << name;
  }
}

}  // namespace
}  // namespace galvani::models
