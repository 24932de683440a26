#include "formats/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>

namespace galvani::formats {
namespace {

using nlohmann::json;

Result<RopeParams> parse(const char* text, const std::string& layer = "full_attention",
                         const RopeDefaults& defaults = {}) {
  const json config = json::parse(text);
  ConfigReader reader(config, "config.json");
  return parse_rope(reader, layer, defaults);
}
RopeParams parsed(const char* text, const std::string& layer = "full_attention", const RopeDefaults& defaults = {}) {
  auto params = parse(text, layer, defaults);
  EXPECT_TRUE(params) << params.error().message;
  return params ? *params : RopeParams{};
}
void expect_error(const char* text, const std::string& words) {
  auto params = parse(text);
  ASSERT_FALSE(params) << text;
  EXPECT_NE(params.error().message.find(words), std::string::npos)
      << "expected '" << words << "' in: " << params.error().message;
}
/// {pair, frequency}: numpy float64 evaluations of the formulas of transformers' rope utilities, rounded to f32.
void expect_frequencies(const RopeParams& params, int64_t head_dim,
                        std::initializer_list<std::pair<size_t, float>> expected) {
  auto found = rope_inv_freq(params, head_dim);
  ASSERT_TRUE(found) << found.error().message;
  for (const auto& [pair, frequency] : expected) EXPECT_NEAR((*found)[pair] / frequency, 1.0f, 2e-7f) << pair;
}

TEST(RopeConfig, BothGenerationsOfKeys) {
  const auto old_keys =
      parsed(R"({"rope_theta":500000.0,"rope_scaling":{"factor":8.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
      "original_max_position_embeddings":8192,"rope_type":"llama3"}})");
  const auto new_keys =
      parsed(R"({"rope_parameters":{"rope_theta":500000.0,"factor":8.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
      "original_max_position_embeddings":8192,"rope_type":"llama3"}})");
  for (const auto& params : {old_keys, new_keys}) {
    EXPECT_EQ(params.type, RopeType::kLlama3);
    EXPECT_EQ(params.theta, 500000.0);
    expect_frequencies(params, 128,
                       {{0, 1.0f},
                        {20, 0.0165604409f},
                        {28, 0.00321144611f},
                        {32, 0.000524846138f},
                        {36, 7.78465546e-05f},
                        {40, 3.42810235e-05f},
                        {63, 3.06892588e-07f}});
    EXPECT_EQ(rope_attention_scale(params), 1.0);
  }
  EXPECT_EQ(parsed(R"({"rope_theta":10000.0,"rope_scaling":{"type":"linear","factor":2.0}})").type, RopeType::kLinear)
      << "older spelling";
  EXPECT_EQ(
      parsed(
          R"({"rope_parameters":{"type":"default","rope_theta":1e7,"partial_rotary_factor":0.25},"rope_scaling":null})")
          .theta,
      1e7);
  EXPECT_EQ(parsed("{}", "full_attention", {.theta = 1e6}).theta, 1e6);
  EXPECT_EQ(parsed(R"({"rope_theta":7.0,"rope_scaling":{"rope_type":"mrope","mrope_section":[1,2]}})").type,
            RopeType::kDefault);
}

TEST(RopeConfig, LayerTypesOfGemma3) {
  const char* old_keys =
      R"({"rope_theta":1e6,"rope_local_base_freq":10000,"rope_scaling":{"rope_type":"linear","factor":8}})";
  const char* new_keys = R"({"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":1e6},
      "sliding_attention":{"rope_type":"default","rope_theta":10000}}})";
  for (const char* text : {old_keys, new_keys}) {
    const auto full = parsed(text), sliding = parsed(text, "sliding_attention", {.local_theta = 10000.0});
    EXPECT_EQ(full.type, RopeType::kLinear);
    EXPECT_EQ(full.theta, 1e6);
    EXPECT_EQ(full.factor, 8.0);
    EXPECT_EQ(sliding.type, RopeType::kDefault);
    EXPECT_EQ(sliding.theta, 1e4);
    EXPECT_EQ(sliding.factor, 1.0);
  }
  const auto local = parsed(R"({"rope_theta":1e6})", "sliding_attention", {.theta = 1e6, .local_theta = 1e4});
  EXPECT_EQ(local.theta, 1e4) << "the family's default, not the full layers' theta";
  EXPECT_EQ(parsed(R"({"rope_theta":1e6})", "sliding_attention").theta, 1e6) << "families with one theta";
  auto missing = parse(R"({"rope_parameters":{"full_attention":{"rope_theta":1e6}}})", "sliding_attention");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("none for 'sliding_attention'"), std::string::npos) << missing.error().message;
}

