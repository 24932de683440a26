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
