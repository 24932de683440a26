// Gated delta net families: every arm against Hugging Face, what a trained model says of held-out text, and files that
// cannot be right.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "formats/npy.h"
#include "models/model_fixture.h"

namespace galvani::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kArms[] = {"ref", "recurrent", "chunk16", "chunk32", "chunk64"};

LoadOptions with_arm(const char* arm) {
  LoadOptions options;
  options.arms = {{"gated_delta", arm}, {"qmatmul", "rows"}, {"attention", "tiles"}};
  return options;
}

TEST(Hybrid, EveryDeltaArmMatchesTheReference) {
  for (const std::string model : {"hf/qwen3_5", "mlx/qwen3_next-4-32-affine"}) {
    const auto ids = expected<int32_t>(model, "input_ids_0");
    const auto wanted = expected<float>(model, "logits_0");
    for (const char* arm : kArms) {
      auto runner = load(model, with_arm(arm));
      ASSERT_NE(runner, nullptr);
      EXPECT_LE(max_abs_difference(logits_of(*runner, ids), wanted), logits_bound(model)) << model << " " << arm;
      const auto runs = runner->ops().kernels_run();
      const auto ran = std::find_if(runs.begin(), runs.end(),
                                    [&](const auto& run) { return run.first == std::string("gated_delta.") + arm; });
      ASSERT_NE(ran, runs.end()) << arm;
      EXPECT_EQ(ran->second, 3u) << arm;  // three delta-net layers, one chunk of the batch
    }
  }
}

// A prompt of 200 tokens cut anywhere: exactly the same token by token in the recurrent arm, within the bound in the
// chunked ones, and exactly the same where the cuts are multiples of the chunk.
TEST(Hybrid, CutsOfAPromptDoNotMatter) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back((i * 37 + i / 7) % 256);
  for (const auto& [arm, chunk] : {std::pair{"recurrent", 1}, {"chunk16", 16}, {"chunk32", 32}, {"chunk64", 64}}) {
    auto runner = load("hf/qwen3_5", with_arm(arm));
    ASSERT_NE(runner, nullptr);
    const auto whole = logits_of(*runner, ids, 200);
    for (const int64_t cut : {1, 3, 63, 64, 65, 129}) {
      const double difference = max_abs_difference(whole, logits_of(*runner, ids, cut));
      EXPECT_LE(difference, cut % chunk == 0 ? 0.0 : logits_bound("hf/qwen3_5")) << arm << " cut every " << cut;
    }
  }
}

TEST(Hybrid, ArmsThatDoNotExistAreNamed) {
  LoadOptions options;
  options.model = model_data("hf/qwen3_5").string();
  options.arms = {{"gated_delta", "chunk48"}};
  const auto runner = engine::Runner::load(options);
  ASSERT_FALSE(runner.has_value());
  EXPECT_NE(runner.error().message.find("chunk48"), std::string::npos);
  EXPECT_NE(runner.error().message.find("chunk64"), std::string::npos);
}

// GGUF files whose matrices are quantised, against llama.cpp on the same values (scripts/goldens/make_hybrid_gguf.py);
// one holds the beginning of a prediction head, which is left alone.
TEST(Hybrid, GgufFilesMatchLlamaCpp) {
  for (const std::string architecture : {"qwen35", "qwen35moe", "qwen3next"}) {
    const auto golden = formats::SafetensorsFile::open(model_data("gguf/" + architecture + ".safetensors"));
    ASSERT_TRUE(golden.has_value()) << golden.error().message;
    const auto ids = (*golden)->tensor("input_ids"), wanted = (*golden)->tensor("logits");
    ASSERT_TRUE(ids.has_value() && wanted.has_value());
    std::vector<int32_t> input(ids->bytes.size() / 4);
    std::vector<float> logits(wanted->bytes.size() / 4);
    std::memcpy(input.data(), ids->bytes.data(), ids->bytes.size());
    std::memcpy(logits.data(), wanted->bytes.data(), wanted->bytes.size());
    auto runner = load("gguf/" + architecture + ".gguf");
    ASSERT_NE(runner, nullptr);
    EXPECT_EQ(runner->info().layers, architecture == "qwen35" ? 4 : 2);
    EXPECT_LE(max_abs_difference(logits_of(*runner, input), logits), 5e-4) << architecture;
  }
}