TEST(RopeConfig, Yarn) {
  const auto gpt_oss =
      parsed(R"({"rope_theta":150000,"rope_scaling":{"rope_type":"yarn","factor":32.0,"beta_fast":32.0,"beta_slow":1.0,
      "truncate":false,"original_max_position_embeddings":4096}})");
  expect_frequencies(gpt_oss, 64,
                     {{0, 1.0f},
                      {5, 0.155322984f},
                      {8, 0.0508132763f},
                      {12, 0.00679495931f},
                      {17, 0.000129318694f},
                      {20, 1.8188337e-05f},
                      {31, 3.0235114e-07f}});
  EXPECT_NEAR(rope_attention_scale(gpt_oss), 1.3465735902799727, 1e-15);
  const auto truncated =
      parsed(R"({"rope_theta":1e6,"max_position_embeddings":32768,"rope_scaling":{"rope_type":"yarn","factor":4}})");
  expect_frequencies(truncated, 128,
                     {{0, 1.0f},
                      {20, 0.013335214f},
                      {30, 0.00106436096f},
                      {40, 4.44569851e-05f},
                      {45, 1.510741e-05f},
                      {63, 3.10234441e-07f}});
  const auto given = parsed(
      R"({"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":64,"attention_factor":0.5}})");
  EXPECT_EQ(rope_attention_scale(given), 0.5);
  const auto mscale = parsed(R"({"rope_scaling":{"rope_type":"yarn","factor":40,"original_max_position_embeddings":4096,
      "mscale":1.0,"mscale_all_dim":0.5}})");
  EXPECT_NEAR(rope_attention_scale(mscale), (0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1), 1e-15);
}

TEST(RopeConfig, PartialAndProportional) {
  auto partial = parsed(R"({"rope_parameters":{"rope_type":"default","rope_theta":1e7,"partial_rotary_factor":0.25}})");
  EXPECT_EQ(*rotary_dims(partial, 256), 64);
  EXPECT_EQ(rope_inv_freq(partial, 256)->size(), 32u);
  EXPECT_NEAR((*rope_inv_freq(partial, 256))[1], std::pow(1e7, -2.0 / 64), 1e-7);
  auto proportional =
      parsed(R"({"rope_parameters":{"rope_type":"proportional","rope_theta":1e6,"partial_rotary_factor":0.25}})");
  const auto frequencies = *rope_inv_freq(proportional, 512);
  ASSERT_EQ(frequencies.size(), 256u);
  expect_frequencies(proportional, 512, {{0, 1.0f}, {1, 0.947463512f}, {63, 0.0333762467f}});
  for (size_t i = 64; i < 256; ++i) EXPECT_EQ(frequencies[i], 0.0f);
  partial.partial_rotary_factor = 0.1;
  EXPECT_FALSE(rotary_dims(partial, 250)) << "25 dimensions are odd";
  EXPECT_FALSE(rotary_dims(partial, 4)) << "no dimension is left";
  EXPECT_FALSE(rotary_dims(RopeParams{}, int64_t{1} << 31));
  EXPECT_FALSE(rotary_dims(RopeParams{}, 0));
  EXPECT_FALSE(rotary_dims(RopeParams{}, 7));
}

TEST(RopeConfig, RefusesWhatItDoesNotKnow) {
  for (const char* type : {"dynamic", "longrope", "su", "fancy"})
    expect_error((std::string(R"({"rope_scaling":{"rope_type":")") + type + R"(","factor":2}})").c_str(),
                 std::string("rope type '") + type +
                     "' is not supported; supported are default, linear, llama3, yarn, proportional");
  expect_error(R"({"rope_scaling":{"rope_type":"linear"}})", "needs the key 'factor'");
  expect_error(R"({"rope_scaling":{"rope_type":"llama3","factor":8}})", "needs the key 'low_freq_factor'");
  expect_error(
      R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":8}})",
      "must be above");
  expect_error(R"({"rope_scaling":{"rope_type":"yarn","factor":8}})",
               "needs the key 'original_max_position_embeddings'");
  expect_error(R"({"rope_scaling":{"rope_type":"linear","factor":0}})", "'factor' is 0");
  expect_error(R"({"rope_scaling":{"rope_type":"linear","factor":-1}})", "'factor' is -1");
  expect_error(R"({"rope_scaling":{"rope_type":3}})", "must be a string");
  expect_error(R"({"rope_scaling":[]})", "must be an object");
  expect_error(R"({"rope_parameters":7})", "must be an object");
  expect_error(
      R"({"rope_parameters":{"rope_type":"default","rope_theta":1e4},"rope_scaling":{"type":"linear","factor":4}})",
      "rope_scaling says linear with factor 4, rope_parameters default with factor 1");
  expect_error(R"({"rope_theta":0})", "'rope_theta' is 0");
  expect_error(R"({"rope_theta":"x"})", "'rope_theta' is");
  expect_error(R"({"partial_rotary_factor":2})", "'partial_rotary_factor' is 2");
}

TEST(RopeConfig, Factors) {
  std::vector<float> frequencies = {1.0f, 0.5f};
  ASSERT_TRUE(apply_rope_factors(frequencies, {1.0f, 8.0f}));
  EXPECT_EQ(frequencies, (std::vector<float>{1.0f, 0.0625f}));
  EXPECT_FALSE(apply_rope_factors(frequencies, {1.0f}));
  EXPECT_FALSE(apply_rope_factors(frequencies, {1.0f, 0.0f}));
  EXPECT_FALSE(apply_rope_factors(frequencies, {1.0f, NAN}));
}

}  // namespace
}  // namespace galvani::formats
