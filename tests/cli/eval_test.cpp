// galvani eval --ids: logits against the reference implementations, and every way the ids can be wrong.
#include <cmath>
#include <cstring>

#include "cli/program.h"
#include "core/error.h"
#include "formats/npy.h"
#include "formats/safetensors.h"

namespace galvani::cli {
namespace {

std::string bytes_of(const std::string& file, const std::string& tensor) {
  const auto opened = formats::SafetensorsFile::open(model_data(file) / "expected.safetensors");
  EXPECT_TRUE(opened.has_value());
  const auto view = opened ? (*opened)->tensor(tensor) : Result<TensorView>(fail(ErrorCode::kNotFound, "none"));
  EXPECT_TRUE(view.has_value()) << file << " " << tensor;
  if (!view) return {};
  return {reinterpret_cast<const char*>(view->bytes.data()), view->bytes.size()};
}

/// An .npy file of format 1.0.
std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + data;
}

template <typename T>
std::string data_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::string id_array(const std::string& type, const std::vector<T>& ids) {
  return npy(type, fmt::format("({},)", ids.size()), data_of(ids));
}

Words eval_words(const std::string& model, const fs::path& ids, const fs::path& logits) {
  return {"eval", "-m", model, "--ids", ids, "--logits", logits, "--act", "f32", "--kv", "f32", "-t", "1"};
}

TEST(Eval, LogitsOfEachFamilyAndFormat) {
  struct Case {
    const char* model;
    const char* expected;
  };
  for (const auto& [model, expected] :
       {Case{"hf/llama", "hf/llama"}, Case{"hf/qwen2", "hf/qwen2"}, Case{"hf/qwen3", "hf/qwen3"},
        Case{"hf/gemma3", "hf/gemma3"}, Case{"mlx/llama-4-64-affine", "mlx/llama-4-64-affine"},
        Case{"mlx/qwen3-6-32-affine", "mlx/qwen3-6-32-affine"}, Case{"gguf/llama.gguf", "hf/llama"}}) {
    const Scratch scratch;
    const std::string raw = bytes_of(expected, "input_ids_0");
    std::vector<int32_t> ids(raw.size() / 4);
    std::memcpy(ids.data(), raw.data(), raw.size());
    const Outcome outcome =
        run(eval_words(model_data(model), write_file(scratch / "ids.npy", id_array("<i4", ids)), scratch / "out.npy"));
    ASSERT_EQ(outcome.code, 0) << model << outcome.err;
    const auto logits = formats::read_npy(scratch / "out.npy");
    ASSERT_TRUE(logits.has_value());
    const std::string reference = bytes_of(expected, "logits_0");
    ASSERT_EQ(logits->view.dtype, DType::kF32);
    ASSERT_EQ(logits->view.shape[0], static_cast<int64_t>(ids.size()));
    ASSERT_EQ(logits->view.bytes.size(), reference.size());
    double worst = 0;
    for (size_t i = 0; i < reference.size(); i += 4) {
      float is, should;
      std::memcpy(&is, logits->view.bytes.data() + i, 4);
      std::memcpy(&should, reference.data() + i, 4);
      ASSERT_TRUE(std::isfinite(is));
      worst = std::max(worst, std::fabs(static_cast<double>(is) - should));
    }
    EXPECT_LE(worst, 5e-5) << model;
  }
}

TEST(Eval, EveryIntegerTypeAndChunkGivesTheSameRows) {
  const Scratch scratch;
  const std::string model = model_data("hf/llama");
  const auto logits = [&](const std::string& array, const Words& more = {}) {
    Words words = eval_words(model, write_file(scratch / "ids.npy", array), scratch / "out.npy");
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_file(scratch / "out.npy");
  };
  const std::string first = logits(id_array<int32_t>("<i4", {5, 0, 255, 17, 80}));
  EXPECT_EQ(first.size(), 128u + 5 * 256 * 4);
  EXPECT_EQ(logits(id_array<int64_t>("<i8", {5, 0, 255, 17, 80})), first);
  EXPECT_EQ(logits(id_array<uint16_t>("<u2", {5, 0, 255, 17, 80})), first);
  EXPECT_EQ(logits(id_array<int32_t>("<i4", {5, 0, 255, 17, 80}), {"--batch-invariant", "-b", "2"}).size(),
            first.size());
}

TEST(Eval, WhatTheRunReadsIsNotReplaced) {
  const Scratch scratch;
  const fs::path folder = scratch / "model";
  fs::copy(model_data("hf/llama"), folder, fs::copy_options::recursive);
  const fs::path ids = write_file(scratch / "ids.npy", id_array<int32_t>("<i4", {1, 2, 3}));
  for (const fs::path& output : {ids, folder / "config.json", folder / "model.safetensors"}) {
    const std::string before = read_file(output);
    ASSERT_FALSE(before.empty()) << output;
    expect_error(2, eval_words(folder, ids, output), {"--logits " + output.string(), "give another name"});
    EXPECT_EQ(read_file(output), before) << output;
  }
  EXPECT_EQ(run(eval_words(folder, ids, folder / "new.npy")).code, 0) << "nothing is lost by a new file there";
}

TEST(Eval, BadIdsLeaveNoFile) {
  const Scratch scratch;
  struct Case {
    std::string array;
    int code;
    Words needles;
  };
  const std::string good = id_array<int32_t>("<i4", {1, 2, 3});
  const std::vector<Case> cases = {
      {npy("<f4", "(2,)", std::string(8, '\0')), 2, {"one-dimensional array of integers", "f32"}},
      {npy("<i4", "(1, 2)", std::string(8, '\0')), 2, {"one-dimensional", "[1, 2]"}},
      {npy("<i4", "(0,)", ""), 2, {"no ids"}},
      {npy(">i4", "(1,)", std::string(4, '\0')), 1, {">i4"}},
      {good.substr(0, good.size() - 3), 1, {"9 bytes"}},
      {good.substr(0, 20), 1, {"header"}},
      {good + "x", 1, {"13 bytes"}},
      {"", 1, {"not a .npy file"}},
      {id_array<int32_t>("<i4", {1, 2, 256}), 1, {"id 256", "index 2", "0 to 255"}},
      {id_array<int32_t>("<i4", {1, -2}), 1, {"id -2"}},
      {id_array<int64_t>("<i8", {1, int64_t{1} << 40}), 1, {"id 1099511627776"}},
      {id_array("<i4", std::vector<int32_t>(513, 1)), 1, {"513 ids", "512 positions"}}};
  for (const Case& c : cases) {
    expect_error(c.code,
                 eval_words(model_data("hf/llama"), write_file(scratch / "ids.npy", c.array), scratch / "out.npy"),
                 c.needles);
    EXPECT_EQ(scratch.names_with("out"), std::vector<std::string>{});
  }
  expect_error(1, eval_words(model_data("hf/llama"), scratch / "none.npy", scratch / "out.npy"), {"none.npy"});
}

TEST(Eval, TheOutputAppearsWholeOrNotAtAll) {
  const Scratch scratch;
  const std::string model = model_data("hf/llama");
  const fs::path ids = write_file(scratch / "ids.npy", id_array<int32_t>("<i4", {1, 2, 3}));
  expect_error(1, eval_words(model, ids, scratch / "no/out.npy"), {"no/out.npy", "No such file"});
  expect_error(2, eval_words(model, ids, scratch / "."), {"it is a folder"});
  expect_error(2, eval_words(model, ids, ""), {"name of the file"});
  // A link stays one; the file behind it is replaced.
  write_file(scratch / "target.npy", "old");
  fs::create_symlink("target.npy", scratch / "link.npy");
  EXPECT_EQ(run(eval_words(model, ids, scratch / "link.npy")).code, 0);
  EXPECT_TRUE(fs::is_symlink(scratch / "link.npy"));
  EXPECT_EQ(fs::file_size(scratch / "target.npy"), 128u + 3 * 256 * 4);
  // What is no file is written to, never replaced: as root a rename would turn /dev/null into a file.
  const fs::path pipe = scratch / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  size_t received = 0;
  Setting setting;
  setting.during = [&](pid_t, const fs::path&) {
    // Not blocking, so that a program that never opens the pipe fails the test instead of hanging it.
    const int fd = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    char buffer[4096];
    for (int i = 0; i < 10000 && received < 128 + 3 * 256 * 4; ++i) {
      const ssize_t got = read(fd, buffer, sizeof(buffer));
      if (got > 0)
        received += static_cast<size_t>(got);
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    close(fd);
  };
  EXPECT_EQ(run(eval_words(model, ids, pipe), setting).code, 0);
  EXPECT_EQ(received, 128u + 3 * 256 * 4);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(scratch.names_with(".tmp"), std::vector<std::string>{});
}

std::vector<uint16_t> many_ids(size_t count) {
  std::vector<uint16_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<uint16_t>((i * i * 31 + i * 7) % 256);
  return ids;
}

nlohmann::json json_of(const fs::path& path) { return nlohmann::json::parse(read_file(path)); }

/// The perplexity is that of the logits the same program writes.
TEST(Eval, PerplexityIsThatOfTheLogits) {
  const Scratch scratch;
  const auto ids = many_ids(33);
  const std::string model = model_data("hf/qwen3");
  const fs::path file = write_file(scratch / "ids.npy", id_array("<u2", ids));
  ASSERT_EQ(
      run(eval_words(model, write_file(scratch / "first.npy", id_array("<u2", many_ids(32))), scratch / "l.npy")).code,
      0);
  const auto logits = formats::read_npy(scratch / "l.npy");
  ASSERT_TRUE(logits.has_value());
  double nll = 0;
  for (size_t r = 0; r < 32; ++r) {
    double sum = 0;
    const auto at = [&](size_t i) {
      float value;
      std::memcpy(&value, logits->view.bytes.data() + (r * 256 + i) * 4, 4);
      return static_cast<double>(value);
    };
    for (size_t i = 0; i < 256; ++i) sum += std::exp(at(i));
    nll += std::log(sum) - at(ids[r + 1]);
  }
  const Outcome outcome = run({"eval", "-m", model, "--ids", file, "--window", "32", "--act", "f32", "--kv", "f32",
                               "-t", "1", "--json", scratch / "out.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("perplexity"), std::string::npos) << outcome.out;
  const auto json = json_of(scratch / "out.json");
  EXPECT_NEAR(json["ppl"].get<double>(), std::exp(nll / 32), 1e-3 * std::exp(nll / 32));
  EXPECT_EQ(json["tokens"], 32);
  EXPECT_EQ(json["windows"], 1);
  EXPECT_EQ(json["act"], "f32");
  EXPECT_FALSE(json.contains("activations"));
  EXPECT_FALSE(json.contains("against"));
}

TEST(Eval, AgainstAnotherCheckpoint) {
  const Scratch scratch;
  const fs::path ids = write_file(scratch / "ids.npy", id_array("<u2", many_ids(129)));
  const auto against = [&](const std::string& model, const std::string& reference, const Words& more) {
    Words words = {"eval",     "-m", model_data(model), "--against",         model_data(reference), "--ids", ids,
                   "--window", "64", "--json",          scratch / "out.json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("top-1"), std::string::npos) << outcome.out;
    return json_of(scratch / "out.json");
  };
  const auto same = against("hf/llama", "hf/llama", {"--act", "f32", "--kv", "f32"})["against"];
  EXPECT_LE(same["kl_max"].get<double>(), 1e-9);
  EXPECT_EQ(same["top1_agreement"], 1);
  EXPECT_EQ(same["ppl_ratio"], 1);
  const auto four = against("mlx/llama-4-64-affine", "hf/llama", {"--act", "f32", "--kv", "f32"})["against"];
  EXPECT_GT(four["kl_mean"].get<double>(), 1e-3);
  EXPECT_GE(four["kl_p999"].get<double>(), four["kl_mean"].get<double>());
  EXPECT_LT(four["top1_agreement"].get<double>(), 1);
  // f16 activations: close to f32, and counted by layer.
  const auto half = against("hf/llama", "hf/llama", {"--act", "f16"});
  EXPECT_LT(half["against"]["kl_mean"].get<double>(), 1e-4);
  EXPECT_GT(half["against"]["kl_mean"].get<double>(), 0);
  ASSERT_EQ(half["activations"].size(), 3u);
  for (const auto& layer : half["activations"]) {
    EXPECT_GT(layer["values"].get<int64_t>(), 0);
    EXPECT_EQ(layer["non_finite"], 0);
    EXPECT_EQ(layer["saturated"], 0);
  }
}

/// Text through the model's tokenizer: the ids of the byte tokenizer are the characters' codes + 3.
TEST(Eval, TextAndIdsGiveTheSame) {
  const Scratch scratch;
  const fs::path model = text_model(scratch);
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>('a' + i * i % 26);
  std::vector<uint16_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint16_t>(c + 3));
  const auto figures = [&](const Words& input) {
    Words words = {"eval", "-m", model, "--window", "32", "--act", "f32", "--json", "-"};
    words.insert(words.end(), input.begin(), input.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const fs::path text_file = write_file(scratch / "text", text),
                 id_file = write_file(scratch / "ids.npy", id_array("<u2", ids));
  const auto from_text = figures({"--text", text_file}), from_ids = figures({"--ids", id_file});
  EXPECT_EQ(from_text["ppl"], from_ids["ppl"]);
  EXPECT_EQ(from_text["windows"], 3);
  const auto half = figures({"--ids", id_file, "--convention", "llama.cpp"});
  EXPECT_EQ(half["tokens"], 3 * 15);
  EXPECT_EQ(figures({"--ids", id_file, "--windows", "2"})["tokens"], 64);
}

TEST(Eval, ForcedArmsArePrintedAndRecorded) {
  const Scratch scratch;
  const fs::path ids = write_file(scratch / "ids.npy", id_array("<u2", many_ids(33)));
  const auto with = [&](const Words& more) {
    Words words = {"eval", "-m", model_data("hf/llama"), "--ids", ids, "--act", "f32", "--kv", "f32"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  };
  const Words scored = {"--window", "32", "--json", scratch / "out.json"};
  Words forced = scored;
  forced.insert(forced.end(), {"--arm", "qmatmul=ref", "--arm", "attention=tiles"});
  const std::string named = with(forced).out;
  EXPECT_NE(named.find(", kv f32, arms qmatmul=ref attention=tiles, "), std::string::npos) << named;
  EXPECT_EQ(json_of(scratch / "out.json").at("arms"), nlohmann::json({{"qmatmul", "ref"}, {"attention", "tiles"}}));
  const std::string free = with(scored).out;
  EXPECT_EQ(free.find(", arms"), std::string::npos) << free;
  EXPECT_EQ(json_of(scratch / "out.json").at("arms"), nlohmann::json::object());
  const std::string logits = with({"--logits", scratch / "l.npy", "--arm", "qmatmul=ref"}).err;
  EXPECT_NE(logits.find(", kv f32, arms qmatmul=ref\n"), std::string::npos) << logits;
}

TEST(Eval, PerplexityRefusesWhatItCannotScore) {
  const Scratch scratch;
  const std::string model = model_data("hf/llama");
  const fs::path ids = write_file(scratch / "ids.npy", id_array("<u2", many_ids(100)));
  const auto with = [&](const Words& more) {
    Words words = {"eval", "-m", model};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_error(2, with({}), {"--ids IDS.npy or --text FILE"});
  expect_error(2, with({"--ids", ids, "--text", ids}), {"either"});
  expect_error(1, with({"--ids", ids}),
               {"ids.npy: 100 ids are too few", "1 window(s) of 512 take 513", "a smaller --window"});
  expect_error(1, with({"--ids", ids, "--window", "32", "--windows", "4"}), {"4 window(s) of 32 take 129"});
  expect_error(2, with({"--ids", ids, "--window", "1"}), {"--window"});
  expect_error(2, with({"--ids", ids, "--window", "32", "-c", "64"}), {"-c 64: it is of --logits", "32 here"});
  expect_error(2, with({"--ids", ids, "--window", "32", "--convention", "other"}), {"other"});
  expect_error(2, with({"--ids", ids, "--logits", "x", "--json", "y"}), {"excludes"});
  expect_error(1, with({"--ids", ids, "--window", "32", "--against", scratch / "none"}), {"none does not exist"});
  expect_error(1,
               with({"--ids", write_file(scratch / "far.npy", id_array<int32_t>("<i4", std::vector<int32_t>(40, 256))),
                     "--window", "32"}),
               {"id 256 at index 0", "0 to 255"});
  expect_error(2, with({"--ids", write_file(scratch / "f.npy", npy("<f4", "(2,)", std::string(8, '\0')))}), {"f32"});
  expect_error(1, with({"--ids", scratch / "none.npy"}), {"none.npy"});
  expect_error(1, with({"--text", scratch / "none.txt"}), {"none.txt"});
  // Where the figures go is asked before the model is opened; one that fails later has not lost the table.
  const std::string no = scratch / "no/out.json";
  expect_error(1, {"eval", "-m", "/nowhere", "--ids", ids, "--window", "32", "--json", no}, {no, "No such file"});
  expect_error(1, {"eval", "-m", "/nowhere", "--ids", ids, "--logits", no}, {no, "No such file"});
  expect_error(2, with({"--ids", ids, "--window", "32", "--json", ""}), {"name of the file"});
  const Outcome full = expect_error(1, with({"--ids", ids, "--window", "32", "--json", "/dev/full"}), {"/dev/full"});
  EXPECT_EQ(full.out.rfind("perplexity ", 0), 0u) << full.out;
  // A reference with another vocabulary: the tiny llama with half of its head and embedding.
  std::error_code ignored;
  fs::create_directory(scratch / "small", ignored);
  const auto file = formats::SafetensorsFile::open(model_data("hf/llama") / "model.safetensors");
  ASSERT_TRUE(file.has_value());
  std::vector<formats::SafetensorsToWrite> tensors;
  for (const auto& entry : (*file)->tensors()) {
    const TensorView view = (*file)->view(entry);
    const bool cut =
        entry.name.find("embed_tokens") != std::string::npos || entry.name.find("lm_head") != std::string::npos;
    tensors.push_back({entry.name, view.dtype, cut ? Shape({128, view.shape[1]}) : view.shape,
                       cut ? view.bytes.subspan(0, view.bytes.size() / 2) : view.bytes});
  }
  ASSERT_TRUE(formats::write_safetensors(scratch / "small" / "model.safetensors", tensors, {}).has_value());
  auto config = nlohmann::json::parse(read_file(model_data("hf/llama") / "config.json"));
  config["vocab_size"] = 128;
  write_file(scratch / "small" / "config.json", config.dump());
  expect_error(2, with({"--ids", ids, "--window", "32", "--against", scratch / "small"}),
               {"has a vocabulary of 256", "of 128", "only checkpoints of one model"});
}

/// A trained model and the perplexity of its first 32 windows, which mlx and Hugging Face both scored (all 256 would
/// take minutes): Hugging Face's own, and mlx's of its 4-bit copies.
struct Trained {
  const char *name, *model, *ids;
  double ppl;
};
constexpr Trained kTrained[] = {
    {"moe", "models/trained-moe", "models/trained-moe", 16.1810},
    {"hybrid", "models/trained-hybrid", "models/trained-hybrid", 15.4815},
    {"moe_4_64", "mlx/trained-moe-4-64-affine", "models/trained-moe", 16.630980592445127},
    {"hybrid_4_64", "mlx/trained-hybrid-4-64-affine", "models/trained-hybrid", 15.92894939252931}};

/// A test for each model: under sanitizers, on a slow machine, one alone may take two minutes.
class TrainedEval : public testing::TestWithParam<Trained> {};

TEST_P(TrainedEval, HasItsPerplexity) {
  const char* root = std::getenv("GALVANI_FIXTURES");
  if (root == nullptr) GTEST_SKIP() << "GALVANI_FIXTURES names no folder with the large fixtures";
  const Trained& c = GetParam();
  const Outcome outcome =
      run({"eval", "-m", fs::path(root) / c.model, "--ids", fs::path(root) / c.ids / "heldout_ids.npy", "--windows",
           "32", "--act", "f32", "--kv", "f32", "--json", "-"},
          {.limit = std::chrono::seconds(550)});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_NEAR(json["ppl"].get<double>(), c.ppl, 5e-4 * c.ppl);
  EXPECT_EQ(json["tokens"], 32 * 512);
  EXPECT_EQ(json.contains("experts"), std::string(c.model).find("moe") != std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, TrainedEval, testing::ValuesIn(kTrained),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace galvani::cli
