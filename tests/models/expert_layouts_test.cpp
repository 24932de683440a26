// The same experts in every layout that files have them in, and broken ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/checkpoint_edit.h"
#include "quant/checkpoint.h"
#include "quant/fp_codec.h"

namespace galvani::models {
namespace {

constexpr double kBound = 5e-5;

std::vector<float> reference_ids_logits(engine::Runner& runner, const std::string& model) {
  return logits_of(runner, expected<int32_t>(model, "input_ids_0"));
}

std::string layer(int i) { return fmt::format("model.layers.{}.", i); }

/// One projection of qwen3_moe's experts as a stack [E, rows, cols], taken out of the checkpoint.
EditedTensor take_stack(EditedCheckpoint& checkpoint, const std::string& prefix, const char* projection, int experts) {
  EditedTensor stack;
  for (int e = 0; e < experts; ++e) {
    const EditedTensor one = checkpoint.take(fmt::format("{}mlp.experts.{}.{}.weight", prefix, e, projection));
    stack.shape = {experts, one.shape[0], one.shape[1]};
    stack.bytes.insert(stack.bytes.end(), one.bytes.begin(), one.bytes.end());
  }
  return stack;
}

EditedTensor fuse(const EditedTensor& gate, const EditedTensor& up) {
  EditedTensor both{gate.dtype, {gate.shape[0], 2 * gate.shape[1], gate.shape[2]}, {}};
  const auto half = static_cast<std::ptrdiff_t>(gate.bytes.size()) / gate.shape[0];
  for (std::ptrdiff_t e = 0; e < gate.shape[0]; ++e) {
    both.bytes.insert(both.bytes.end(), gate.bytes.begin() + e * half, gate.bytes.begin() + (e + 1) * half);
    both.bytes.insert(both.bytes.end(), up.bytes.begin() + e * half, up.bytes.begin() + (e + 1) * half);
  }
  return both;
}

/// qwen3_moe with its experts (layers 1 and 2) in another layout.
EditedCheckpoint& relayout(EditedCheckpoint& checkpoint, const std::string& layout) {
  for (const int i : {1, 2}) {
    EditedTensor gate = take_stack(checkpoint, layer(i), "gate_proj", 8);
    EditedTensor up = take_stack(checkpoint, layer(i), "up_proj", 8);
    EditedTensor down = take_stack(checkpoint, layer(i), "down_proj", 8);
    const std::string at = layer(i) + "mlp.";
    if (layout == "fused") {
      checkpoint.tensors[at + "experts.gate_up_proj"] = fuse(gate, up);
      checkpoint.tensors[at + "experts.down_proj"] = down;
    } else {
      checkpoint.tensors[at + layout + ".gate_proj.weight"] = gate;
      checkpoint.tensors[at + layout + ".up_proj.weight"] = up;
      checkpoint.tensors[at + layout + ".down_proj.weight"] = down;
    }
  }
  return checkpoint;
}

class ExpertLayouts : public ::testing::TestWithParam<std::string> {};

TEST_P(ExpertLayouts, GiveTheSameLogitsBitForBit) {
  auto original = load("hf/qwen3_moe");
  EditedCheckpoint edited("hf/qwen3_moe");
  auto other = relayout(edited, GetParam()).load();
  ASSERT_TRUE(original != nullptr && other != nullptr);
  EXPECT_EQ(
      max_abs_difference(reference_ids_logits(*original, "hf/qwen3_moe"), reference_ids_logits(*other, "hf/qwen3_moe")),
      0.0);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertLayouts, ::testing::Values("fused", "switch_mlp", "experts.switch_glu", "experts"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// --- gpt-oss in MXFP4 ----------------------------------------------------------------------------------------------

/// Codes (low nibble first) and E8M0 scales of rows of 32-value groups.
struct Mxfp4 {
  std::vector<uint8_t> codes, scales;
  std::vector<float> values;  ///< what they mean
};

/// The nearest E2M1 value under the scale that the largest value of a group asks for (OCP Microscaling 1.0, 6.3).
Mxfp4 to_mxfp4(const std::vector<float>& values) {
  Mxfp4 result;
  for (size_t at = 0; at < values.size(); at += 32) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[at + i]));
    const int exponent = largest > 0 ? std::ilogb(largest) - 2 : -127;
    result.scales.push_back(static_cast<uint8_t>(exponent + 127));
    for (size_t i = 0; i < 32; ++i) {
      int best = 0;
      for (int code = 1; code < 16; ++code) {
        const auto error = [&](int c) {
          return std::fabs(std::ldexp(quant::kE2M1Doubled[c] / 2, exponent) - values[at + i]);
        };
        if (error(code) < error(best)) best = code;
      }
      result.values.push_back(std::ldexp(quant::kE2M1Doubled[best] / 2, exponent));
      if (i % 2 == 0)
        result.codes.push_back(static_cast<uint8_t>(best));
      else
        result.codes.back() = static_cast<uint8_t>(result.codes.back() | best << 4);
    }
  }
  return result;
}

/// [E, rows, cols] → [E, cols, rows].
std::vector<float> turned(const std::vector<float>& values, int64_t experts, int64_t rows, int64_t cols) {
  std::vector<float> result(values.size());
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        result[static_cast<size_t>((e * cols + c) * rows + r)] = values[static_cast<size_t>((e * rows + r) * cols + c)];
  return result;
}

/// Every second row of [E, rows, row_bytes], beginning with `first`.
std::vector<uint8_t> half_of(const std::vector<uint8_t>& values, size_t row_bytes, size_t first) {
  std::vector<uint8_t> result;
  for (size_t at = first * row_bytes; at < values.size(); at += 2 * row_bytes)
    result.insert(result.end(), values.begin() + static_cast<std::ptrdiff_t>(at),
                  values.begin() + static_cast<std::ptrdiff_t>(at + row_bytes));
  return result;
}

/// The tiny gpt-oss (4 layers, 4 experts, hidden 64, experts of 64) with its experts rounded to MXFP4: as bf16, as
/// Hugging Face stores MXFP4, and as mlx-lm does.
struct GptOssTwins {
  EditedCheckpoint dense{"hf/gpt_oss"}, blocks{"hf/gpt_oss"}, mlx{"hf/gpt_oss"};
  GptOssTwins() {
    for (int i = 0; i < 4; ++i) {
      const std::string at = layer(i) + "mlp.experts.";
      // By rows of [E, out, in], as MXFP4 groups run.
      const Mxfp4 gate_up = to_mxfp4(turned(dense.take(at + "gate_up_proj").floats(), 4, 64, 128));
      const Mxfp4 down = to_mxfp4(turned(dense.take(at + "down_proj").floats(), 4, 64, 64));
      dense.tensors[at + "gate_up_proj"] = EditedTensor::bf16({4, 64, 128}, turned(gate_up.values, 4, 128, 64));
      dense.tensors[at + "down_proj"] = EditedTensor::bf16({4, 64, 64}, turned(down.values, 4, 64, 64));
      for (EditedCheckpoint* each : {&blocks, &mlx}) each->take(at + "gate_up_proj"), each->take(at + "down_proj");
      blocks.tensors[at + "gate_up_proj_blocks"] = EditedTensor::raw(DType::kU8, {4, 128, 2, 16}, gate_up.codes);
      blocks.tensors[at + "gate_up_proj_scales"] = EditedTensor::raw(DType::kU8, {4, 128, 2}, gate_up.scales);
      blocks.tensors[at + "down_proj_blocks"] = EditedTensor::raw(DType::kU8, {4, 64, 2, 16}, down.codes);
      blocks.tensors[at + "down_proj_scales"] = EditedTensor::raw(DType::kU8, {4, 64, 2}, down.scales);
      add_mlx(at, gate_up, down);
    }
    // Keys that the released files have.
    blocks.config["experts_per_token"] = 2;
    blocks.config["initial_context_length"] = 64;
    blocks.config["swiglu_limit"] = 7.0;
    blocks.config["quantization_config"] = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.lm_head"}}};
    mlx.config["quantization"] = {{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}};
  }

