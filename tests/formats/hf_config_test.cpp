#include "formats/hf_config.h"

#include <gtest/gtest.h>

#include "formats/bytes.h"
#include "formats/json_file.h"

namespace galvani::formats {
namespace {

using nlohmann::json;

template <typename T>
void expect_error(const Result<T>& result, const std::string& words) {
  ASSERT_FALSE(result) << "expected: " << words;
  EXPECT_NE(result.error().message.find(words), std::string::npos)
      << "expected '" << words << "' in: " << result.error().message;
}

TEST(Json, HasLimits) {
  EXPECT_TRUE(parse_json(R"({"a":[1,{"b":"]]]]["}]})", "x"));
  expect_error(parse_json("{\"a\":", "x.json"), "x.json: not valid JSON");
  expect_error(parse_json("", "x.json"), "x.json: not valid JSON: the file is empty");
  expect_error(parse_json("[1,", "x.json"), "x.json: not valid JSON: parse error at line 1");
  const auto flood = parse_json("[\"" + std::string(100000, 'x') + "\xff", "x.json");
  expect_error(flood, "parse error at line 1, column 100003");
  EXPECT_LT(flood.error().message.size(), 200u) << "the file is not quoted";
  expect_error(parse_json("{\"a\":\"\xff\"}", "x.json"), "not valid JSON");
  expect_error(parse_json(std::string(100000, '['), "x.json"), "nested more than 64");
  expect_error(parse_json("[1e999]", "x.json"), "not valid JSON");
}

TEST(MergeTextConfig, TakesWhatTheInnerObjectLacks) {
  auto merged = merge_text_config(
      json::parse(R"({"model_type":"outer","tie_word_embeddings":true,"eos_token_id":[1,2],"hidden_size":9,
      "text_config":{"model_type":"inner","hidden_size":8,"eos_token_id":null}})"),
      "x");
  ASSERT_TRUE(merged);
  EXPECT_EQ((*merged)["model_type"], "inner");
  EXPECT_EQ((*merged)["hidden_size"], 8);
  EXPECT_EQ((*merged)["tie_word_embeddings"], true);
  EXPECT_EQ((*merged)["eos_token_id"], json::array({1, 2}));
  expect_error(merge_text_config(json::array(), "x"), "must hold a JSON object");
  expect_error(merge_text_config(json{{"text_config", 3}}, "x"), "text_config must be an object");
}

TEST(HfConfig, EosIdsOfTheGenerationConfigWin) {
  auto config = make_hf_config(json{{"eos_token_id", 7}}, json{{"eos_token_id", {1, 106}}}, "x");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->eos_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(make_hf_config(json{{"eos_token_id", 7}}, json::object(), "x")->eos_ids, std::vector<int32_t>{7});
  EXPECT_TRUE(make_hf_config(json::object(), json::object(), "x")->eos_ids.empty());
  expect_error(make_hf_config(json{{"eos_token_id", -1}}, json::object(), "x"), "eos_token_id");
  expect_error(make_hf_config(json{{"eos_token_id", 1ull << 40}}, json::object(), "x"), "eos_token_id");
  expect_error(make_hf_config(json{{"eos_token_id", ~0ull}}, json::object(), "x"), "eos_token_id");
  expect_error(make_hf_config(json{{"eos_token_id", {1, "2"}}}, json::object(), "x"), "eos_token_id");
}

TEST(ConfigReader, TypedGettersWithBounds) {
  const json config =
      json::parse(R"({"i":3,"f":3.0,"x":3.5,"neg":-1,"huge":18446744073709551615,"s":"text","b":true,"n":null,
      "list":["a","b"],"ints":[1,2],"big":2147483648})");
  ConfigReader reader(config, "config.json");
  EXPECT_EQ(*reader.integer("i", 0, 10), 3);
  EXPECT_EQ(*reader.integer("f", 0, 10), 3);
  EXPECT_EQ(*reader.integer("n", 0, 10, 5), 5);
  EXPECT_EQ(*reader.integer("absent", 0, 10, 6), 6);
  EXPECT_EQ(*reader.number("x", 0, 10), 3.5);
  EXPECT_EQ(*reader.boolean("b"), true);
  EXPECT_EQ(*reader.string("s"), "text");
  EXPECT_EQ(reader.strings("list")->size(), 2u);
  EXPECT_TRUE(reader.strings("absent")->empty());
  EXPECT_EQ(*reader.integers("ints", 0, 5), (std::vector<int64_t>{1, 2}));
  expect_error(reader.integer("absent", 0, 10), "config.json: needs the key 'absent'");
  expect_error(reader.integer("x", 0, 10), "'x' is 3.5; it must be an integer from 0 to 10");
  expect_error(reader.integer("neg", 0, 10), "'neg' is -1");
  expect_error(reader.integer("huge", 0, INT64_MAX), "'huge' is 18446744073709551615");
  expect_error(reader.dimension("big"), "'big' is 2147483648");
  expect_error(reader.dimension("neg"), "'neg' is -1");
  expect_error(reader.integer("s", 0, 10), "'s' is \"text\"");
  expect_error(reader.number("s", 0, 10), "'s' is \"text\"");
  expect_error(reader.number("x", 0, 1), "it must be a number from 0 to 1");
  expect_error(reader.boolean("i"), "it must be true or false");
  expect_error(reader.string("i"), "it must be a string");
  expect_error(reader.strings("ints"), "'ints' holds 1");
  expect_error(reader.integers("list", 0, 5), "'list' holds \"a\"");
  expect_error(reader.integers("ints", 0, 1), "'ints' holds 2");
  EXPECT_TRUE(reader.has("i"));
  EXPECT_FALSE(reader.has("n"));
  EXPECT_TRUE(reader.raw("absent").is_null());
}

