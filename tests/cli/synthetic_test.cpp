// --synthetic: random weights in the shapes of a config, called so wherever a figure of them is shown.
#include "cli/program.h"

namespace galvani::cli {
namespace {

constexpr const char* kLabel = "SYNTHETIC WEIGHTS";

fs::path config(const Scratch& scratch) {
  fs::create_directory(scratch / "shape");
  fs::copy_file(model_data("hf/llama") / "config.json", scratch / "shape" / "config.json");
  return scratch / "shape" / "config.json";
}

nlohmann::json json_of(const fs::path& path) { return nlohmann::json::parse(read_file(path), nullptr, false); }

TEST(Synthetic, GenerateNeedsNoWeightsAndNoTokenizer) {
  const Scratch scratch;
  const Words words = {"generate",
                       "--synthetic",
                       config(scratch).string(),
                       "--bits",
                       "3",
                       "-p",
                       "hello",
                       "-n",
                       "5",
                       "--ignore-eos",
                       "--device",
                       "cpu",
                       "--stats",
                       (scratch / "stats.json").string()};
  const Outcome outcome = run(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(kLabel), std::string::npos) << outcome.err;
  const nlohmann::json json = json_of(scratch / "stats.json");
  EXPECT_EQ(json.at("synthetic"), true);
  EXPECT_EQ(json.at("generated_tokens"), 5);
  EXPECT_EQ(json.at("prompt_tokens"), 5) << "one a byte";
  EXPECT_TRUE(json.at("graphs").empty()) << "a CPU has none";
  EXPECT_EQ(json.at("upload_bytes"), 0);
}

TEST(Synthetic, WhatIsSavedRunsTheSameAndIsStillCalledSynthetic) {
  const Scratch scratch;
  const std::string shape = config(scratch).parent_path().string(), saved = (scratch / "saved").string();
  const Words run_words = {"-p", "hello", "-n", "12", "--ignore-eos", "--device", "cpu", "-t", "1"};
  const auto with = [&](Words words) {
    words.insert(words.begin(), "generate");
    words.insert(words.end(), run_words.begin(), run_words.end());
    return run(words);
  };
  const Outcome memory = with({"--synthetic", shape}), file = with({"--synthetic", shape, "--save", saved});
  ASSERT_EQ(memory.code, 0) << memory.err;
  ASSERT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(file.out, memory.out);
  EXPECT_NE(file.err.find("MB written to " + saved), std::string::npos) << file.err;
  const Outcome later = with({"-m", saved});
  EXPECT_EQ(later.out, memory.out);
  EXPECT_NE(later.err.find(kLabel), std::string::npos) << later.err;
  EXPECT_NE(run({"inspect", "-m", saved}).out.find(kLabel), std::string::npos);
  EXPECT_EQ(scratch.names_with("partial"), Words{});
  expect_error(2, {"inspect", "--synthetic", shape, "--save", saved}, {saved + " exists", "nothing is overwritten"});
}

TEST(Synthetic, AnInterruptedSaveLeavesNothing) {
  const Scratch scratch;
  nlohmann::json shape = json_of(config(scratch));
  shape["vocab_size"] = 1 << 19;  // two blocks and more for the embedding alone
  const std::string named = write_file(scratch / "wide.json", shape.dump()), saved = (scratch / "saved").string();
  bool interrupted = false;
  for (int attempt = 0; attempt < 5 && !interrupted; ++attempt) {  // a run may be quicker than the signal
    fs::remove_all(saved);
    Setting setting;
    setting.during = [&](pid_t child, const fs::path&) {
      for (int i = 0; i < 4000 && scratch.names_with("saved").empty(); ++i)
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      kill(child, SIGINT);
    };
    const Outcome outcome = run({"inspect", "--synthetic", named, "--bits", "8", "--save", saved}, setting);
    if (outcome.code != 1) continue;
    interrupted = true;
    EXPECT_NE(outcome.err.find("interrupted; nothing is left of " + saved), std::string::npos) << outcome.err;
    EXPECT_EQ(scratch.names_with("saved"), Words{});
  }
  EXPECT_TRUE(interrupted);
}

TEST(Synthetic, AConfigMayHaveAnyName) {
  const Scratch scratch;
  const fs::path renamed = scratch / "shape-of-8b.json";
  fs::copy_file(config(scratch), renamed);
  const Outcome inspected = run({"inspect", "--synthetic", renamed.string()});
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("synthetic 4-bit g64"), std::string::npos) << inspected.out;
  const std::string saved = (scratch / "saved").string();
  const Outcome kept = run({"inspect", "--synthetic", renamed.string(), "--save", saved});
  ASSERT_EQ(kept.code, 0) << kept.err;
  EXPECT_EQ(json_of(scratch / "saved" / "config.json").at("quantization").at("bits"), 4);
  EXPECT_FALSE(fs::exists(scratch / "saved" / "shape-of-8b.json")) << "it is config.json there";
  const Outcome back = run({"inspect", "-m", saved});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_NE(back.out.find("affine 4-bit g64"), std::string::npos) << back.out;
  expect_error(1, {"inspect", "--synthetic", (scratch / "none" / "config.json").string()}, {"none/config.json"});
}

TEST(Synthetic, OtherThanDenseFamiliesAreRefusedByTheirKey) {
  for (const auto& [model, key] : {std::pair{"hf/qwen3_moe", "num_local_experts"}, {"hf/olmoe", "num_experts"}})
    expect_error(1, {"inspect", "--synthetic", model_data(model).string()}, {key, "dense families"});
}

TEST(Synthetic, InspectAndBenchSaySo) {
  const Scratch scratch;
  const std::string shape = config(scratch).string();
  const Outcome inspected = run({"inspect", "--synthetic", shape, "--bits", "8", "--device", "h200"});
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  for (const char* needle : {kLabel, "synthetic 8-bit g64", "8.500", "kernels on h200", "arm=few-bulk"})
    EXPECT_NE(inspected.out.find(needle), std::string::npos) << needle << "\n" << inspected.out;
  const std::string json = (scratch / "bench.json").string();
  const Outcome bench = run({"bench", "--synthetic", shape, "--device", "cpu", "--prompt-tokens", "9", "--steps", "20",
                             "--sequences", "2", "--json", json});
  ASSERT_EQ(bench.code, 0) << bench.err;
  size_t lines = 0, labelled = 0;
  for (size_t at = 0; at < bench.out.size(); at = bench.out.find('\n', at) + 1, ++lines)
    labelled += bench.out.compare(at, std::string(kLabel).size(), kLabel) == 0;
  EXPECT_EQ(labelled, lines) << bench.out;
  const nlohmann::json record = json_of(json);
  EXPECT_EQ(record.at("synthetic"), true);
  EXPECT_EQ(record.at("step_seconds").size(), 12u) << "20 steps without the first eight";
  EXPECT_EQ(record.at("sequences"), 2);
  EXPECT_GT(record.at("prefill_seconds").get<double>(), 0);
  EXPECT_EQ(run({"bench", "-m", model_data("hf/llama"), "--device", "cpu", "--prompt-tokens", "3", "--steps", "1"})
                .out.find(kLabel),
            std::string::npos);
}

TEST(Synthetic, FlagsThatMakeNoSenseAreUsageErrors) {
  const Scratch scratch;
  const std::string shape = config(scratch).string();
  expect_error(2, {"inspect", "--synthetic", shape, "-m", shape}, {"--synthetic", "excludes"});
  expect_error(2, {"inspect", "-m", model_data("hf/llama"), "--bits", "4"}, {"--bits", "requires --synthetic"});
  expect_error(2, {"inspect", "--synthetic", shape, "--bits", "7"}, {"--bits"});
  expect_error(1, {"inspect", "--synthetic", (scratch / "nothing").string()}, {"config.json"});
  expect_error(2, {"inspect", "--synthetic", shape, "--save", ""}, {"folder to save to needs a name"});
  expect_error(2, {"bench", "--kernels", "--synthetic", shape}, {"--kernels, or a model"});
}

}  // namespace
}  // namespace galvani::cli
