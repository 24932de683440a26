// Exit codes and words of the command line itself: flags, missing things, where output goes.
#include "cli/program.h"

namespace galvani::cli {
namespace {

TEST(Usage, ErrorsOfTheCommandLineExitWith2) {
  const Scratch scratch;
  const std::string model = text_model(scratch);
  expect_error(2, {}, {"subcommand"});
  expect_error(2, {"paint"}, {"no verb \"paint\"", "generate, chat, inspect, tokenize, eval"});
  expect_error(2, {"generate", "-p", "x"}, {"no model named", "-hf ORG/REPO"});
  expect_error(2, {"generate", "-m", model}, {"no prompt", "-f FILE"});
  expect_error(2, {"generate", "-m", model, "-p", "x", "--frob"}, {"--frob"});
  expect_error(2, {"generate", "-m", model, "-p", "x", "-f", "y"}, {"--prompt excludes --file"});
  expect_error(2, {"generate", "-m", model, "-hf", "a/b", "-p", "x"}, {"--model excludes --hf"});
  expect_error(2, {"eval", "-m", model, "--logits", "x"}, {"--ids is required"});
  expect_error(2, {"tokenize", "-m", model, "-p", "a", "--text"}, {"--text requires --chat"});
  expect_error(2, {"inspect", "-m", model, "--sequences", "0"}, {"--sequences"});
}

TEST(Usage, HelpAndVersionExitWith0) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("galvani ", 0), 0u) << version.out;
  EXPECT_EQ(run({"doctor", "--version"}).out, version.out);
  const Outcome help = run({"generate", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("--ignore-eos"), std::string::npos);
}

TEST(Usage, GlobalFlagsStandBeforeOrAfterTheVerb) {
  const Scratch scratch;
  const std::string model = text_model(scratch);
  const Words generate = {"generate", "-m", model, "-p", "x", "-n", "1", "-t", "1"};
  const auto with = [&](const std::string& flag, bool before) {
    Words words = generate;
    words.insert(before ? words.begin() : words.end(), flag);
    return run(words);
  };
  for (const char* flag : {"-v", "--verbose"})
    for (const bool before : {true, false}) {
      const Outcome outcome = with(flag, before);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_NE(outcome.err.find("info: "), std::string::npos) << flag << " " << before << ": " << outcome.err;
    }
  EXPECT_EQ(run(generate).err.find("info: "), std::string::npos);
}

TEST(Usage, NumbersOutsideTheirRangeAreRefused) {
  const Scratch scratch;
  const std::string model = text_model(scratch);
  const std::vector<Words> bad = {{"-n", "0"},
                                  {"-n", "-5"},
                                  {"-n", "many"},
                                  {"-c", "-3"},
                                  {"-t", "-1"},
                                  {"-t", "1025"},
                                  {"-b", "0"},
                                  {"--temp", "-1"},
                                  {"--temp", "inf"},
                                  {"--temp", "nan"},
                                  {"--top-k", "-1"},
                                  {"--top-p", "1.5"},
                                  {"--top-p", "0"},
                                  {"--top-p", "nan"},
                                  {"--min-p", "-0.1"},
                                  {"--min-p", "nan"},
                                  {"--seed", "-1"},
                                  {"--seed", "1e3"},
                                  {"--seed", "18446744073709551616"},
                                  {"--arm", "nonsense"},
                                  {"--arm", "a=b"},
                                  {"--arm", "qmatmul=x"},
                                  {"--act", "f8"},
                                  {"--kv", "f8"},
                                  {"--stop", ""},
                                  {"-l", "5"},
                                  {"-l", "=5"},
                                  {"-l", "5=3x"},
                                  {"-l", "5=inf"},
                                  {"-l", "5=nan"},
                                  {"--repeat-penalty", "0"},
                                  {"--presence-penalty", "nan"}};
  for (const Words& flag : bad) {
    Words words = {"generate", "-m", model, "-p", "x", "-t", "1"};
    if (flag[0] == "-t") words.resize(5);
    words.insert(words.end(), flag.begin(), flag.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2) << flag[0] << " " << flag[1] << ": " << outcome.err;
    EXPECT_FALSE(outcome.err.empty());
    EXPECT_EQ(outcome.out, "") << flag[0] << " " << flag[1];
  }
  expect_error(2, {"generate", "-m", model, "-p", "x", "--device", "gpu"}, {"--device gpu", "auto, cpu, cuda, cuda:N"});
}

/// A word of the command line that cannot be right is said before the model is looked for, so -m names nothing here.
TEST(Usage, BadArgumentsOfEveryVerbExitWith2) {
  const std::pair<Words, const char*> bad[] = {
      {{"generate", "-p", "x", "-l", "5"}, "TOKEN_ID=VALUE"},
      {{"generate", "-p", "x", "-l", "-1=5"}, "TOKEN_ID=VALUE"},
      {{"generate", "-p", "x", "--stop", ""}, "--stop"},
      {{"generate", "-p", "x", "--act", "f8"}, "auto, f32, f16, bf16"},
      {{"generate", "-p", "x", "--kv", "f8"}, "auto, f32, f16, bf16"},
      {{"generate", "-p", "x", "--device", "gpu"}, "auto, cpu, cuda, cuda:N"},
      {{"generate", "-p", "x", "--arm", "nonsense"}, "op=name"},
      {{"generate", "-p", "x", "-c", "2147483648"}, "--ctx-size"},
      {{"chat", "--top-p", "2"}, "--top-p"},
      {{"chat", "--act", "f8"}, "auto, f32, f16, bf16"},
      {{"chat", "-l", "x=1"}, "TOKEN_ID=VALUE"},
      {{"eval", "--ids", "none.npy", "--window", "1"}, "--window"},
      {{"eval", "--ids", "none.npy", "--windows", "-1"}, "--windows"},
      {{"eval", "--ids", "none.npy", "--windows", "1.5"}, "--windows"},
      {{"eval", "--ids", "none.npy", "--convention", "other"}, "other"},
      {{"eval", "--ids", "none.npy", "--logits", "out.npy", "--device", "tpu"}, "auto, cpu, cuda, cuda:N"},
      {{"tokenize", "-p", "x", "--skip-special"}, "--decode"},
      {{"inspect", "--sequences", "4097"}, "--sequences"},
      {{"inspect", "--kv", "f8"}, "f8"},
      {{"quantize", "-o", "out", "--bits", "7"}, "7 bits"},
      {{"quantize", "-o", "out", "--bits", "99999999999"}, "--bits"},
      {{"quantize", "-o", "out", "--group", "48"}, "groups of 48"},
      {{"quantize", "-o", "out", "--shard-size", "0"}, "--shard-size"},
      {{"quantize", "-o", "out", "--dtype", "f8"}, "f8"},
      {{"quantize", "-o", "out", "--override", "x=1"}, "no width"}};
  for (const auto& [start, needle] : bad) {
    Words words = start;
    words.insert(words.end(), {"-m", "/nowhere"});
    EXPECT_EQ(expect_error(2, words, {needle}).out, "");
  }
  for (const Words& words : {Words{"doctor", "--device", "cpu", "--seed", "-1"}, Words{"doctor", "--seed", "1e3"},
                             Words{"doctor", "--device", "cpu", "extra"}, Words{"bench", "--kernels", "--gpu", "64"},
                             Words{"bench", "--kernels", "--expand-mib", "-1"}})
    EXPECT_EQ(expect_error(2, words, {words.back() == "extra" ? "extra" : words[words.size() - 2]}).out, "");
  // The same words with nothing else wrong, where only the model can tell.
  const Scratch scratch;
  const std::string model = text_model(scratch);
  for (const Words& arm : {Words{"--arm", "a=b"}, Words{"--arm", "qmatmul=x"}})
    expect_error(2, {"generate", "-p", "x", "-m", model, arm[0], arm[1]}, {arm[1]});
  expect_error(2, {"generate", "-m", model, "-p", "x", "-l", "256=1"}, {"token id 256", "0 to 255"});
  expect_error(2, {"tokenize", "-m", model, "--now", "noon", "-p", "x"}, {"--now requires --chat"});
  expect_error(2, {"inspect", "-m", model}, {"GALVANI_TRACE=all", "plan"}, {.environment = {{"GALVANI_TRACE", "all"}}});
}

TEST(Usage, ABadModelIsOneSentence) {
  const Scratch scratch;
  expect_error(1, {"inspect", "-m", scratch / "nowhere"}, {"nowhere does not exist"});
  expect_error(1, {"inspect", "-m", scratch / "."}, {"config.json"});
  expect_error(1, {"inspect", "-m", write_file(scratch / "r.gguf", "rubbish, and more of it")}, {"not a GGUF file"});
  const std::string whole = read_file(model_data("gguf/llama.gguf"));
  expect_error(1, {"inspect", "-m", write_file(scratch / "t.gguf", whole.substr(0, whole.size() - 1))},
               {"t.gguf", "cut short"});
  expect_error(1, {"generate", "-p", "x", "-m", model_data("gguf/llama.gguf")},
               {"llama.gguf holds no tokenizer", "tokenizer.ggml.model and tokenizer.ggml.tokens are missing",
                "--tokenizer FOLDER", "eval --ids"});
  const fs::path model = text_model(scratch);
  nlohmann::json config = nlohmann::json::parse(read_file(model / "config.json"));
  config["hidden_size"] = "64";
  write_file(model / "config.json", config.dump());
  expect_error(1, {"generate", "-p", "x", "-m", model}, {"'hidden_size' is \"64\"", "integer"});
  fs::remove(model / "tokenizer.json");
  expect_error(1, {"generate", "-p", "x", "-m", model}, {"no tokenizer.json"});
  // What is no model at all is called so, and not missed its tokenizer.
  expect_error(1, {"generate", "-p", "x", "-m", scratch / "nowhere"}, {"nowhere does not exist", "a .gguf file"});
  expect_error(1, {"generate", "-p", "x", "-m", write_file(scratch / "notes.txt", "rubbish")},
               {"notes.txt is neither a folder nor a GGUF file"});
  expect_error(1, {"generate", "-p", "x", "-m", scratch / "."}, {"holds no config.json; did you mean ", ".gguf?"});
}

/// A model without a tokenizer takes another's: a folder, or tokenizer.json alone.
TEST(Usage, AnotherTokenizerStandsIn) {
  const Scratch scratch;
  const fs::path folder = text_model(scratch);
  const std::string gguf = model_data("gguf/llama.gguf");
  const Words generate = {"generate", "-m", folder, "-p", "hello", "-n", "8", "-t", "1", "--act", "f32"};
  const Outcome own = run(generate);
  EXPECT_EQ(own.code, 0) << own.err;
  for (const fs::path& tokenizer : {folder, folder / "tokenizer.json"}) {
    Words words = generate;
    words[2] = gguf;
    words.insert(words.end(), {"--tokenizer", tokenizer});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, own.out) << "the file holds the same weights";
    EXPECT_EQ(run({"tokenize", "-m", gguf, "-p", "hi", "--tokenizer", tokenizer}).out, "[107,108]\n");
  }
  expect_error(1, {"tokenize", "-m", gguf, "-p", "x", "--tokenizer", scratch / "none"}, {"--tokenizer: ", "none"});
  expect_error(1, {"tokenize", "-m", gguf, "-p", "x", "--tokenizer", gguf}, {"--tokenizer: ", "holds no tokenizer"});
}

