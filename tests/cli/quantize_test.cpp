/// galvani quantize: against checkpoints that mlx-lm wrote, back through the loader, killed and resumed, and refused.
#include <fmt/format.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <map>

#include "cli/program.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "quant/checkpoint.h"

namespace galvani::cli {
namespace {

using formats::SafetensorsFile;

/// Every tensor of a folder, as text that compares.
std::map<std::string, std::string> tensors_of(const fs::path& folder) {
  std::map<std::string, std::string> result;
  const auto set = formats::SafetensorsSet::open(folder);
  EXPECT_TRUE(set) << (set ? "" : set.error().message);
  if (!set) return result;
  for (const auto& [name, tensor] : set->tensors()) {
    const auto bytes = tensor.file->view(*tensor.entry).bytes;
    result[name] = fmt::format("{} {} ", dtype_name(tensor.entry->dtype), tensor.entry->shape.str()) +
                   std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return result;
}

void expect_same_tensors(const fs::path& is, const fs::path& should) {
  const auto ours = tensors_of(is), theirs = tensors_of(should);
  for (const auto& [name, value] : theirs) {
    const auto found = ours.find(name);
    if (found == ours.end())
      ADD_FAILURE() << is << " lacks " << name;
    else
      EXPECT_TRUE(found->second == value)
          << name << " differs: " << found->second.substr(0, 20) << " and " << value.substr(0, 20);
  }
  EXPECT_EQ(ours.size(), theirs.size());
}

nlohmann::json config_of(const fs::path& folder) { return nlohmann::json::parse(read_file(folder / "config.json")); }

/// A folder with one made-up llama layer less its rest: enough matrices for `plan`, small enough to write by hand.
fs::path one_matrix_model(const Scratch& scratch, const std::string& name, const std::vector<float>& weights,
                          int64_t rows, int64_t cols) {
  fs::create_directory(scratch / name);
  const std::vector<formats::SafetensorsToWrite> tensors = {
      {"model.embed_tokens.weight", DType::kF32, Shape({rows, cols}), std::as_bytes(std::span(weights))}};
  EXPECT_TRUE(formats::write_safetensors(scratch / name / "model.safetensors", tensors, {}));
  write_file(scratch / name / "config.json",
             R"({"model_type":"llama","tie_word_embeddings":true,"dtype":"float32","hidden_size":64,
                 "num_attention_heads":2})");
  return scratch / name;
}

TEST(Quantize, WritesWhatMlxLmWrites) {
  struct Case {
    const char *input, *golden;
    Words flags;
  };
  for (const Case& c : {Case{"hf/llama", "mlx/llama-4-64-affine", {"--bits", "4"}},
                        Case{"hf/qwen3", "mlx/qwen3-6-32-affine", {"--bits", "6", "--group", "32"}}}) {
    const Scratch scratch;
    Words words = {"quantize", "-m", model_data(c.input), "-o", scratch / "out"};
    words.insert(words.end(), c.flags.begin(), c.flags.end());
    const Outcome outcome = run(words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("bits a weight"), std::string::npos) << outcome.out;
    expect_same_tensors(scratch / "out", model_data(c.golden));
    EXPECT_EQ(config_of(scratch / "out")["quantization"], config_of(model_data(c.golden))["quantization"]);
    EXPECT_EQ(scratch.names_with("").size(), 1u) << "nothing but the output is left";
    for (const auto& entry : fs::directory_iterator(scratch / "out"))
      EXPECT_EQ(entry.path().filename().string().find("quantize"), std::string::npos) << entry.path();
  }
}

/// The same for every family and mode of the large fixtures.
TEST(Quantize, WritesWhatMlxLmWritesForEveryFamily) {
  const char* root = std::getenv("GALVANI_FIXTURES");
  if (root == nullptr) GTEST_SKIP() << "GALVANI_FIXTURES names no folder with the large fixtures";
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / "mlx")) {
    const std::string name = entry.path().filename();  // family-bits-group-mode
    std::vector<std::string> words;
    std::istringstream parts(name);
    for (std::string word; std::getline(parts, word, '-');) words.push_back(word);
    const bool trained = words[0] == "trained";
    if (trained) words.erase(words.begin());
    ASSERT_EQ(words.size(), 4u) << name;
    const fs::path input =
        trained ? fs::path(root) / "models" / ("trained-" + words[0]) : fs::path(root) / "tiny" / words[0];
    const Scratch scratch;
    Words command = {"quantize", "-m",      input,    "-o",     scratch / "out", "--bits",
                     words[1],   "--group", words[2], "--mode", words[3]};
    // mlx-lm has no rule for these families' routers; ours treats all routers alike unless told not to.
    if (words[0] == "olmoe" || words[0] == "mixtral") command.insert(command.end(), {"--router-bits", "0"});
    const Outcome outcome = run(command);
    ASSERT_EQ(outcome.code, 0) << name << outcome.err;
    SCOPED_TRACE(name);
    expect_same_tensors(scratch / "out", entry.path());
    ++compared;
  }
  EXPECT_GE(compared, 16);
}

