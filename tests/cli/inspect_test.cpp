// galvani inspect: figures that can be computed by hand.
#include "cli/program.h"
#include "exec/cpu_ops.h"

namespace galvani::cli {
namespace {

void expect_words(const std::string& model, const Words& more, const Words& needles) {
  Words words = {"inspect", "-m", model_data(model)};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const std::string& needle : needles)
    EXPECT_NE(outcome.out.find(needle), std::string::npos) << model << " should say: " << needle << "\n" << outcome.out;
}

TEST(Inspect, DimsBitsAndMemoryOfTheTinyModels) {
  // Two layers, 2 kv heads of 16, keys and values in f32: 2·2·(16+16)·4 bytes a token; 100 tokens take two pages of 64.
  expect_words("hf/llama", {"-c", "100", "--kv", "f32"},
               {"family llama, Hugging Face safetensors", "layers 2, hidden 64, intermediate 128, heads 4, kv heads 2",
                "vocabulary 256, context 512", "16.000", "512 bytes a token, 2 pages of 64"});
  expect_words("hf/llama", {"--kv", "bf16", "--sequences", "3", "-c", "64"}, {"256 bytes a token, 3 pages of 64"});
  // Without --kv it plans for what a run here would take, which `generate` says too.
  const std::string kv = exec::cpu_default_arithmetic() == kernels::Arithmetic::kBF16 ? "bf16" : "f32";
  expect_words("hf/llama", {"-c", "64"},
               {kv + " keys and values", kv == "bf16" ? "256 bytes a token" : "512 bytes a token"});
  // Affine, 4 bits in groups of 64 with a bf16 scale and bias each: 4 + 32/64 bits.
  expect_words("mlx/llama-4-64-affine", {}, {"MLX safetensors", "4.500"});
  expect_words("mlx/qwen3-6-32-affine", {}, {"family qwen3", "7.000"});
  expect_words("gguf/llama.gguf", {}, {"GGUF", "family llama"});
  // Gemma 4's layers 4 and 5 keep nothing: 2 layers of each kind, 2 heads of 16 and of 32.
  for (const char* model : {"hf/gemma4_edge", "gguf/gemma4_edge.gguf"})
    expect_words(model, {"-c", "100", "--kv", "f32"},
                 {"family gemma4", "sliding  2 layers, 2 kv heads x 16, window 8: 512 bytes a token",
                  "full     2 layers, 2 kv heads x 32: 1024 bytes a token"});
}

TEST(Inspect, RecurrentStateIsOneLineAKind) {
  // Three delta-net layers: 3 rows of 128 channels, and 4 value heads of 16 x 16, each f32.
  expect_words("hf/qwen3_5", {"-c", "64"},
               {"slots    3 x convolution [3, 128] of f32 a sequence\n", "slots    3 x delta net [4, 16, 16] of f32"});
}

TEST(Inspect, HeadsThatAreNotRunAreReported) {
  expect_words(
      "gguf/qwen35moe.gguf", {},
      {"family qwen3_5_moe", "layers 2", "multi-token prediction head: 2 tensors (mtp.*), recognised and not run"});
}

TEST(Inspect, EveryTensorHasARowWithAll) {
  expect_words("hf/llama", {}, {"model.layers.*.self_attn.q_proj"});
  expect_words("hf/llama", {"--all"}, {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"});
}

TEST(Inspect, ShowsEveryCallOnAPartThatIsNotHere) {
  // One line of calls for both layers, with a plan for each number of rows; the limit from bytes and the datasheet.
  for (const char* part : {"v100", "t4", "h200", "gb10", "unknown"})
    expect_words("mlx/llama-4-64-affine", {"--device", part},
                 {std::string("kernels on ") + part, "self_attn.q_proj", "affine", "attention  4 heads, 2 kv x 16",
                  "2 of them, layers 0 to 1", "lm_head", " tokens  "});
  expect_words("hf/llama", {"--device", "H200"}, {"compute capability 9.0, 132 SMs", "wgmma", "datasheet's 4800 GB/s"});
  expect_words("hf/llama", {"--device", "v100-pcie"}, {"compute capability 7.0", "in a build for 70"});
  for (const char* device : {"rtx5090", "RTX 5090", "geforce-rtx-5090"})
    expect_words("hf/llama", {"--device", device}, {"kernels on 5090 (GeForce RTX 5090"});
  // Keys and values are those that the part would have, from the first line on.
  for (const auto& [part, type] : {std::pair{"t4", "f16"}, {"h200", "bf16"}})
    expect_words("hf/llama", {"--device", part}, {std::string(type) + " keys and values"});
  expect_error(2, {"inspect", "-m", "/nowhere", "--device", "h20"}, {"no part of that name (like it: h200, gh200)"});
  // An unknown name is said before the model is looked for.
  for (const char* device : {"v1000", "cpu", "auto", ""})
    expect_error(2, {"inspect", "-m", "/nowhere", "--device", device},
                 {std::string("--device ") + device + ":", "v100-sxm", "unknown", "cuda:N"});
}

TEST(Inspect, SaysWhetherTheModelWouldRunOnAPart) {
  expect_words("hf/llama", {"--device", "h200"}, {"verdict: RUNS THERE by plan: each of a step's 11 calls"});
  // No attention below 7.5: two layers of eleven calls in all.
  expect_words("hf/llama", {"--device", "v100"},
               {"verdict: DOES NOT RUN THERE: 2 of a step's 11 calls have no CUDA kernel",
                "    attention (2): refused: ", "built for 7.5", "Instead: --device auto takes the CPU"});
  // Packed products are refused there as well.
  expect_words("mlx/llama-4-64-affine", {"--device", "v100"}, {"DOES NOT RUN THERE: 11 of a step's 11 calls"});
  // Operations that the backend lacks: the model does not load, and auto falls back.
  for (const auto& [model, what] : {std::pair{"hf/qwen3_moe", "one matrix an expert or head"},
                                    {"hf/qwen3_5", "gated delta net (3): refused: "},
                                    {"hf/deepseek_v3", "latent attention"}})
    expect_words(model, {"--device", "h200"},
                 {"DOES NOT RUN THERE", what, "--device auto takes the CPU", "--device cuda refuses"});
}

TEST(Inspect, SaysWhatMemoryAPartWouldHold) {
  // Two layers of 2 heads x 16 keys and values in bf16: 256 bytes a token.
  expect_words(
      "hf/llama", {"--device", "h200", "-c", "4194304"},
      {" of its 141 GiB, and some for activations: weights 0.00, 1 sequence of 4194304 tokens 1.00, workspaces "
       "of products 0.05\n"});
  expect_words("hf/llama", {"--device", "h200", "-c", "4194304", "--kv", "f32"}, {"4194304 tokens 2.00, workspaces"});
  expect_words("hf/llama", {"--device", "t4", "-c", "4194304", "--sequences", "17"},
               {"memory: 17.00 of its 16 GiB",
                "17 sequences of 4194304 tokens 17.00, workspaces of products 0.00; DOES NOT FIT: lower -c"});
}

TEST(Inspect, TheLargestPlanIsANumber) {
  const Outcome outcome =
      run({"inspect", "-m", model_data("hf/llama"), "-c", "2147483647", "--sequences", "4096", "--kv", "f32"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  // 2^25 pages of 64·512 bytes for each of 4096 sequences.
  EXPECT_NE(outcome.out.find("137438953472 pages of 64 = 4503599627.4 MB"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace galvani::cli
