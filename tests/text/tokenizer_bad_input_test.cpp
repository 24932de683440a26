/// Files that break their own rules and texts meant to hurt: a clear error or the right ids, never a crash.
#include <thread>

#include "text/tokenizer_testing.h"

namespace galvani::text {
namespace {

using Json = nlohmann::json;

std::string load_error(const std::string& json) {
  const auto tokenizer = Tokenizer::from_json(json, "bad.json");
  return tokenizer ? std::string("loaded") : tokenizer.error().message;
}

void expect_error(const Json& fields, std::string_view part) {
  const std::string message = load_error(small_json(fields));
  EXPECT_NE(message.find(part), std::string::npos) << "got: " << message;
  EXPECT_EQ(message.find("bad.json: "), 0u) << message;
}

TEST(TokenizerBadInput, BrokenJson) {
  for (const std::string json :
       {"", "{", "[]", "null", "{\"model\":{}}", "{\"model\":null}", "\xFF\xFE", "{\"a\":\"\\ud800\"}"}) {
    EXPECT_NE(load_error(json), "loaded") << json;
  }
  const std::string good = small_json();
  ASSERT_EQ(load_error(good), "loaded");
  for (size_t length = 0; length < good.size(); ++length) EXPECT_NE(load_error(good.substr(0, length)), "loaded");
  EXPECT_NE(load_error(std::string(100000, '[')), "loaded");
}

TEST(TokenizerBadInput, VocabularyAndMerges) {
  expect_error({{"model", {{"vocab", {{"q1", -1}}}}}}, "q1");
  expect_error({{"model", {{"vocab", {{"q1", 1.5}}}}}}, "q1");
  expect_error({{"model", {{"vocab", {{"q1", "7"}}}}}}, "q1");
  expect_error({{"model", {{"vocab", {{"q1", 4294967295}}}}}}, "ids must lie in");
  expect_error({{"model", {{"vocab", {{"q1", 9007199254740993}}}}}}, "ids must lie in");
  expect_error({{"model", {{"vocab", {{"q1", 0}}}}}}, "share id 0");
  expect_error({{"model", {{"vocab", {1, 2}}}}}, "\"vocab\" is of another type");
  expect_error({{"model", {{"merges", {"a x1"}}}}}, "\"x1\" is not in the vocabulary");
  expect_error({{"model", {{"merges", {"a z"}}}}}, "\"az\" is not in the vocabulary");
  expect_error({{"model", {{"merges", {"a b c"}}}}}, "merges[0]");
  expect_error({{"model", {{"merges", {"ab"}}}}}, "merges[0]");
  expect_error({{"model", {{"merges", {7}}}}}, "merges[0]");
  expect_error({{"model", {{"merges", Json::array({Json::array({"a"})})}}}}, "merges[0]");
  expect_error({{"model", {{"merges", nullptr}}}}, "\"merges\" is missing");
  const std::string twice = R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})";
  EXPECT_NE(load_error(twice).find("listed twice"), std::string::npos) << load_error(twice);
}

TEST(TokenizerBadInput, UnknownComponentsAreNamed) {
  expect_error({{"model", {{"type", "Unigram"}}}}, "Unigram");
  expect_error({{"normalizer", {{"type", "Precompiled"}}}}, "Precompiled");
  expect_error({{"normalizer", {{"type", "Precompiled"}}}}, "supported are Sequence, NFC");
  expect_error({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}, "UnicodeScripts");
  expect_error({{"decoder", {{"type", "CTC"}}}}, "CTC");
  expect_error({{"post_processor", {{"type", "Mystery"}}}}, "Mystery");
  expect_error({{"normalizer", {{"kind", "NFC"}}}}, "\"type\" is missing");
  expect_error({{"normalizer", "NFC"}}, "must be an object");
  expect_error({{"model", {{"dropout", 0.1}}}}, "dropout");
  expect_error({{"model", {{"end_of_word_suffix", "</w>"}}}}, "</w>");
  expect_error({{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(("}}}, {"behavior", "Isolated"}}}},
               "((");
  expect_error({{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Sideways"}}}},
               "Sideways");
  expect_error({{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}}}},
               "pattern is empty");
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) nested = {{"type", "Sequence"}, {"normalizers", Json::array({nested})}};
  expect_error({{"normalizer", nested}}, "nested more than 16 deep");
}

TEST(TokenizerBadInput, PostProcessorIdsMustExist) {
  const auto processor = [](const Json& ids) {
    return Json{{"post_processor",
                 {{"type", "TemplateProcessing"},
                  {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}})},
                  {"special_tokens", {{"<s>", {{"ids", ids}}}}}}}};
  };
  EXPECT_EQ(load_error(small_json(processor({3}))), "loaded");
  expect_error(processor({28}), "token id 28, which does not exist");
  expect_error(processor({-1}), "must hold token ids");
  expect_error(processor({4294967297}), "must hold token ids");
}