/// Every mode comes back through the loader as what the codes mean, and the model runs.
TEST(Quantize, RoundTripThroughTheLoader) {
  const Scratch scratch;
  const fs::path ids = scratch / "ids.npy";
  std::string data;
  for (const int32_t id : {5, 17, 80, 3}) data.append(reinterpret_cast<const char*>(&id), 4);
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (4,), }";
  header.resize(117, ' ');
  write_file(ids, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + data);
  const auto logits = [&](const fs::path& model) {
    const Outcome outcome = run({"eval", "-m", model, "--ids", ids, "--logits", scratch / "out.npy", "--act", "f32"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("warn"), std::string::npos) << outcome.err;
    std::vector<float> values;
    const auto array = formats::read_npy(scratch / "out.npy");
    EXPECT_TRUE(array);
    if (array) values.resize(array->view.bytes.size() / 4);
    if (array) std::memcpy(values.data(), array->view.bytes.data(), values.size() * 4);
    return values;
  };
  const auto reference = logits(model_data("hf/qwen3"));
  const auto distance = [&](const Words& flags, const std::string& name) {
    Words words = {"quantize", "-m", model_data("hf/qwen3"), "-o", scratch / name};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(run(words).code, 0);
    const auto values = logits(scratch / name);
    double error = 0, size = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(static_cast<double>(values[i]) - reference[i], 2);
      size += std::pow(static_cast<double>(reference[i]), 2);
    }
    return std::sqrt(error / size);
  };
  const double eight = distance({"--bits", "8", "--group", "32"}, "8");
  const double four = distance({"--bits", "4", "--group", "32"}, "4");
  const double two = distance({"--bits", "2", "--group", "32"}, "2");
  EXPECT_LT(eight, 0.04);
  EXPECT_LT(eight, four);
  EXPECT_LT(four, two);
  EXPECT_LT(distance({"--mode", "mxfp8"}, "mxfp8"), 0.3);
  EXPECT_LT(distance({"--mode", "nvfp4"}, "nvfp4"), 1.0);
  EXPECT_LT(distance({"--mode", "mxfp4", "--head-bits", "8", "--attn-bits", "6"}, "mxfp4"), 1.2);
  EXPECT_EQ(distance({"--bits", "2", "--override", ".=16"}, "none"), 0.0) << "nothing is quantised";
  EXPECT_FALSE(config_of(scratch / "none").contains("quantization"));
}

