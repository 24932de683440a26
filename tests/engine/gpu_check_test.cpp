// What a part cannot run is refused before anything is uploaded: whole models asked of the table of parts, no GPU here.
#include "engine/gpu_check.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "device/parts.h"

namespace galvani::engine {
namespace {

Status check(const std::string& model, const std::string& part, exec::OpsOptions options = {}, DType kv = DType::kF16,
             int64_t longest = 512) {
  const auto path = std::filesystem::path(GALVANI_TEST_DATA) / "models" / model;
  const auto checkpoint = quant::Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.has_value()) << path;
  const DeviceCaps& caps = find_part(part)->caps;
  options.arithmetic = exec::gpu_arithmetic(caps);
  const auto choice = exec::gpu_choice(caps, part, options, kv);
  if (!choice) return tl::unexpected<Error>(choice.error());
  const auto bytes = check_gpu_model(**checkpoint, caps, *choice, longest);
  if (!bytes) return tl::unexpected<Error>(bytes.error());
  EXPECT_GT(*bytes, 0);
  return {};
}

void expect_refusal(const Status& status, std::initializer_list<const char*> needles) {
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported) << "only this makes --device auto take the CPU";
  for (const char* needle : needles)
    EXPECT_NE(status.error().message.find(needle), std::string::npos) << needle << "\n" << status.error().message;
}

TEST(GpuCheck, DenseModelsRunOnEveryPartFromTuringOn) {
  size_t parts = 0;
  for (const Part& part : known_parts()) {
    if (part.caps.cc == 0 || !part.caps.has(Feature::kLdmatrix)) continue;
    ++parts;
    for (const char* model : {"hf/llama", "hf/qwen2", "hf/qwen3", "hf/gemma3", "mlx/llama-4-64-affine"}) {
      const DType kv = part.caps.has(Feature::kBf16) ? DType::kBF16 : DType::kF16;
      const Status status = check(model, part.key, {}, kv);
      EXPECT_TRUE(status.has_value()) << model << " on " << part.key << ": " << status.error().message;
      EXPECT_TRUE(check(model, part.key, {.batch_invariant = true}, kv).has_value()) << model << " on " << part.key;
    }
  }
  EXPECT_GT(parts, 10u);
}

TEST(GpuCheck, VoltaIsRefusedAtLoadWithTheReason) {
  expect_refusal(check("mlx/llama-4-64-affine", "v100"),
                 {"compute capability 7.0", "self_attn.q_proj of layer 0", "4 bits, group 64", "no arm of qmatmul",
                  "it needs m16n8k8 products (7.5)"});
  // Dense weights multiply through cuBLASLt there, but attention has no kernel.
  expect_refusal(check("hf/llama", "v100"), {"attention of layer 0", "built for 7.5 and newer"});
}

TEST(GpuCheck, FamiliesThatAreNotOnCudaYetAreRefusedByName) {
  expect_refusal(check("hf/mixtral", "h200"), {"experts", "of layer 0", "not on CUDA yet", "--device cpu"});
  expect_refusal(check("hf/qwen3_5", "h200"), {"gated delta net of layer 0", "not on CUDA yet", "--device cpu"});
  expect_refusal(check("hf/deepseek_v3", "h200"), {"latent attention of layer 0", "not on CUDA yet"});
}

TEST(GpuCheck, AForcedArmMustRunEveryStep) {
  const auto forced = [](const char* arm, const char* part, int64_t longest, const char* model) {
    return check(model, part, {.arms = {{"qmatmul", arm}}}, DType::kF16, longest);
  };
  constexpr const char* kModel = "mlx/llama-4-64-affine";
  EXPECT_TRUE(forced("mma", "t4", 512, kModel).has_value());
  EXPECT_TRUE(forced("wgmma", "h200", 512, kModel).has_value());
  EXPECT_TRUE(forced("expand", "a100", 512, kModel).has_value());
  EXPECT_TRUE(forced("few-bulk", "h200", 8, kModel).has_value());
  expect_refusal(forced("few-bulk", "h200", 512, kModel),
                 {"--arm qmatmul=few-bulk", "it takes at most 8 tokens", "-b 8"});
  expect_refusal(forced("wgmma", "a100", 512, kModel), {"--arm qmatmul=wgmma", "it needs wgmma (9.0a)"});
  expect_refusal(forced("mma", "h200", 512, "hf/llama"), {"no quantized product"});
  expect_refusal(check(kModel, "h200", {.arms = {{"attention", "tiles"}}}),
                 {"--arm attention=tiles", "head width is not 64, 128 or 256"});
  // Before anything is uploaded, not at the first step.
  const std::vector<std::pair<std::string, std::string>> one_kernel = {{"step", "one-kernel"}};
  expect_refusal(check(kModel, "h200", {.arms = one_kernel}, DType::kBF16),
                 {"--arm step=one-kernel", "columns are no multiple of 256", "leave it out"});
  expect_refusal(check("hf/llama", "h200", {.arms = one_kernel}, DType::kBF16), {"weights that are not quantized"});
  expect_refusal(check(kModel, "a100", {.arms = one_kernel}, DType::kBF16), {"--arm step=one-kernel", "from 9.0 on"});
}

}  // namespace
}  // namespace galvani::engine