 private:
  void add_mlx(const std::string& at, const Mxfp4& gate_up, const Mxfp4& down) {
    const std::vector<float> bias = mlx.take(at + "gate_up_proj_bias").floats();
    for (const size_t half : {size_t{0}, size_t{1}}) {
      const std::string name = at + (half == 0 ? "gate_proj" : "up_proj");
      mlx.tensors[name + ".weight"] = EditedTensor::raw(DType::kU32, {4, 64, 8}, half_of(gate_up.codes, 32, half));
      mlx.tensors[name + ".scales"] = EditedTensor::raw(DType::kU8, {4, 64, 2}, half_of(gate_up.scales, 2, half));
      std::vector<float> own;
      for (size_t i = half; i < bias.size(); i += 2) own.push_back(bias[i]);
      mlx.tensors[name + ".bias"] = EditedTensor::bf16({4, 64}, own);
    }
    mlx.tensors[at + "down_proj.weight"] = EditedTensor::raw(DType::kU32, {4, 64, 8}, down.codes);
    mlx.tensors[at + "down_proj.scales"] = EditedTensor::raw(DType::kU8, {4, 64, 2}, down.scales);
    mlx.tensors[at + "down_proj.bias"] = mlx.take(at + "down_proj_bias");
  }
};

TEST(GptOssMxfp4, EqualsItsDequantisedTwin) {
  GptOssTwins twins;
  auto dense = twins.dense.load(), blocks = twins.blocks.load(), mlx = twins.mlx.load();
  ASSERT_TRUE(dense != nullptr && blocks != nullptr && mlx != nullptr);
  const auto wanted = reference_ids_logits(*dense, "hf/gpt_oss");
  const auto from_blocks = reference_ids_logits(*blocks, "hf/gpt_oss");
  EXPECT_LE(max_abs_difference(from_blocks, wanted), kBound);
  EXPECT_EQ(max_abs_difference(reference_ids_logits(*mlx, "hf/gpt_oss"), from_blocks), 0.0);
  // Rounded to 4 bits they are another model than the original, but not far from it.
  const double distance = max_abs_difference(wanted, expected<float>("hf/gpt_oss", "logits_0"));
  EXPECT_GT(distance, 1e-3);
  EXPECT_LT(distance, 10.0);
  // And what the products read is 4 bits wide.
  EXPECT_LT(blocks->ops().weight_bytes(), dense->ops().weight_bytes());
}

// The GGUF's experts are rounded by the gguf package; the twin holds the values that its blocks mean.
TEST(GptOssMxfp4, GgufEqualsItsDequantisedTwin) {
  auto gguf = quant::Checkpoint::open(model_data("gguf/gpt-oss-mxfp4.gguf"));
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  EditedCheckpoint twin("hf/gpt_oss");
  for (int i = 0; i < 4; ++i) {
    const std::string at = layer(i) + "mlp.experts.";
    std::vector<float> part[3], both(4 * 128 * 64);
    for (const auto& [name, values] :
         {std::pair{"gate_proj", &part[0]}, {"up_proj", &part[1]}, {"down_proj", &part[2]}}) {
      auto matrix = (*gguf)->matrix(at + name, 4 * 64, 64);
      ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
      EXPECT_EQ((*matrix)->kind(), quant::MatrixKind::kMxfp4);
      values->resize(4 * 64 * 64);
      ASSERT_TRUE((*matrix)->dequant_rows(0, 4 * 64, values->data()).has_value());
    }
    for (size_t row = 0; row < 4 * 64; ++row)
      for (size_t half = 0; half < 2; ++half)
        std::copy_n(part[half].data() + row * 64, 64, both.data() + (2 * row + half) * 64);
    twin.tensors[at + "gate_up_proj"] = EditedTensor::bf16({4, 64, 128}, turned(both, 4, 128, 64));
    twin.tensors[at + "down_proj"] = EditedTensor::bf16({4, 64, 64}, turned(part[2], 4, 64, 64));
  }
  LoadOptions options;
  options.model = model_data("gguf/gpt-oss-mxfp4.gguf").string();
  options.act = "f32";
  auto runner = engine::Runner::load(options);
  ASSERT_TRUE(runner.has_value()) << runner.error().message;
  auto wanted = twin.load();
  ASSERT_NE(wanted, nullptr);
  EXPECT_LE(
      max_abs_difference(reference_ids_logits(**runner, "hf/gpt_oss"), reference_ids_logits(*wanted, "hf/gpt_oss")),
      kBound);
}

// --- broken experts ------------------------------------------------------------------------------------------------

void expect_error(EditedCheckpoint& checkpoint, const std::vector<std::string>& words) {
  const std::string message = checkpoint.load_error();
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "expected '" << word << "' in: " << message;
}

TEST(BrokenExperts, AreNamed) {
  EditedCheckpoint missing("hf/qwen3_moe");
  missing.take("model.layers.1.mlp.experts.3.up_proj.weight");
  expect_error(missing, {"model.layers.1.mlp.experts.3.up_proj.weight"});

  EditedCheckpoint none("hf/qwen3_moe");
  for (int e = 0; e < 8; ++e)
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      none.take(fmt::format("model.layers.2.mlp.experts.{}.{}.weight", e, name));
  expect_error(none, {"no experts under model.layers.2.mlp"});

  EditedCheckpoint one_more("hf/qwen3_moe");
  one_more.config["num_local_experts"] = 7;
  expect_error(one_more, {"model.layers.1.mlp.gate", "[7, 64]"});

  EditedCheckpoint narrow("hf/qwen3_moe");
  narrow.config["moe_intermediate_size"] = 32;
  expect_error(narrow, {"model.layers.1.mlp.experts.0.gate_proj", "[32, 64]"});

  EditedCheckpoint top_k("hf/qwen3_moe");
  top_k.config["num_experts_per_tok"] = 9;
  expect_error(top_k, {"'num_experts_per_tok' is 9", "8 experts to choose from; allowed: 1 to 8"});
  EditedCheckpoint other_name("hf/gpt_oss");
  other_name.config["experts_per_token"] = 5;
  expect_error(other_name, {"'experts_per_token' is 5", "4 experts to choose from; allowed: 1 to 4"});
  EditedCheckpoint reach("hf/deepseek_v3");
  reach.config["num_experts_per_tok"] = 5;
  expect_error(reach, {"num_experts_per_tok is 5", "topk_group 2 of n_group 4 groups of 2", "allowed: 1 to 4"});

  EditedCheckpoint two_counts("hf/qwen3_moe");
  two_counts.config["num_experts"] = 4;
  expect_error(two_counts, {"num_experts is 4, num_local_experts 8"});

  EditedCheckpoint no_router("hf/mixtral");
  no_router.take("model.layers.0.block_sparse_moe.gate.weight");
  expect_error(no_router, {"model.layers.0.block_sparse_moe.gate.weight"});
}

TEST(BrokenExperts, MisshapedStacksAreNamed) {
  // As many elements, but the experts are not the first dimension.
  EditedCheckpoint swapped("hf/qwen3_moe");
  relayout(swapped, "fused");
  swapped.tensors["model.layers.1.mlp.experts.gate_up_proj"].shape = {128, 8, 64};
  expect_error(swapped, {"model.layers.1.mlp.experts.gate_up_proj", "[128, 8, 64]", "a stack of 8 experts"});

  EditedCheckpoint flat("hf/qwen3_moe");
  relayout(flat, "switch_mlp");
  flat.tensors["model.layers.2.mlp.switch_mlp.down_proj.weight"].shape = {512, 64};
  expect_error(flat, {"model.layers.2.mlp.switch_mlp.down_proj.weight", "[512, 64]"});

  GptOssTwins twins;
  twins.blocks.tensors["model.layers.1.mlp.experts.down_proj_blocks"].shape = {4, 64, 1, 32};
  expect_error(twins.blocks, {"model.layers.1.mlp.experts.down_proj_blocks", "blocks of 16 bytes"});
  twins.blocks.tensors["model.layers.1.mlp.experts.down_proj_blocks"].shape = {4, 64, 2, 16};
  twins.blocks.take("model.layers.1.mlp.experts.down_proj_scales");
  expect_error(twins.blocks, {"model.layers.1.mlp.experts.down_proj_scales"});
}

TEST(BrokenExperts, RouterOfAnUnknownWidthIsNamed) {
  EditedCheckpoint seven("mlx/qwen3_moe-4-32-affine");  // the router is 8 bits in groups of 64
  EditedTensor& codes = seven.tensors.at("model.layers.1.mlp.gate.weight");
  codes.shape[1] = codes.shape[1] * 7 / 8;
  codes.bytes.resize(codes.bytes.size() * 7 / 8);
  expect_error(seven, {"model.layers.1.mlp.gate", "7-bit"});

  EditedCheckpoint odd("mlx/qwen3_moe-4-32-affine");
  odd.tensors.at("model.layers.1.mlp.gate.weight").shape = {16, 8};
  expect_error(odd, {"model.layers.1.mlp.gate"});
}

TEST(BrokenExperts, ScalesThatAreNotNumbersAreNamed) {
  for (const char* part : {"scales", "biases"}) {
    EditedCheckpoint nan("mlx/qwen3_moe-4-32-affine");
    auto& bytes = nan.tensors.at(std::string("model.layers.2.mlp.switch_mlp.down_proj.") + part).bytes;
    const uint16_t bits = 0x7fc0;
    std::memcpy(bytes.data() + (5 * 64 * 2 + 7 * 2 + 1) * 2, &bits, 2);  // expert 5, row 7, second group
    expect_error(nan, {"model.layers.2.mlp.switch_mlp.down_proj", "row 327, group 1 is not a finite number"});
  }
  EditedCheckpoint e8m0("mlx/qwen3_moe-4-32-mxfp4");
  e8m0.tensors.at("model.layers.1.mlp.switch_mlp.up_proj.scales").bytes[3] = std::byte{255};
  expect_error(e8m0, {"model.layers.1.mlp.switch_mlp.up_proj", "the scale of row 1"});
}

// Weights that are NaN load (they are not looked through), and the first step says what it met.
TEST(BrokenExperts, ARouterThatIsNotANumberStopsTheStepByName) {
  EditedCheckpoint nan("hf/qwen3_moe");
  const uint16_t bits = 0x7fc0;
  std::memcpy(nan.tensors.at("model.layers.1.mlp.gate.weight").bytes.data() + 2 * (3 * 64 + 5), &bits, 2);
  auto runner = nan.load();
  ASSERT_NE(runner, nullptr);
  const auto status =
      runner->all_logits(std::vector<int32_t>{3, 4, 5}, 8, [](int64_t, int64_t, const float*) -> Status { return {}; });
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("layer 1"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("expert 3"), std::string::npos) << status.error().message;
}

TEST(Registry, AnUnknownFamilyIsToldWhatThereIs) {
  for (const char* name : {"jamba", "nemotron_h", "exaone_moe", "deepseek_v4", "something_else"}) {
    EditedCheckpoint unknown("hf/llama");
    unknown.config["model_type"] = name;
    expect_error(unknown, {fmt::format("model_type '{}' is not supported", name), "qwen3_moe", "mixtral", "olmoe",
                           "gpt_oss", "not supported: jamba, nemotron_h, exaone_moe, deepseek_v2, deepseek_v4"});
  }
  EditedCheckpoint strange("hf/llama");
  strange.config["model_type"] = 3;
  expect_error(strange, {"model_type is 3", "name of a family", "mixtral"});
  strange.config.erase("model_type");
  expect_error(strange, {"has no model_type", "mixtral"});
}

}  // namespace
}  // namespace galvani::models