TEST(Quantize, RecipesReachTheModulesTheyName) {
  const Scratch scratch;
  const Outcome outcome =
      run({"quantize", "-m", model_data("hf/llama"), "-o", scratch / "out", "--bits", "3", "--attn-bits", "6",
           "--head-bits", "8", "--override", "layers\\.0\\.mlp=5:32", "--override", "layers\\.0\\.mlp\\.up=16"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto checkpoint = quant::Checkpoint::open(scratch / "out");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto format = [&](const std::string& module) {
    const auto shape = (*checkpoint)->shape(module + ".weight");
    EXPECT_TRUE(shape) << module;
    const auto original = quant::Checkpoint::open(model_data("hf/llama"));
    const Shape whole = *(*original)->shape(module + ".weight");
    const auto matrix = (*checkpoint)->matrix(module, whole[0], whole[1]);
    EXPECT_TRUE(matrix) << (matrix ? "" : matrix.error().message);
    return matrix ? (*matrix)->format() : "";
  };
  EXPECT_EQ(format("model.layers.0.self_attn.q_proj"), "affine 6-bit g64");
  EXPECT_EQ(format("model.layers.1.self_attn.o_proj"), "affine 6-bit g64");
  EXPECT_EQ(format("lm_head"), "affine 8-bit g64");
  EXPECT_EQ(format("model.embed_tokens"), "affine 3-bit g64");
  EXPECT_EQ(format("model.layers.0.mlp.gate_proj"), "affine 5-bit g32");
  EXPECT_EQ(format("model.layers.0.mlp.up_proj"), "bf16");
  EXPECT_EQ(format("model.layers.1.mlp.up_proj"), "affine 3-bit g64");
  const auto quantization = config_of(scratch / "out")["quantization"];
  EXPECT_EQ(quantization["bits"], 3);
  EXPECT_EQ(quantization["model.layers.0.mlp.up_proj"], false);
  EXPECT_EQ(quantization["lm_head"]["bits"], 8);
  EXPECT_FALSE(quantization.contains("model.embed_tokens"));
}

/// A run killed between the rename and the removal of its record.
TEST(Quantize, ARecordInTheOutputIsFinished) {
  const Scratch scratch;
  const Words command = {"quantize", "-m", model_data("hf/llama"), "-o", scratch / "out"};
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 20000, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(run(command).code, 1);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, previous);
  const std::string record = read_file(scratch / "out.partial" / "quantize-progress.json");
  ASSERT_EQ(run(command).code, 0);
  write_file(scratch / "out" / "quantize-progress.json", record);
  expect_error(2, {"quantize", "-m", model_data("hf/llama"), "-o", scratch / "out", "--bits", "8"}, {"out exists"});
  EXPECT_EQ(run(command).code, 0);
  EXPECT_FALSE(fs::exists(scratch / "out" / "quantize-progress.json"));
  expect_same_tensors(scratch / "out", model_data("mlx/llama-4-64-affine"));
  expect_error(2, command, {"out exists"});
}

/// An MLX folder and a GGUF file as input; what already has the wanted format is not touched.
TEST(Quantize, ReadsMlxAndGguf) {
  const Scratch scratch;
  ASSERT_EQ(run({"quantize", "-m", model_data("mlx/llama-4-64-affine"), "-o", scratch / "same", "--bits", "4"}).code,
            0);
  expect_same_tensors(scratch / "same", model_data("mlx/llama-4-64-affine"));
  ASSERT_EQ(run({"quantize", "-m", model_data("mlx/qwen3-6-32-affine"), "-o", scratch / "less", "--bits", "3"}).code,
            0);
  const auto less = quant::Checkpoint::open(scratch / "less");
  ASSERT_TRUE(less) << less.error().message;
  EXPECT_EQ((*(*less)->matrix("model.embed_tokens", 256, 64))->format(), "affine 3-bit g64");
  // The GGUF twins of the tiny models hold the same weights, gemma3's norms with the 1 added.
  for (const char* name : {"qwen2", "gemma3"}) {
    ASSERT_EQ(run({"quantize", "-m", model_data("hf/" + std::string(name)), "-o", scratch / name, "--bits", "5"}).code,
              0);
    const std::string gguf = std::string("gguf/") + name + ".gguf";
    const Outcome outcome = run({"quantize", "-m", model_data(gguf), "-o", scratch / (std::string(name) + "-gguf"),
                                 "--bits", "5", "--tokenizer", GALVANI_TEST_DATA});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("no tokenizer was copied"), std::string::npos) << outcome.out;
    expect_same_tensors(scratch / (std::string(name) + "-gguf"), scratch / name);
  }
  expect_error(1, {"quantize", "-m", model_data("gguf/llama.gguf"), "-o", scratch / "factors"},
               {"Llama 3's rope factors", "Hugging Face folder"});
}

TEST(Quantize, CopiesTokenizerAndGenerationFiles) {
  const Scratch scratch;
  const fs::path model = text_model(scratch);
  write_file(model / "generation_config.json", R"({"eos_token_id":2})");
  ASSERT_EQ(run({"quantize", "-m", model, "-o", scratch / "out"}).code, 0);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    EXPECT_EQ(read_file(scratch / "out" / name), read_file(model / name)) << name;
  const Outcome text = run({"generate", "-m", scratch / "out", "-p", "ab", "-n", "4"});
  EXPECT_EQ(text.code, 0) << text.err;
}