Status finish_with(const char* text, std::initializer_list<const char*> read = {}) {
  const json config = json::parse(text);
  ConfigReader reader(config, "config.json");
  for (const char* key : read) reader.mark_read(key);
  return reader.finish();
}

TEST(ConfigReader, KeysThatChangeTheResultsMustBeRead) {
  for (const char* text : {R"({"logit_scale":0.5})",
                           R"({"residual_multiplier":0.22})",
                           R"({"embedding_multiplier":12})",
                           R"({"attention_multiplier":0.01})",
                           R"({"logits_scaling":8})",
                           R"({"clip_qkv":8})",
                           R"({"attn_logit_softcapping":50})",
                           R"({"final_logit_softcapping":30})",
                           R"({"partial_rotary_factor":0.5})",
                           R"({"hidden_act":"gelu"})",
                           R"({"sliding_window":4096})",
                           R"({"sliding_window":4096,"use_sliding_window":true})",
                           R"({"layer_types":["full_attention","sliding_attention"]})",
                           R"({"attention_bias":true})",
                           R"({"mlp_bias":true})",
                           R"({"num_experts":8})",
                           R"({"num_local_experts":8,"num_experts_per_tok":2})",
                           R"({"query_pre_attn_scalar":168})",
                           R"({"rope_scaling":{"rope_type":"yarn","factor":4}})",
                           R"({"rope_theta":10000})",
                           R"({"max_window_layers":2,"use_sliding_window":true})",
                           R"({"head_dim":128})",
                           R"({"kv_lora_rank":512})",
                           R"({"tie_word_embeddings":true})",
                           R"({"no_rope_layers":[1,0]})",
                           R"({"use_qk_norm":true})"})
    EXPECT_FALSE(finish_with(text)) << text;
  auto status = finish_with(R"({"logit_scale":0.5,"clip_qkv":8})");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("'clip_qkv' = 8, 'logit_scale' = 0.5"), std::string::npos)
      << status.error().message;
  EXPECT_TRUE(finish_with(R"({"logit_scale":0.5})", {"logit_scale"}));
}

TEST(ConfigReader, NeutralValuesPass) {
  EXPECT_TRUE(finish_with(
      R"({"logit_scale":1.0,"residual_multiplier":1,"clip_qkv":null,"attn_logit_softcapping":null,"attention_bias":false,
      "sliding_window":4096,"use_sliding_window":false,"max_window_layers":28,"layer_types":["full_attention","full_attention"],"num_experts":0,
      "num_experts_per_tok":2,"rope_scaling":null,"partial_rotary_factor":1.0,"mlp_only_layers":[],"rope_interleaved":false,
      "is_llama_config":true,"torch_dtype":"bfloat16","architectures":["X"],"unheard_of":3})"));
}

TEST(ConfigReader, UnknownKeysAreListed) {
  const json config = json::parse(R"({"unheard_of":3,"torch_dtype":"bfloat16","other":null,"read":1,"num_experts":0})");
  ConfigReader reader(config, "config.json");
  EXPECT_EQ(*reader.integer("read", 0, 2), 1);
  EXPECT_EQ(reader.unknown_keys(), std::vector<std::string>{"unheard_of"});
}

TEST(HfConfig, TinyModelsHaveNoUnknownKeys) {
  for (const char* family : {"llama", "qwen2", "qwen3", "gemma3"}) {
    auto config = read_hf_config(std::filesystem::path(GALVANI_TEST_DATA) / "models" / "hf" / family);
    ASSERT_TRUE(config) << config.error().message;
    ConfigReader reader(config->config, family);
    for (const char* key : {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "intermediate_size", "head_dim", "rms_norm_eps"})
      reader.mark_read(key);
    EXPECT_EQ(reader.unknown_keys(), std::vector<std::string>{}) << family;
  }
}

}  // namespace
}  // namespace galvani::formats
