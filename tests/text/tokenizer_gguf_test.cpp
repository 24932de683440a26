/// The tokenizers inside GGUF files, against llama.cpp on the real ones and against tokenizer.json on small ones.
#include "formats/gguf.h"
#include "text/tokenizer_testing.h"

namespace galvani::text {
namespace {

/// A tokenizer.json's model and added tokens as GGUF keys.
GgufVocab vocab_of(const nlohmann::json& root, const std::string& model, const std::string& pre) {
  GgufVocab vocab;
  vocab.model = model;
  vocab.pre = pre;
  const auto put = [&](const std::string& text, size_t id, int32_t type) {
    if (id >= vocab.tokens.size()) vocab.tokens.resize(id + 1), vocab.token_types.resize(id + 1, 1);
    vocab.tokens[id] = text;
    vocab.token_types[id] = type;
  };
  for (const auto& [text, id] : root.at("model").at("vocab").items()) put(text, id.get<size_t>(), 1);
  for (const auto& token : root.at("added_tokens")) {
    put(token.at("content"), token.at("id"), token.at("special").get<bool>() ? 3 : 4);
  }
  for (const auto& merge : root.at("model").at("merges")) {
    vocab.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                             : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return vocab;
}

/// A vocabulary in GGUF form gives the ids of the tokenizer.json it came from.
void expect_same(const char* name, const std::string& model, const std::string& pre) {
  const auto path = tokenizer_data() / "tiny" / (std::string(name) + ".json");
  const auto from_json = Tokenizer::from_json_file(path);
  ASSERT_TRUE(from_json) << from_json.error().message;
  GgufVocab vocab = vocab_of(read_json(path), model, pre);
  vocab.add_bos = false;
  if (const auto unk = (*from_json)->id_of("<unk>")) vocab.unk_id = *unk;
  const auto from_gguf = Tokenizer::from_gguf_vocab(vocab, name);
  ASSERT_TRUE(from_gguf) << from_gguf.error().message;
  for (const std::string& text : test_strings()) {
    for (const bool parse : {true, false}) {
      const auto expected = (*from_json)->encode(text, {.add_special = false, .parse_special = parse});
      const auto ids = (*from_gguf)->encode(text, {.add_special = false, .parse_special = parse});
      ASSERT_TRUE(expected && ids);
      ASSERT_EQ(shown(*ids), shown(*expected)) << text;
      EXPECT_EQ((*from_gguf)->decode(*ids, true), (*from_json)->decode(*ids, true));
    }
  }
}

TEST(TokenizerGguf, ByteLevelKindsEqualTokenizerJson) {
  expect_same("qwen", "gpt2", "qwen2");
  expect_same("qwen35", "gpt2", "qwen35");
  expect_same("llama3", "gpt2", "llama-bpe");
  expect_same("deepseek", "gpt2", "deepseek-v3");
}

TEST(TokenizerGguf, MergesOverSentencePieceTexts) { expect_same("gemma", "gemma4", ""); }

GgufVocab small_spm() {
  GgufVocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a", "▁ab", "ba", "<0xC3>", "<0xA9>", "XY"};
  vocab.scores = {0, 0, 0, -9, -10, -10, -1, -2, -3, -1, 0, 0, 0};
  vocab.token_types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 6, 4};
  vocab.bos_id = 1;
  vocab.eos_id = 2;
  vocab.unk_id = 0;
  return vocab;
}

TEST(TokenizerGguf, SentencePieceByHand) {
  const auto tokenizer = Tokenizer::from_gguf_vocab(small_spm(), "small");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = [&](std::string_view text, EncodeOptions options = {}) {
    return shown(*(*tokenizer)->encode(text, options));
  };
  EXPECT_EQ(ids("ab"), "[1,8]");           // dummy prefix: "▁ab", by ab (−1) and then ▁ab (−3)
  EXPECT_EQ(ids("aba"), "[1,8,4]");        // ab and ba score alike: the left one goes first
  EXPECT_EQ(ids("é"), "[1,3,10,11]");      // bytes
  EXPECT_EQ(ids("z"), "[1,3,0]");          // no byte token: unknown
  EXPECT_EQ(ids("aXYb"), "[1,7,12,3,5]");  // the dummy prefix comes again after a token
  EXPECT_EQ(ids("</s>a"), "[1,2,7]");
  EXPECT_EQ(ids("a", {.add_special = false}), "[7]");
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{1, 8, 10, 11, 7}, true), "abé a");
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{8, 10, 4}, true),
            "ab\xEF\xBF\xBD"
            "a");
}