/// Killed in the middle, again and again; the end is what an undisturbed run writes.
TEST(Quantize, AKilledRunIsTakenUpAgain) {
  const Scratch scratch;
  std::vector<float> weights(size_t{6} * 1024 * 512);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::sin(static_cast<float>(i % 100003) * 0.01f);
  // Six megabyte-sized matrices, so that shards of 1 MB hold one each.
  fs::create_directory(scratch / "in");
  std::vector<formats::SafetensorsToWrite> tensors = {{"model.embed_tokens.weight", DType::kF32, Shape({1024, 512}),
                                                       std::as_bytes(std::span(weights).subspan(0, 1024 * 512))}};
  for (size_t i = 1; i < 6; ++i)
    tensors.push_back({fmt::format("model.layers.{}.mlp.up_proj.weight", i), DType::kF32, Shape({1024, 512}),
                       std::as_bytes(std::span(weights).subspan(i * 1024 * 512, 1024 * 512))});
  ASSERT_TRUE(formats::write_safetensors(scratch / "in" / "model.safetensors", tensors, {}));
  write_file(scratch / "in" / "config.json",
             R"({"model_type":"llama","tie_word_embeddings":true,"dtype":"float32","hidden_size":512,
                 "num_attention_heads":8})");
  const auto command = [&](const std::string& out) {
    return Words{"quantize",     "-m", scratch / "in", "-o", scratch / out, "--bits", "8",
                 "--shard-size", "1",  "-t",           "1",  "--force"};  // there is no whole layer
  };
  ASSERT_EQ(run(command("whole")).code, 0);
  EXPECT_EQ(fs::file_size(scratch / "whole" / "model-00001-of-00006.safetensors") / 100000, 5u);

  const char* const kForeign[] = {"notes.tmp", "model-00002-of-00006.safetensors.tmp",
                                  "model-00009-of-00006.safetensors.9.tmp", "config.json.9x.tmp", ".9.tmp"};
  const fs::path partial = scratch / "killed.partial";
  int kills = 0;
  for (int delay = 1; delay < 400 && !fs::exists(scratch / "killed"); delay += 3) {
    Setting setting;
    setting.during = [&](pid_t child, const fs::path&) {
      // Waits for a new shard, then kills the run somewhere in the next one.
      const auto shards = [&] {
        std::error_code ignored;
        int count = 0;
        for (const auto& entry : fs::directory_iterator(partial, ignored))
          count += entry.path().extension() == ".safetensors";
        return count;
      };
      const int before = shards();
      for (int i = 0; i < 2000 && shards() == before && !fs::exists(scratch / "killed"); ++i)
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      kill(child, SIGKILL);
    };
    const Outcome outcome = run(command("killed"), setting);
    if (outcome.code == 0) break;
    ASSERT_EQ(outcome.code, -SIGKILL) << outcome.err;
    if (fs::exists(scratch / "killed")) expect_same_tensors(scratch / "killed", scratch / "whole");
    ++kills;
  }
  EXPECT_GE(kills, 1);
  if (fs::exists(scratch / "killed" / "quantize-progress.json")) {
    EXPECT_EQ(run(command("killed")).code, 0) << "killed after the rename: only the record has to go";
  } else if (!fs::exists(scratch / "killed")) {
    // A finished shard that was damaged since is noticed and written again.
    const fs::path first = partial / "model-00001-of-00006.safetensors";
    ASSERT_TRUE(fs::exists(first));
    std::string bytes = read_file(first);
    bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
    write_file(first, bytes);
    // What a run left unfinished goes; what only looks like it stays, and goes on into the output.
    write_file(partial / "model-00002-of-00006.safetensors.99.tmp", "left behind");
    for (const char* foreign : kForeign) write_file(partial / foreign, "mine");
    expect_error(2, {"quantize", "-m", scratch / "in", "-o", scratch / "killed", "--bits", "4", "--force"},
                 {"killed.partial", "another run", "remove the folder"});
    const Outcome outcome = run(command("killed"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("is damaged; it is written again"), std::string::npos) << outcome.err;
    for (const char* foreign : kForeign) {
      EXPECT_EQ(read_file(scratch / "killed" / foreign), "mine");
      fs::remove(scratch / "killed" / foreign);
    }
  }
  expect_same_tensors(scratch / "killed", scratch / "whole");
  EXPECT_EQ(read_file(scratch / "killed" / "config.json"), read_file(scratch / "whole" / "config.json"));
  EXPECT_EQ(scratch.names_with("partial"), Words{});
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "killed"), {}),
            std::distance(fs::directory_iterator(scratch / "whole"), {}));
}

