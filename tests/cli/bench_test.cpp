// galvani bench --kernels where there is no GPU, and its usage errors everywhere.
#include "cli/program.h"
#include "cuda/device.h"

namespace galvani::cli {
namespace {

TEST(Bench, WithoutAGpuItSaysWhyItCannotAnswer) {
  const cuda::DriverState state = cuda::driver_state();
  if (state.kind == cuda::DriverState::Kind::kReady) GTEST_SKIP() << "there is a GPU here";
  const Outcome outcome = run({"bench", "--kernels"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  if (state.kind == cuda::DriverState::Kind::kNoCudaInBuild) {
    for (const char* words : {"built without its CUDA backend", "cmake --preset cuda-release"})
      EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("--device"), std::string::npos) << outcome.err;
    return;
  }
  EXPECT_NE(outcome.err.find("there is no GPU to time: " + state.reason + "\n"), std::string::npos) << outcome.err;
  expect_error(1, {"bench", "--kernels", "--json", "/nowhere/x.json"}, {"/nowhere/x.json"});
}

TEST(Bench, BadCasesAreUsageErrorsThatSayWhatIsAllowed) {
  const std::pair<const char*, const char*> bad[] = {{"4096", "write it as NxK:BITSgGROUP:TOKENS"},
                                                     {"4096x4096:7g64:1", "bits are 2, 3, 4, 5, 6 or 8"},
                                                     {"4096x4100:4g64:1", "groups of 64 do not divide K = 4100"},
                                                     {"4096x4096:4g64:0", "token counts"},
                                                     {"4096x4096:4g64:1;2", "separated by commas"},
                                                     {"99999999999x64:4g64:1", "not of that form"},
                                                     {"99999999x64:4g64:1", "1 to 2^24"},
                                                     {"64x64:4294967300g64:1", "not of that form"},
                                                     {"64x64:4g4294967360:1", "not of that form"},
                                                     {"+64x64:4g64:1", "not of that form"},
                                                     {"0x64:4g64:1", "N and K are 1 to 2^24"},
                                                     {"64x64:4g64:", "a token count is missing"},
                                                     {"64x64:4g64:1,", "a token count is missing"}};
  for (const auto& [text, word] : bad) {
    const Outcome outcome = run({"bench", "--kernels", "--case", text});
    EXPECT_EQ(outcome.code, 2) << text;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << text << ": " << outcome.err;
  }
  EXPECT_NE(run({"bench", "--kernels", "--arm", "fast"})
                .err.find("few-bulk, few-async, few-plain, stream, wgmma, expand, mma"),
            std::string::npos);
  EXPECT_EQ(run({"bench", "--kernels", "--act", "f32"}).code, 2);
  expect_error(2, {"bench", "--kernels", "--case", "attention"}, {"--case attention is of --tune"});
  expect_error(2, {"bench", "--kernels", "--case", "small"}, {"--case small is of --tune"});
  expect_error(2, {"bench", "--kernels", "--tune", "--case", "small", "--act", "f16"},
               {"--case small is timed in bf16"});
  expect_error(2, {"bench", "--kernels", "--tune", "--act", "f16", "--case", "attention"}, {"timed in bf16"});
  EXPECT_EQ(run({"bench"}).code, 2);
}

// A figure would be taken for what was asked, so nothing that was asked is ignored.
TEST(Bench, FlagsOfTheOtherKindAreRefused) {
  const std::string model = model_data("hf/llama");
  const Words of_kernels[] = {
      {"--tune"}, {"--case", "64x64:4g64:1"}, {"--gpu", "0"}, {"--no-cublas"}, {"--no-dependent-launch"}};
  for (Words flag : of_kernels) {
    flag.insert(flag.begin(), {"bench", "-m", model});
    expect_error(2, flag, {flag[3] + " is of --kernels"});
  }
  const Words of_model[] = {{"--device", "cuda:1"}, {"--kv", "f16"},      {"-t", "1"},
                            {"--steps", "3"},       {"--sequences", "2"}, {"--prompt-tokens", "3"}};
  for (const Words& flag : of_model)
    expect_error(2, {"bench", "--kernels", flag[0], flag[1]},
                 {(flag[0] == "-t" ? "--threads" : flag[0]) + " is of a model"});
  for (const Words& flag : {Words{"--arm", "wgmma"}, Words{"--expand-mib", "64"}})
    expect_error(2, {"bench", "--kernels", "--tune", flag[0], flag[1]}, {flag[0] + " is not for --tune"});
}

TEST(Bench, AModelMayHaveAnArmForEachOperation) {
  const auto bench = [&](const Words& arms) {
    Words words = {"bench", "-m", model_data("hf/llama"), "--device", "cpu", "--prompt-tokens", "3", "--steps", "1"};
    words.insert(words.end(), arms.begin(), arms.end());
    return run(words);
  };
  const Outcome outcome = bench({"--arm", "qmatmul=ref", "--arm", "attention=ref"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("decode of 1 sequence: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(", arms qmatmul=ref attention=ref: prefill of 3 tokens"), std::string::npos)
      << outcome.out;
  const Outcome twice = bench({"--arm", "qmatmul=ref", "--arm", "qmatmul=rows"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.err.find("--arm qmatmul=rows: qmatmul has an arm already, ref"), std::string::npos) << twice.err;
  expect_error(2, {"bench", "--kernels", "--arm", "wgmma", "--arm", "mma"}, {"--arm mma", "wgmma"});
}

// Figures of a forced arm are not those of the plan's choice: the record must tell them apart.
TEST(Bench, TheRecordOfAModelHoldsTheForcedArms) {
  const Scratch scratch;
  const auto bench = [&](const Words& arms) {
    Words words = {"bench", "-m",     model_data("hf/llama"), "--device", "cpu", "--prompt-tokens", "3", "--steps",
                   "1",     "--json", scratch / "out.json"};
    words.insert(words.end(), arms.begin(), arms.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::pair{outcome.out, nlohmann::json::parse(read_file(scratch / "out.json")).at("arms")};
  };
  EXPECT_EQ(bench({"--arm", "qmatmul=ref", "--arm", "attention=split"}).second,
            nlohmann::json({{"qmatmul", "ref"}, {"attention", "split"}}));
  const auto [text, arms] = bench({});
  EXPECT_EQ(arms, nlohmann::json::object());
  EXPECT_EQ(text.find(", arms"), std::string::npos) << text;
}

/// Two layers of eight experts, of which a token takes two: counts that follow from that alone.
TEST(Bench, AMixtureSaysWhichExpertsWereRead) {
  const Scratch scratch;
  const auto bench = [&](const std::string& model, int sequences) {
    const Outcome outcome =
        run({"bench", "-m", model_data(model), "--device", "cpu", "-t", "1", "--act", "f32", "--prompt-tokens", "8",
             "--steps", "20", "--sequences", std::to_string(sequences), "--json", scratch / "out.json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::pair{outcome.out, nlohmann::json::parse(read_file(scratch / "out.json"))};
  };
  const auto [text, json] = bench("hf/qwen3_moe", 1);
  EXPECT_NE(text.find("experts read a step: 4 of 16 in 2 layers (median, 4 to 4)"), std::string::npos) << text;
  EXPECT_NE(text.find("tokens by expert"), std::string::npos) << text;
  ASSERT_EQ(json["experts"]["read"], std::vector<int>(12, 4)) << "the first eight steps do not count";
  for (const int layer : {1, 2}) {
    uint64_t total = 0;
    for (const auto& count : json["experts"]["tokens"][layer]) total += count.get<uint64_t>();
    EXPECT_EQ(total, 12u * 2);
  }
  EXPECT_GE(json["experts"]["busiest_share"].get<double>(), 1.0 / 8);
  EXPECT_LE(json["experts"]["busiest_share"].get<double>(), 0.5);
  // More sequences read more experts, and their bytes are counted.
  const auto many = bench("hf/qwen3_moe", 8).second;
  EXPECT_GT(many["experts"]["read"][0], 4);
  EXPECT_LE(many["experts"]["read"][0], 16);
  EXPECT_GT(many["step_bytes"], json["step_bytes"]);
  EXPECT_FALSE(bench("hf/llama", 1).second.contains("experts"));
}

}  // namespace
}  // namespace galvani::cli
