/// Ids and texts against the Rust `tokenizers` package, version 0.23 (goldens:
/// scripts/goldens/make_tokenizer_goldens.py).
#include <ctime>

#include "text/detokenizer.h"
#include "text/tokenizer_testing.h"

namespace galvani::text {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::string golden_at(const nlohmann::json& golden, const char* key, size_t index) {
  return golden.at(key).get_ref<const std::string&>().substr(index * 8, 8);
}

void expect_ids(const Tokenizer& tokenizer, const nlohmann::json& golden) {
  const auto& strings = test_strings();
  ASSERT_GE(strings.size(), 2000u);
  ASSERT_EQ(golden.at("encode").get_ref<const std::string&>().size(), strings.size() * 8) << "stale golden";
  for (size_t i = 0; i < strings.size(); ++i) {
    const auto ids = tokenizer.encode(strings[i]);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(fnv_hex(*ids), golden_at(golden, "encode", i)) << "string " << i << ": " << strings[i] << shown(*ids);
    const auto plain = tokenizer.encode(strings[i], {.add_special = false, .parse_special = false});
    ASSERT_TRUE(plain) << plain.error().message;
    EXPECT_EQ(fnv_hex(*plain), golden_at(golden, "encode_plain", i)) << "string " << i << ": " << strings[i];
  }
  if (!golden.contains("ids")) return;
  for (size_t i = 0; i < golden.at("ids").size(); ++i) {
    EXPECT_EQ(shown(*tokenizer.encode(strings[i * 24])), golden.at("ids").at(i).dump()) << strings[i * 24];
  }
}

void expect_texts(const std::shared_ptr<const Tokenizer>& tokenizer, const nlohmann::json& golden) {
  const auto sequences = id_sequences(golden.at("vocab_size").get<uint64_t>(), 1000);
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (const bool skip : {false, true}) {
      const std::string text = tokenizer->decode(sequences[i], skip);
      EXPECT_EQ(fnv_hex(text), golden_at(golden, skip ? "decode_skip" : "decode", i)) << shown(sequences[i]) << text;
      Detokenizer stream(tokenizer, skip);
      std::string streamed;
      for (const int32_t id : sequences[i]) {
        const std::string part = stream.push(id);
        EXPECT_EQ(find_invalid_utf8(part), std::string::npos);
        streamed += part;
      }
      EXPECT_EQ(streamed + stream.finish(), text) << shown(sequences[i]);
    }
  }
}

/// 100 KB without a space: right, and far from quadratic (a second is some fifty times what it takes).
void expect_long_texts(const Tokenizer& tokenizer, const nlohmann::json& golden) {
  const auto texts = long_texts();
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::clock_t start = std::clock();  // processor time: other programs must not decide the test
    const auto ids = tokenizer.encode(texts[i]);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(fnv_hex(*ids), golden_at(golden, "long", i)) << "long text " << i;
    if (!kSanitized) {
      EXPECT_LT(seconds, 1.0) << "long text " << i;
    }
  }
}

class TinyTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(TinyTokenizer, MatchesRust) {
  const auto folder = tokenizer_data() / "tiny";
  const auto tokenizer = Tokenizer::from_json_file(folder / (std::string(GetParam()) + ".json"));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto golden = read_json(folder / (std::string(GetParam()) + ".golden.json"));
  expect_ids(**tokenizer, golden);
  expect_texts(*tokenizer, golden);
  expect_long_texts(**tokenizer, golden);
}

INSTANTIATE_TEST_SUITE_P(All, TinyTokenizer,
                         testing::Values("characters", "deepseek", "flags", "folded", "gemma", "gpt2", "llama2",
                                         "llama3", "metaspace_always", "metaspace_first", "metaspace_never", "o200k",
                                         "qwen", "qwen35", "smollm", "split_contiguous", "split_next", "split_previous",
                                         "split_removed"),
                         [](const auto& param) { return std::string(param.param); });

class RealTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(RealTokenizer, MatchesRust) {
  const char* fixtures = std::getenv("GALVANI_FIXTURES");
  if (!fixtures) GTEST_SKIP() << "GALVANI_FIXTURES is not set; the real tokenizer files are too large to commit";
  const auto folder = std::filesystem::path(fixtures) / "tokenizers" / GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  const auto tokenizer = open_tokenizer(folder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto golden = read_json(tokenizer_data() / "real" / (std::string(GetParam()) + ".golden.json"));
  expect_ids(**tokenizer, golden);
  expect_texts(*tokenizer, golden);
  expect_long_texts(**tokenizer, golden);
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizer, testing::Values("deepseek_v3", "gemma3", "gptoss", "llama3_1", "qwen3"),
                         [](const auto& param) { return std::string(param.param); });

TEST(RealTokenizers, SpecialTokensOfTheConfig) {
  const char* fixtures = std::getenv("GALVANI_FIXTURES");
  if (!fixtures) GTEST_SKIP() << "GALVANI_FIXTURES is not set; the real tokenizer files are too large to commit";
  const auto folder = std::filesystem::path(fixtures) / "tokenizers";
  const auto gemma = open_tokenizer(folder / "gemma3"), llama = open_tokenizer(folder / "llama3_1");
  ASSERT_TRUE(gemma) << gemma.error().message;
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ((*gemma)->bos_id(), 2);
  EXPECT_EQ((*gemma)->eos_id(), (*gemma)->id_of("<end_of_turn>"));
  EXPECT_EQ((*gemma)->vocab_size(), 262145u);
  EXPECT_EQ((*llama)->bos_id(), 128000);
  EXPECT_EQ((*llama)->eos_id(), 128009);
  EXPECT_TRUE((*llama)->is_special(128009));
  EXPECT_FALSE((*llama)->is_special(100));
  EXPECT_EQ((*llama)->token_bytes(*(*llama)->id_of("Ġthe")), " the");
  EXPECT_EQ((*gemma)->token_bytes(*(*gemma)->id_of("▁the")), " the");
  EXPECT_EQ((*gemma)->token_bytes(*(*gemma)->id_of("<0xE2>")), "\xE2");
}

}  // namespace
}  // namespace galvani::text