TEST(Quantize, AnInterruptKeepsWhatIsDone) {
  const Scratch scratch;
  std::vector<float> weights(size_t{4096} * 1024, 0.5f);
  const fs::path model = one_matrix_model(scratch, "in", weights, 4096, 1024);
  Setting setting;
  setting.during = [&](pid_t child, const fs::path&) {
    for (int i = 0; i < 4000 && !fs::exists(scratch / "out.partial"); ++i)
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    kill(child, SIGINT);
  };
  const Outcome outcome = run({"quantize", "-m", model, "-o", scratch / "out", "-t", "1", "--force"}, setting);
  if (outcome.code != 0 &&
      outcome.code != -SIGINT) {  // else it was quicker than the signal, or slower than the handler
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.err.find("the same command goes on"), std::string::npos) << outcome.err;
  }
  ASSERT_EQ(outcome.code == 0 ? 0 : run({"quantize", "-m", model, "-o", scratch / "out", "-t", "1", "--force"}).code,
            0);
  EXPECT_TRUE(fs::exists(scratch / "out" / "config.json"));
}

TEST(Quantize, WeightsThatAreNoNumbersAreNamed) {
  const Scratch scratch;
  std::vector<float> weights(8 * 64, 0.25f);
  const auto refused = [&](const std::string& name, float value, const Words& flags, const Words& needles) {
    weights[3 * 64 + 5] = value;
    const fs::path model = one_matrix_model(scratch, name, weights, 8, 64);
    Words words = {"quantize", "-m", model, "-o", scratch / (name + "-out"), "--force"};
    words.insert(words.end(), flags.begin(), flags.end());
    expect_error(1, words, needles);
    EXPECT_FALSE(fs::exists(scratch / (name + "-out")));
  };
  refused("nan", NAN, {}, {"model.embed_tokens", "row 3, column 5", "NaN"});
  refused("infinite", -INFINITY, {}, {"model.embed_tokens", "row 3, column 5", "infinite"});
  refused("large", 1e6f, {"--dtype", "f16"}, {"row 3, column 5", "larger than the largest f16"});
  refused("plain", NAN, {"--override", "embed=16"}, {"row 3, column 5", "NaN"});
  weights[3 * 64 + 40] = -3e38f;
  refused("wide", 3e38f, {"--bits", "2"}, {"model.embed_tokens", "row 3, group 0", "span more than f32 can hold"});
}

TEST(Quantize, TheOutputAppearsWholeOrNotAtAll) {
  const Scratch scratch;
  const std::string model = model_data("hf/llama");
  write_file(scratch / "file", "mine");
  expect_error(2, {"quantize", "-m", model, "-o", scratch / "file"}, {"file exists", "nothing is overwritten"});
  EXPECT_EQ(read_file(scratch / "file"), "mine");
  fs::create_directory(scratch / "full");
  write_file(scratch / "full" / "note", "mine");
  expect_error(2, {"quantize", "-m", model, "-o", scratch / "full"}, {"full exists"});
  expect_error(2, {"quantize", "-m", model, "-o", scratch / "full/."}, {"a name of its own"});
  expect_error(1, {"quantize", "-m", model, "-o", scratch / "none/out"}, {"there is no folder", "none"});
  expect_error(1, {"quantize", "-m", model, "-o", "/proc/galvani-out"}, {"/proc/galvani-out.partial"});
  expect_error(2, {"quantize", "-m", model, "-o", ""}, {"a name of its own"});
  expect_error(2, {"quantize", "-m", model, "-o", "/"}, {});
  fs::create_directory(scratch / "taken.partial");
  write_file(scratch / "taken.partial" / "note", "mine");
  expect_error(2, {"quantize", "-m", model, "-o", scratch / "taken"}, {"taken.partial holds files"});
  EXPECT_EQ(read_file(scratch / "taken.partial" / "note"), "mine");
  // Nor is a temporary file that no run of this made taken for one of its own.
  fs::remove(scratch / "taken.partial" / "note");
  write_file(scratch / "taken.partial" / "other.tmp", "mine");
  expect_error(2, {"quantize", "-m", model, "-o", scratch / "taken"}, {"taken.partial holds files"});
  EXPECT_EQ(read_file(scratch / "taken.partial" / "other.tmp"), "mine");
  write_file(scratch / "blocked.partial", "mine");
  expect_error(1, {"quantize", "-m", model, "-o", scratch / "blocked"}, {"blocked.partial is in the way"});
  // An empty folder of that name is no loss; a name with a slash behind it is the same folder.
  fs::create_directory(scratch / "empty");
  EXPECT_EQ(run({"quantize", "-m", model, "-o", (scratch / "empty").string() + "/"}).code, 0);
  EXPECT_TRUE(fs::exists(scratch / "empty" / "config.json"));
}