// --- held-out text --------------------------------------------------------------------------------------------------

fs::path fixtures() {
  const char* folder = std::getenv("GALVANI_FIXTURES");
  return folder == nullptr ? fs::path() : fs::path(folder);
}

/// Sum of −log p over `windows` windows of 512, each scored alone from its first token.
double negative_log_likelihood(engine::Runner& runner, const std::vector<int32_t>& ids, int windows) {
  const auto vocab = static_cast<size_t>(runner.info().vocab);
  double sum = 0;
  for (int w = 0; w < windows; ++w) {
    const int32_t* window = ids.data() + static_cast<size_t>(w) * 512;
    const std::vector<int32_t> input(window, window + 512);
    const auto status = runner.all_logits(input, 512, [&](int64_t first, int64_t count, const float* rows) -> Status {
      for (int64_t r = 0; r < count; ++r) {
        const float* row = rows + static_cast<size_t>(r) * vocab;
        const float top = *std::max_element(row, row + vocab);
        double total = 0;
        for (size_t i = 0; i < vocab; ++i) total += std::exp(double{row[i]} - top);
        sum -= double{row[window[first + r + 1]]} - top - std::log(total);
      }
      return {};
    });
    EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  }
  return sum;
}

double perplexity(const fs::path& model, int windows, const char* arm) {
  LoadOptions options = with_arm(arm);
  options.arms.resize(1);
  options.model = model.string();
  options.act = "f32";
  options.context = 512;
  const auto runner = engine::Runner::load(options);
  const auto ids = formats::read_npy_ids((fixtures() / "models/trained-hybrid/heldout_ids.npy").string(), 1 << 20);
  EXPECT_TRUE(runner.has_value() && ids.has_value());
  if (!runner || !ids) return 0;
  return std::exp(negative_log_likelihood(**runner, *ids, windows) / (512.0 * windows));
}

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, false);
}

class TrainedHybrid : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(fixtures() / "models/trained-hybrid"))
      GTEST_SKIP() << "GALVANI_FIXTURES names no folder with models/trained-hybrid";
  }
};

// The reference's number is of all 256 windows; GALVANI_LONG_TESTS runs them (a minute or two).
TEST_F(TrainedHybrid, PerplexityOfAllWindowsIsTheReferences) {
  if (std::getenv("GALVANI_LONG_TESTS") == nullptr) GTEST_SKIP() << "GALVANI_LONG_TESTS is not set";
  const fs::path model = fixtures() / "models/trained-hybrid";
  const json wanted = read_json(model / "heldout_eval.json");
  const double got = perplexity(model, wanted["windows"].get<int>(), "auto");
  std::cout << fmt::format("perplexity {:.5f}, the reference's {:.5f}\n", got, wanted["ppl"].get<double>());
  EXPECT_NEAR(got / wanted["ppl"].get<double>(), 1.0, 5e-4);
}

// mlx's perplexity of its own 4-bit checkpoint over its first 32 windows.
TEST_F(TrainedHybrid, PerplexityAtFourBitsIsMlxs) {
  const fs::path model = fixtures() / "mlx/trained-hybrid-4-64-affine";
  if (!fs::exists(model)) GTEST_SKIP() << model.string() << " is not there";
  const json wanted = read_json(model / "mlx_eval.json");
  const double got = perplexity(model, wanted["windows"].get<int>(), "auto");
  std::cout << fmt::format("perplexity {:.5f}, mlx's {:.5f}\n", got, wanted["ppl"].get<double>());
  EXPECT_NEAR(got / wanted["ppl"].get<double>(), 1.0, 5e-4);
}

// The bf16 model over the same 32 windows, for which mlx says 15.4815 (fixtures README), and each arm over one.
TEST_F(TrainedHybrid, PerplexityOfAFewWindowsIsTheSameInEveryArm) {
  const fs::path model = fixtures() / "models/trained-hybrid";
  EXPECT_NEAR(perplexity(model, 32, "auto") / 15.4815, 1.0, 5e-4);
  const double base = perplexity(model, 1, "recurrent");
  for (const char* arm : {"chunk16", "chunk32", "chunk64"})
    EXPECT_NEAR(perplexity(model, 1, arm) / base, 1.0, 1e-6) << arm;
}