TEST(TokenizerBadInput, AddedTokens) {
  const auto token = [](const Json& content, const Json& id) {
    return Json{{"added_tokens", Json::array({{{"content", content}, {"id", id}, {"special", true}}})}};
  };
  expect_error(token("<x>", -5), "\"id\"");
  expect_error(token(7, 28), "\"content\"");
  // An id that does not fit the order gives way to the order, as in the Rust package.
  const auto tokenizer = Tokenizer::from_json(small_json(token("<x>", 4294967295)), "odd.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->id_of("<x>"), 28);
  EXPECT_EQ((*tokenizer)->vocab_size(), 29u);
  EXPECT_EQ(shown(*(*tokenizer)->encode("abc<x>a")), "[27,28,0]");
  EXPECT_EQ(load_error(small_json(token("", 28))), "loaded");
}

TEST(TokenizerBadInput, ByteTokensThatAreNone) {
  Json vocab = {{"<0x-1>", 28}, {"<0xZZ>", 29}, {"<0x123>", 30}, {"<0x4>", 31}, {"<0x41>", 32}};
  const auto tokenizer = Tokenizer::from_json(
      small_json({{"model", {{"vocab", vocab}, {"byte_fallback", true}}}, {"decoder", {{"type", "ByteFallback"}}}}),
      "bytes.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{28, 29, 30, 31, 32}, false), "<0x-1><0xZZ><0x123><0x4>A");
  EXPECT_EQ(shown(*(*tokenizer)->encode("aAb")), "[0,32,1]");
}

TEST(TokenizerBadInput, InvalidUtf8NamesTheOffset) {
  const auto tokenizer = Tokenizer::from_json(small_json(), "small.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (const auto& [text, offset] : {std::pair<std::string, int>{"abc\xFFz", 3},
                                     {"\xC0\x80", 0},
                                     {"ab\xE2\x82", 2},
                                     {"a\xED\xA0\x80", 1},
                                     {"\xF4\x90\x80\x80", 0}}) {
    const auto ids = (*tokenizer)->encode(text);
    ASSERT_FALSE(ids.has_value());
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(ids.error().message.find("offset " + std::to_string(offset)), std::string::npos) << ids.error().message;
  }
}

TEST(TokenizerBadInput, MissingUnknownTokenIsAnErrorWhenNeeded) {
  const auto tokenizer = Tokenizer::from_json(small_json({{"model", {{"unk_token", "<unk>"}}}}), "unk.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(shown(*(*tokenizer)->encode("abc")), "[27]");
  const auto ids = (*tokenizer)->encode("ab!");
  ASSERT_FALSE(ids.has_value());
  EXPECT_NE(ids.error().message.find("<unk>"), std::string::npos) << ids.error().message;
}

TEST(TokenizerBadInput, MegabytesOfOneCharacter) {
  for (const char* name : {"qwen", "gemma", "llama2", "deepseek", "folded"}) {
    const auto tokenizer = Tokenizer::from_json_file(tokenizer_data() / "tiny" / (std::string(name) + ".json"));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const char c : {'a', ' ', '\n', '\'', '0', '\0'}) {
      const size_t size = c == 'a' ? size_t{1} << 20 : size_t{1} << 17;
      const auto ids = (*tokenizer)->encode(std::string(size, c), {.add_special = false});
      ASSERT_TRUE(ids) << ids.error().message;
      // Whatever the pieces, they spell the text again ("folded" loses white space and digits by design).
      if (std::string_view(name) == "folded") {
        EXPECT_LE(ids->size(), size);
      } else {
        EXPECT_EQ((*tokenizer)->decode(*ids, false).size(), size) << name << " " << static_cast<int>(c);
      }
    }
  }
}

TEST(TokenizerBadInput, TextsWithoutTokens) {
  const auto tokenizer = Tokenizer::from_json(small_json(), "small.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(shown(*(*tokenizer)->encode("")), "[]");
  EXPECT_EQ(shown(*(*tokenizer)->encode("\u200d\u200c\ufeff")), "[]")
      << "no token, no unk: dropped, as in the Rust package";
  EXPECT_EQ((*tokenizer)->decode({}, true), "");
  EXPECT_EQ((*tokenizer)->token_bytes(-1), "");
  EXPECT_EQ((*tokenizer)->token_bytes(1 << 30), "");
  EXPECT_FALSE((*tokenizer)->token_text(28).has_value());
}

TEST(TokenizerBadInput, SpecialTokenTextInUserContent) {
  const auto tokenizer = Tokenizer::from_json_file(tokenizer_data() / "tiny" / "qwen.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const int32_t end = *(*tokenizer)->id_of("<|im_end|>");
  const auto parsed = (*tokenizer)->encode("a<|im_end|>b");
  const auto plain = (*tokenizer)->encode("a<|im_end|>b", {.parse_special = false});
  ASSERT_TRUE(parsed && plain);
  EXPECT_EQ(std::count(parsed->begin(), parsed->end(), end), 1);
  EXPECT_EQ(std::count(plain->begin(), plain->end(), end), 0);
  EXPECT_EQ((*tokenizer)->decode(*plain, true), "a<|im_end|>b");
}

TEST(TokenizerBadInput, ManyThreadsAtOnce) {
  const auto tokenizer = Tokenizer::from_json_file(tokenizer_data() / "tiny" / "deepseek.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  std::vector<std::string> hashes(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < hashes.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 500; ++i) hashes[t] += fnv_hex(*(*tokenizer)->encode(test_strings()[i]));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& hash : hashes) EXPECT_EQ(hash, hashes[0]);
}

TEST(OpenTokenizer, SaysWhatIsMissing) {
  const auto folder = open_tokenizer(tokenizer_data());
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().code, ErrorCode::kNotFound);
  EXPECT_NE(folder.error().message.find("has no tokenizer.json"), std::string::npos) << folder.error().message;
  const auto nothing = open_tokenizer(tokenizer_data() / "no_such_file");
  ASSERT_FALSE(nothing.has_value());
  EXPECT_NE(nothing.error().message.find("no_such_file"), std::string::npos) << nothing.error().message;
}

}  // namespace
}  // namespace galvani::text