TEST(Quantize, AFullDiskIsAnErrorAndCanBeResumed) {
  const Scratch scratch;
  const Words command = {"quantize", "-m", model_data("hf/llama"), "-o", scratch / "out"};
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 20000, .rlim_max = old.rlim_max};
  // Inherited by the program; this process writes less than that meanwhile, and ignores the signal.
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Outcome outcome = run(command);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("model.safetensors: File too large"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(scratch / "out"));
  EXPECT_EQ(run(command).code, 0);
  expect_same_tensors(scratch / "out", model_data("mlx/llama-4-64-affine"));
}

TEST(Quantize, WhatWouldNotRunIsWrittenOnlyByForce) {
  const Scratch scratch;
  const fs::path half = scratch / "half";
  fs::copy(model_data("hf/llama"), half);
  auto config = nlohmann::json::parse(read_file(half / "config.json"));
  config["num_hidden_layers"] = 3;  // of which the file holds two
  write_file(half / "config.json", config.dump());
  Words words = {"quantize", "-m", half, "-o", scratch / "out"};
  expect_error(1, words, {"model.layers.2.", "This model does not run", "--force"});
  EXPECT_EQ(scratch.names_with("out"), Words{});
  words.emplace_back("--force");
  const Outcome forced = run(words);
  EXPECT_EQ(forced.code, 0) << forced.err;
  EXPECT_NE(forced.err.find("neither will the result"), std::string::npos) << forced.err;
  expect_same_tensors(scratch / "out", model_data("mlx/llama-4-64-affine"));
  // Runs, and has no rule: the reason is its own.
  expect_error(1, {"quantize", "-m", model_data("hf/gpt_oss"), "-o", scratch / "oss"},
               {"gpt_oss is not quantized", "gate and up rows alternate", "MXFP4"});
}

TEST(Quantize, RefusesWhatMakesNoSense) {
  const Scratch scratch;
  const auto with = [&](const Words& more) {
    Words words = {"quantize", "-m", model_data("hf/llama"), "-o", scratch / "out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_error(2, with({"--bits", "7"}), {"affine with 7 bits in groups of 64", "2, 3, 4, 5, 6 or 8 bits"});
  expect_error(2, with({"--group", "16"}), {"groups of 16"});
  expect_error(2, with({"--mode", "mxfp4", "--bits", "8"}), {"mxfp4 with 8 bits"});
  expect_error(2, with({"--mode", "fancy"}), {"fancy"});
  expect_error(2, with({"--attn-bits", "7"}), {"7"});
  expect_error(2, with({"--override", "mlp"}), {"'mlp'", "REGEX=bits"});
  expect_error(2, with({"--override", "mlp=9"}), {"'9' is no width"});
  expect_error(2, with({"--override", "mlp=4:48"}), {"'4:48'"});
  expect_error(2, with({"--override", "mlp=4:"}), {"'4:'"});
  expect_error(2, with({"--override", "(=4"}), {"'('", "no regular expression"});
  expect_error(1, {"quantize", "-m", scratch / "nowhere", "-o", scratch / "out"}, {"nowhere does not exist"});
  fs::create_directory(scratch / "odd");
  fs::copy(model_data("hf/llama") / "model.safetensors", scratch / "odd");
  write_file(scratch / "odd" / "config.json", R"({"model_type":"jamba"})");
  expect_error(1, {"quantize", "-m", scratch / "odd", "-o", scratch / "out"}, {"'jamba'", "qwen3_5_moe"});
  EXPECT_EQ(scratch.names_with("out"), Words{});
}

}  // namespace
}  // namespace galvani::cli