TEST(Usage, AModelFileCutInHalfEndsInASentence) {
  const Scratch scratch;
  const fs::path model = text_model(scratch);
  const std::string weights = read_file(model / "model.safetensors");
  write_file(model / "model.safetensors", weights.substr(0, weights.size() / 2));
  expect_error(1, {"generate", "-p", "x", "-m", model}, {"model.safetensors"});
}

TEST(Usage, HuggingFaceCache) {
  const Scratch scratch;
  const Setting home{.environment = {{"HF_HOME", scratch / "hf"}, {"HF_HUB_CACHE", ""}}};
  for (const Words& how : {Words{"-hf", "org/repo"}, Words{"-hf=org/repo"}, Words{"--hf", "org/repo"}}) {
    Words words = {"inspect"};
    words.insert(words.end(), how.begin(), how.end());
    expect_error(1, words, {"-hf org/repo", "not in the local cache", "\n  hf download org/repo\n"}, home);
  }
  expect_error(2, {"inspect", "-hf", "repo"}, {"write ORG/REPO"}, home);
  expect_error(2, {"inspect", "-hf", "../.."}, {"write ORG/REPO"}, home);
  const fs::path repo = scratch / "hf/hub/models--org--repo";
  fs::create_directories(repo / "refs");
  write_file(repo / "refs/main", "0123abcd\n");
  fs::create_directories(repo / "snapshots");
  fs::copy(model_data("hf/llama"), repo / "snapshots/0123abcd");
  const Outcome found = run({"inspect", "-hf", "org/repo"}, home);
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_NE(found.out.find("family llama"), std::string::npos) << found.out;
  write_file(repo / "refs/main", "..");
  expect_error(1, {"inspect", "-hf", "org/repo"}, {"hf download org/repo"}, home);
}

TEST(Usage, OutputThatCannotBeWrittenIsAFailure) {
  const Scratch scratch;
  const std::string model = text_model(scratch);
  for (const std::string& out : {std::string("/dev/full"), std::string("closed")}) {
    const Setting setting{.out = out};
    expect_error(1, {"inspect", "-m", model}, {"standard output"}, setting);
    expect_error(1, {"tokenize", "-m", model, "-p", "hi"}, {"standard output"}, setting);
    expect_error(1, {"generate", "-m", model, "-p", "hi", "-t", "1", "-n", "4"}, {"standard output"}, setting);
  }
}

}  // namespace
}  // namespace galvani::cli