// --- files that cannot be right -------------------------------------------------------------------------------------

/// A copy of a committed model whose config and tensors can be changed.
class Copy {
 public:
  explicit Copy(const std::string& model) {
    std::string name = (fs::temp_directory_path() / "galvani-hybrid-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    config = read_json(model_data(model) / "config.json");
    std::ifstream file(model_data(model) / "model.safetensors", std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    bytes = text.str();
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  json header() const { return json::parse(bytes.substr(8, header_bytes())); }
  /// Start of a tensor's data in `bytes`.
  size_t data(const std::string& tensor) const {
    return 8 + header_bytes() + header().at(tensor).at("data_offsets").at(0).get<size_t>();
  }
  /// Replaces the first `from` in the header by `to` of the same length.
  void rename(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
  }
  const fs::path& write() const {
    std::ofstream(folder_ / "config.json") << config.dump();
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << bytes;
    return folder_;
  }
  /// What loading says; empty when it succeeds.
  std::string error() const {
    LoadOptions options;
    options.model = write().string();
    options.act = "f32";
    const auto runner = engine::Runner::load(options);
    return runner ? std::string() : runner.error().message;
  }

  json config;
  std::string bytes;

 private:
  size_t header_bytes() const {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof(size));
    return static_cast<size_t>(size);
  }
  fs::path folder_;
};

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

TEST(Hybrid, ConfigsThatCannotBeAreRefusedByName) {
  struct Case {
    const char* key;
    json value;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"layer_types", json::array({"linear_attention", "full_attention"}), {"layer_types", "2", "4"}},
      {"layer_types",
       json::array({"linear_attention", "mamba", "linear_attention", "full_attention"}),
       {"layer_types[1]", "mamba", "linear_attention"}},
      {"layer_types",
       json::array({"linear_attention", "full_attention", "linear_attention", "full_attention"}),
       {"self_attn"}},  // layer 1 has no such tensors
      {"linear_num_value_heads", 5, {"linear_num_value_heads 5", "linear_num_key_heads 2"}},
      {"linear_num_key_heads", 0, {"linear_num_key_heads"}},
      {"linear_num_value_heads", 8, {"in_proj_qkv", "[128, 64]"}},
      {"linear_key_head_dim", 32, {"in_proj_qkv"}},
      {"linear_conv_kernel_dim", 3, {"conv1d", "[128, 1, 4]", "[128, 1, 3]"}},
      {"linear_conv_kernel_dim", 1, {"linear_conv_kernel_dim"}},
      {"linear_conv_kernel_dim", 1000000, {"linear_conv_kernel_dim"}},
      {"output_gate_type", "gelu", {"output_gate_type", "gelu", "sigmoid"}},
      {"num_key_value_heads", 3, {"num_attention_heads 4", "num_key_value_heads 3"}},
      {"attn_output_gate", false, {"q_proj"}},
      {"partial_rotary_factor", 2.0, {"partial_rotary_factor"}},
      {"hidden_act", "relu", {"hidden_act", "relu"}},
  };
  for (const Case& one : cases) {
    Copy copy("hf/qwen3_5");
    copy.config[one.key] = one.value;
    if (std::string(one.key) == "partial_rotary_factor") copy.config["rope_parameters"][one.key] = one.value;
    SCOPED_TRACE(one.key);
    expect_words(copy.error(), one.words);
  }
  Copy copy("mlx/qwen3_next-4-32-affine");
  copy.config["num_experts_per_tok"] = 9;
  expect_words(copy.error(), {"9", "8"});
}

// full_attention_interval says the same as layer_types; and a config that nests the language model is read alike.
TEST(Hybrid, BothGenerationsOfKeysAreRead) {
  const auto ids = expected<int32_t>("hf/qwen3_5", "input_ids_1");
  const auto wanted = expected<float>("hf/qwen3_5", "logits_1");
  const auto check = [&](const Copy& copy) {
    LoadOptions options;
    options.model = copy.write().string();
    options.act = "f32";
    auto runner = engine::Runner::load(options);
    ASSERT_TRUE(runner.has_value()) << runner.error().message;
    EXPECT_LE(max_abs_difference(logits_of(**runner, ids), wanted), 5e-4);
  };
  Copy interval("hf/qwen3_5");
  interval.config.erase("layer_types");
  interval.config["full_attention_interval"] = 4;
  check(interval);
  Copy older("hf/qwen3_5");
  older.config.erase("rope_parameters");
  older.config["rope_theta"] = 1e7;
  older.config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 1, 1}}};
  older.config["partial_rotary_factor"] = 0.25;
  older.config["output_gate_type"] = "swish";
  check(older);
  Copy nested("hf/qwen3_5");
  json text = nested.config;
  text["rope_parameters"]["mrope_section"] = {2, 1, 1};
  text["rope_parameters"]["mrope_interleaved"] = true;
  text.erase("tie_word_embeddings");
  nested.config = {{"model_type", "qwen3_5"},
                   {"text_config", text},
                   {"tie_word_embeddings", false},
                   {"vision_config", {{"depth", 2}}},
                   {"vision_start_token_id", 7}};
  check(nested);
}

