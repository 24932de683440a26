// The program on a GPU, real or emulated: what it says about the kernels that ran. Skips where there is none.
#include <algorithm>
#include <set>
#include <sstream>

#include "cli/program.h"
#include "cuda/device.h"

namespace galvani::cli {
namespace {

class CudaProgram : public testing::Test {
 protected:
  void SetUp() override {
    const cuda::DriverState state = cuda::driver_state();
    if (state.kind != cuda::DriverState::Kind::kReady) GTEST_SKIP() << state.message;
    if (!fs::exists(program_path())) GTEST_SKIP() << program_path() << " is not here";
  }
  /// Two layers of random 4-bit weights, a prompt of five tokens, six more.
  Outcome generate(const Words& more = {}, const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    Words words = {"generate",
                   "--synthetic",
                   (model_data("hf/llama") / "config.json").string(),
                   "--bits",
                   "4",
                   "-p",
                   "hello",
                   "-n",
                   "6",
                   "--temp",
                   "0",
                   "--ignore-eos",
                   "--device",
                   "cuda",
                   "--stats",
                   (scratch / "stats.json").string()};
    words.insert(words.end(), more.begin(), more.end());
    Outcome outcome = run(words, {.environment = environment});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  nlohmann::json stats() const { return nlohmann::json::parse(read_file(scratch / "stats.json"), nullptr, false); }
  /// How often the kernels whose names begin so ran, by --stats.
  static uint64_t ran(const nlohmann::json& json, const std::string& prefix) {
    uint64_t sum = 0;
    for (const auto& [name, count] : json.at("kernels").items())
      if (name.starts_with(prefix)) sum += count.get<uint64_t>();
    return sum;
  }
  const Scratch scratch;
};

TEST_F(CudaProgram, StatsListTheKernelsThatRanWithCounts) {
  const Outcome outcome = generate();
  const nlohmann::json json = stats();
  EXPECT_EQ(json.at("device"), "cuda:0");
  // Six tokens are drawn, the last of them without another step: six steps, two layers, four products a layer and the
  // head.
  EXPECT_EQ(ran(json, "sample_pick"), 6u);
  EXPECT_EQ(ran(json, "embed"), 6u);
  EXPECT_EQ(ran(json, "qmatmul_"), 6u * (2 * 4 + 1));
  EXPECT_EQ(ran(json, "attention_simt"), 6u * 2);
  ASSERT_EQ(json.at("graphs").size(), 1u);
  const nlohmann::json& graph = json.at("graphs").at(0);
  EXPECT_EQ(graph.at("rows"), 1);
  EXPECT_EQ(graph.at("replays"), 4) << "the first step of a size runs by itself, the second is captured and replayed";
  uint64_t kernels = 0;
  for (const auto& [name, count] : graph.at("kernels").items()) kernels += count.get<uint64_t>();
  EXPECT_EQ(graph.at("nodes").get<uint64_t>(), kernels + 1) << "and the copy of the step's tables";
  EXPECT_NE(outcome.err.find("decode graph of 1: " + std::to_string(kernels + 1) + " nodes"), std::string::npos);
}

/// A GPU that dies in the middle of a run: the step's error is the program's, with what was launched last.
TEST_F(CudaProgram, AGpuThatDiesEndsTheRunWithItsName) {
  const auto device = cuda::CudaDevice::open(0);
  ASSERT_TRUE(device.has_value()) << device.error().message;
  if ((*device)->name().find("emulated") == std::string::npos)
    GTEST_SKIP() << "only an emulated GPU dies when asked to";
  // While weights are packed, in the prompt, in a step, in the graph of a step that is captured.
  for (const char* when : {"3", "20", "60", "85"}) {
    const Outcome outcome = run({"generate", "--synthetic", (model_data("hf/llama") / "config.json").string(), "--bits",
                                 "4", "-p", "hello", "-n", "6", "--temp", "0", "--ignore-eos", "--device", "cuda"},
                                {.environment = {{"GALVANI_EMULATED_DIES", when}}});
    EXPECT_EQ(outcome.code, 1) << when << ": " << outcome.err;
    for (const char* words :
         {"error: ", "GPU 0", "stopped working in this step", "kernels launched last: ", "restart it"})
      EXPECT_NE(outcome.err.find(words), std::string::npos) << when << ": " << words << " is not in " << outcome.err;
  }
}

// Tests that ran on another GPU than was asked for, or skipped, would say nothing.
TEST_F(CudaProgram, AnEmulatedGpuIsTheOneThatWasAskedFor) {
  const auto device = cuda::CudaDevice::open(0);
  ASSERT_TRUE(device.has_value()) << device.error().message;
  if ((*device)->name().find("emulated") == std::string::npos) GTEST_SKIP() << "this GPU is a real one";
  for (const auto& [name, value] : {std::pair{"GALVANI_EMULATED_GPU", "banana"},
                                    {"GALVANI_EMULATED_SMS", "0"},
                                    {"GALVANI_EMULATED_COPIES", "late"},
                                    {"GALVANI_EMULATED_ORDER", "forward"},
                                    {"GALVANI_EMULATED_SUMS", "exact"},
                                    {"GALVANI_EMULATED_DIES", "never"}}) {
    const Outcome outcome = run({"doctor"}, {.environment = {{name, value}}});
    EXPECT_EQ(outcome.code, 2) << name << ": " << outcome.err;
    EXPECT_NE(outcome.err.find(std::string(name) + " is '" + value + "'"), std::string::npos) << outcome.err;
  }
}

TEST_F(CudaProgram, TraceSaysEachPlanOnce) {
  const Outcome outcome = generate({}, {{"GALVANI_TRACE", "plan"}});
  std::istringstream lines(outcome.err);
  std::set<std::string> plans;
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("plan: "); at != std::string::npos) {
      EXPECT_TRUE(plans.insert(line.substr(at)).second) << line;
    }
  const auto count = [&](const std::string& prefix) {
    return std::count_if(plans.begin(), plans.end(), [&](const auto& line) { return line.starts_with(prefix); });
  };
  // q/k/v, output, gate and up, down; the head, for the last row alone, has the size of gate and up.
  EXPECT_EQ(count("plan: qmatmul 5 tokens x ["), 4);
  EXPECT_EQ(count("plan: qmatmul 1 token x ["), 4);
  EXPECT_EQ(count("plan: attention 4 heads, 2 kv x 16/16"), 2);
  for (const std::string& plan : plans) EXPECT_NE(plan.find(": kernel="), std::string::npos) << plan;
}

// Kernels that do not fit a part are no open question there.
TEST_F(CudaProgram, DoctorSaysYesOfEveryPart) {
  const Outcome outcome = run({"doctor", "--quick", "--seed", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("\nYES: "), std::string::npos) << outcome.out;
}

// What inspect says of a decode step is what a run does: the same kernel and phases, or launches for the same reason.
TEST_F(CudaProgram, InspectKnowsHowADecodeStepRuns) {
  struct Case {
    const char *name, *bits, *config;
  };
  const Case cases[] = {
      {"llama", "4", R"("architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256)"},
      {"narrow", "4", R"("architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128)"},
      {"wide codes", "8", R"("architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256)"},
      {"biases", "4", R"("architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 256)"},
      {"norm behind", "4",
       R"("architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 256,
          "query_pre_attn_scalar": 128, "sliding_window": 64, "hidden_activation": "gelu_pytorch_tanh")"}};
  std::set<std::string> found;
  for (const Case& c : cases) {
    const fs::path config = scratch / "config.json";
    std::ofstream(config) << "{" << c.config << R"(, "intermediate_size": 512, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 512, "rms_norm_eps": 1e-05,
      "rope_theta": 10000.0, "max_position_embeddings": 512, "torch_dtype": "bfloat16"})";
    const Words model = {"--synthetic", config.string(), "--bits", c.bits, "--device", "cuda"};
    const std::vector<std::pair<std::string, std::string>> small = {{"GALVANI_EMULATED_SMS", "5"},
                                                                    {"GALVANI_TRACE", "plan"}};
    Words words = {"inspect"};
    words.insert(words.end(), model.begin(), model.end());
    const Outcome told = run(words, {.environment = small});
    ASSERT_EQ(told.code, 0) << c.name << told.err;
    const std::string head = "a decode step of one token: ";
    const size_t at = told.out.find("  " + head);
    ASSERT_NE(at, std::string::npos) << c.name << told.out;
    const std::string line = told.out.substr(at + 2 + head.size(), told.out.find('\n', at) - at - 2 - head.size());
    words = {"generate", "-v", "-p", "hello", "-n", "3", "--temp", "0", "--ignore-eos"};
    words.insert(words.end(), model.begin(), model.end());
    const Outcome did = run(words, {.environment = small});
    ASSERT_EQ(did.code, 0) << c.name << did.err;
    const std::string what = line.substr(0, line.find(" (what"));
    const std::string launches = "a launch an operation: ";
    if (what.starts_with(launches)) {
      // Below 9.0 nobody asks, so nobody is told.
      const std::string reason = what.substr(launches.size());
      if (!reason.starts_with("one kernel needs")) {
        EXPECT_NE(did.err.find("since one kernel cannot: " + reason), std::string::npos) << c.name << did.err;
      }
      EXPECT_EQ(did.err.find("kernel=decode_step"), std::string::npos) << c.name;
    } else {
      EXPECT_NE(did.err.find("plan: decode step of one token: " + what + "\n"), std::string::npos)
          << c.name << ": " << what << "\n"
          << did.err;
    }
    found.insert(what);
  }
  EXPECT_GE(found.size(), cuda::CudaDevice::open(0).value()->caps().has(Feature::kBulkCopy) ? 4u : 1u);
}

TEST_F(CudaProgram, ArmsAreForcedByNameAndPoisonChangesNothing) {
  const std::string text = generate().out;
  EXPECT_EQ(generate({}, {{"GALVANI_POISON", "1"}}).out, text) << "something is read that nobody wrote";
  generate({"--arm", "qmatmul=mma"});
  EXPECT_EQ(ran(stats(), "qmatmul_mma_"), 6u * (2 * 4 + 1));
  EXPECT_EQ(ran(stats(), "qmatmul_"), 6u * (2 * 4 + 1)) << "no other arm";
  EXPECT_EQ(stats().at("arms"), nlohmann::json({{"qmatmul", "mma"}}));
}

}  // namespace
}  // namespace galvani::cli