TEST(TokenizerGguf, RefusesWhatItCannotKnow) {
  const auto error = [](const GgufVocab& vocab) {
    const auto tokenizer = Tokenizer::from_gguf_vocab(vocab, "file.gguf");
    return tokenizer ? std::string("loaded") : tokenizer.error().message;
  };
  GgufVocab vocab = vocab_of(nlohmann::json::parse(small_json()), "gpt2", "no-such-pre");
  EXPECT_NE(error(vocab).find("no-such-pre"), std::string::npos) << error(vocab);
  EXPECT_NE(error(vocab).find("llama-bpe"), std::string::npos) << "lists the known ones: " << error(vocab);
  vocab.pre = "gpt-2";
  EXPECT_EQ(error(vocab), "loaded");
  vocab.merges.push_back("a nothing");
  EXPECT_NE(error(vocab).find("a nothing"), std::string::npos) << error(vocab);
  vocab.model = "t5";
  EXPECT_NE(error(vocab).find("t5"), std::string::npos) << error(vocab);
  vocab = small_spm();
  vocab.bos_id = 4294967295;
  EXPECT_NE(error(vocab).find("4294967295"), std::string::npos) << error(vocab);
  vocab = small_spm();
  vocab.scores.pop_back();
  EXPECT_NE(error(vocab).find("12 entries for 13 tokens"), std::string::npos) << error(vocab);
  vocab = small_spm();
  vocab.scores[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(error(vocab).find("not finite"), std::string::npos) << error(vocab);
  vocab = small_spm();
  vocab.tokens[10] = "<0x-1>";  // no byte: a token like any other
  EXPECT_EQ(error(vocab), "loaded");
  vocab.tokens.clear();
  EXPECT_NE(error(vocab).find("empty"), std::string::npos) << error(vocab);
}

/// A real model's file, wherever GALVANI_CACHE keeps it; empty when it is not there.
std::filesystem::path cached(const char* name) {
  const char* cache = std::getenv("GALVANI_CACHE");
  std::error_code error;
  if (!cache || !std::filesystem::is_directory(cache, error)) return {};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache, error)) {
    if (entry.path().filename() == name) return entry.path();
  }
  return {};
}

void expect_llama_cpp(const char* file, const char* golden_name) {
  const auto path = cached(file);
  if (path.empty()) GTEST_SKIP() << "no " << file << " below GALVANI_CACHE; make demo fetches it";
  const auto tokenizer = open_tokenizer(path);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto golden = read_json(tokenizer_data() / "gguf" / golden_name);
  const auto& encode = golden.at("encode").get_ref<const std::string&>();
  const auto& plain = golden.at("encode_plain").get_ref<const std::string&>();
  const auto& strings = test_strings();
  ASSERT_EQ(encode.size(), strings.size() * 8) << "stale golden";
  size_t compared = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    if (encode.substr(i * 8, 8) == "00000000") continue;  // what the golden's script left out
    ++compared;
    const auto ids = (*tokenizer)->encode(strings[i]);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(fnv_hex(*ids), encode.substr(i * 8, 8)) << strings[i] << shown(*ids);
    const auto raw = (*tokenizer)->encode(strings[i], {.add_special = false, .parse_special = false});
    ASSERT_TRUE(raw) << raw.error().message;
    EXPECT_EQ(fnv_hex(*raw), plain.substr(i * 8, 8)) << strings[i] << shown(*raw);
  }
  EXPECT_GE(compared, 2000u);
  const auto size = golden.at("vocab_size").get<uint64_t>();
  EXPECT_EQ((*tokenizer)->vocab_size(), size);
  SplitMix r(size);
  const auto& pieces = golden.at("pieces").get_ref<const std::string&>();
  for (size_t i = 0; i < 3000; ++i) {
    const auto id = static_cast<int32_t>(r.below(size));
    if (pieces.substr(i * 8, 8) == "00000000") continue;
    EXPECT_EQ(fnv_hex((*tokenizer)->token_bytes(id)), pieces.substr(i * 8, 8)) << id;
  }
}

TEST(TokenizerGguf, SmolLm2MatchesLlamaCpp) { expect_llama_cpp("smollm2-135m.gguf", "smollm2.golden.json"); }
TEST(TokenizerGguf, Gemma3MatchesLlamaCpp) { expect_llama_cpp("gemma3-270m.gguf", "gemma3_270m.golden.json"); }

}  // namespace
}  // namespace galvani::text