// The gate's activation is the delta net's own; a sigmoid there changes the answer and is not applied to attention.
TEST(Hybrid, OutputGateTypeChangesTheDeltaNetAlone) {
  const auto ids = expected<int32_t>("hf/qwen3_5", "input_ids_1");
  const auto wanted = expected<float>("hf/qwen3_5", "logits_1");
  Copy copy("hf/qwen3_5");
  copy.config["output_gate_type"] = "sigmoid";
  LoadOptions options;
  options.model = copy.write().string();
  options.act = "f32";
  auto runner = engine::Runner::load(options);
  ASSERT_TRUE(runner.has_value()) << runner.error().message;
  EXPECT_GT(max_abs_difference(logits_of(**runner, ids), wanted), 1e-2);
}

TEST(Hybrid, DamagedTensorsAreNamed) {
  Copy missing("hf/qwen3_5");
  missing.rename("layers.1.linear_attn.A_log", "layers.1.linear_attn.B_log");
  expect_words(missing.error(), {"layers.1.linear_attn.A_log"});
  for (const char* name : {"A_log", "dt_bias", "norm.weight", "conv1d.weight"}) {
    Copy damaged("hf/qwen3_5");
    const std::string tensor = std::string("model.layers.2.linear_attn.") + name;
    damaged.bytes.replace(damaged.data(tensor) + 2, 2, "\xc0\x7f");  // a NaN in bf16
    expect_words(damaged.error(), {tensor, "nan"});
  }
  Copy scale("mlx/qwen3_5-4-64-affine");
  const std::string scales = "language_model.model.layers.1.linear_attn.in_proj_qkv.scales";
  scale.bytes.replace(scale.data(scales) + 20, 2, "\xc0\x7f");
  expect_words(scale.error(), {"layers.1.linear_attn.in_proj_qkv"});
}

/// 4-bit codes as 8-bit ones: the same numbers in another width.
std::vector<std::byte> widened(std::span<const std::byte> codes) {
  std::vector<std::byte> bytes;
  for (const std::byte two : codes) {
    bytes.push_back(two & std::byte{15});
    bytes.push_back(two >> 4);
  }
  return bytes;
}

// Parts of one product may have their own widths: z and a (or b | a) of every layer in 8 bits, the others in 4.
TEST(Hybrid, PartsOfOneProductMayHaveTheirOwnBits) {
  struct Case {
    const char* model;
    std::vector<std::string> parts;
  };
  for (const Case& one :
       {Case{"mlx/qwen3_5-4-64-affine", {"in_proj_z", "in_proj_a"}}, Case{"mlx/qwen3_next-4-32-affine", {"in_proj_ba"}},
        Case{"mlx/qwen3_next-4-32-affine", {"in_proj_qkvz"}}}) {
    Copy copy(one.model);
    const auto file = formats::SafetensorsFile::open(model_data(one.model) / "model.safetensors");
    ASSERT_TRUE(file.has_value());
    std::vector<formats::SafetensorsToWrite> tensors;
    std::vector<std::vector<std::byte>> kept(64);
    size_t widths = 0;
    const json header = copy.header();
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const auto view = (*file)->tensor(name);
      ASSERT_TRUE(view.has_value());
      formats::SafetensorsToWrite tensor{name, view->dtype, view->shape, view->bytes};
      for (const std::string& part : one.parts) {
        if (!name.ends_with(part + ".weight")) continue;
        ASSERT_LT(widths, kept.size());
        kept[widths] = widened(view->bytes);
        tensor.bytes = kept[widths++];
        tensor.shape = Shape({view->shape[0], 2 * view->shape[1]});
        std::string module = name.substr(0, name.size() - 7);
        const auto group = copy.config["quantization"]["group_size"];
        copy.config["quantization"][module] = {{"bits", 8}, {"group_size", group}};
      }
      tensors.push_back(tensor);
    }
    EXPECT_EQ(widths, 3 * one.parts.size());
    const fs::path folder = copy.write();
    ASSERT_TRUE(formats::write_safetensors(folder / "model.safetensors", tensors, {{"format", "mlx"}}).has_value());
    LoadOptions options;
    options.model = folder.string();
    options.act = "f32";
    auto runner = engine::Runner::load(options);
    ASSERT_TRUE(runner.has_value()) << runner.error().message;
    const auto ids = expected<int32_t>(one.model, "input_ids_0");
    EXPECT_LE(max_abs_difference(logits_of(**runner, ids), expected<float>(one.model, "logits_0")), 5e-4)
        << one.model << " " << one.parts.front();
  }
}

// Heads for predicting several tokens ahead and vision towers are left alone, and the load says nothing of them.
TEST(Hybrid, TensorsOfMtpAndVisionAreLeftUnread) {
  Copy copy("hf/qwen3_5");
  copy.config["mtp_num_hidden_layers"] = 1;
  const auto file = formats::SafetensorsFile::open(model_data("hf/qwen3_5") / "model.safetensors");
  ASSERT_TRUE(file.has_value());
  const std::vector<std::byte> extra(8, std::byte{0});
  const fs::path folder = copy.write();
  std::vector<formats::SafetensorsToWrite> tensors;
  const json header = copy.header();
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto view = (*file)->tensor(name);
    ASSERT_TRUE(view.has_value());
    tensors.push_back({name, view->dtype, view->shape, view->bytes});
  }
  for (const char* name :
       {"mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight", "model.visual.patch_embed.proj.weight"})
    tensors.push_back({name, DType::kBF16, Shape({2, 2}), extra});
  ASSERT_TRUE(formats::write_safetensors(folder / "model.safetensors", tensors, {}).has_value());
  LoadOptions options;
  options.model = folder.string();
  options.act = "f32";
  auto runner = engine::Runner::load(options);
  ASSERT_TRUE(runner.has_value()) << runner.error().message;
  const auto ids = expected<int32_t>("hf/qwen3_5", "input_ids_1");
  EXPECT_LE(max_abs_difference(logits_of(**runner, ids), expected<float>("hf/qwen3_5", "logits_1")), 5e-4);
}

// A step that fails leaves recurrent sequences unusable rather than half advanced; others are not affected.
TEST(Hybrid, AFailedStepSpoilsItsSequencesOnly) {
  LoadOptions options;
  options.max_sequences = 2;
  auto runner = load("hf/qwen3_5", options);
  ASSERT_NE(runner, nullptr);
  const auto step = [&](exec::SeqId sequence, int32_t position, std::vector<int32_t> ids) {
    exec::Batch batch;
    batch.add(sequence, position, ids, exec::WantLogits::kLast);
    return runner->forward(batch);
  };
  const auto bad = runner->state().create_sequence(), good = runner->state().create_sequence();
  ASSERT_TRUE(bad.has_value() && good.has_value());
  ASSERT_TRUE(step(*bad, 0, {1, 2, 3}).has_value());
  ASSERT_TRUE(step(*good, 0, {1, 2, 3}).has_value());
  expect_words(step(*bad, 3, {4, 100000}).error().message, {"100000"});
  expect_words(step(*bad, 3, {4}).error().message, {"recurrent state"});
  EXPECT_TRUE(step(*good, 3, {4}).has_value());
  expect_words(runner->state().truncate(*good, 2).error().message, {"recurrent state"});
  runner->state().release(*bad);
  const auto again = runner->state().create_sequence();
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(step(*again, 0, {4}).has_value());
}

}  // namespace
}  // namespace galvani::models
