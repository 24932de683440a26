#include "text/detokenizer.h"

#include "text/tokenizer_testing.h"

namespace galvani::text {
namespace {

Tokenizer::Pointer tiny(const char* name) {
  const auto tokenizer = Tokenizer::from_json_file(tokenizer_data() / "tiny" / (std::string(name) + ".json"));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

/// What each push and the final flush gave.
std::vector<std::string> stream(const Tokenizer::Pointer& tokenizer, const std::vector<int32_t>& ids,
                                bool skip = true) {
  Detokenizer detokenizer(tokenizer, skip);
  std::vector<std::string> parts;
  for (const int32_t id : ids) parts.push_back(detokenizer.push(id));
  parts.push_back(detokenizer.finish());
  return parts;
}

using Parts = std::vector<std::string>;

TEST(Detokenizer, HoldsUnfinishedCharactersOnly) {
  const auto tokenizer = tiny("qwen");
  const auto byte = [&](const char* text) { return *tokenizer->id_of(text); };  // byte-level spelling of one byte
  const std::vector<int32_t> euro = {byte("â"), byte("Ĥ"), byte("¬")};
  EXPECT_EQ(stream(tokenizer, euro), (Parts{"", "", "€", ""}));
  EXPECT_EQ(stream(tokenizer, {byte("â"), byte("Ĥ")}), (Parts{"", "", "\xEF\xBF\xBD"}));
  EXPECT_EQ(stream(tokenizer, {byte("â"), byte("a")}), (Parts{"",
                                                              "\xEF\xBF\xBD"
                                                              "a",
                                                              ""}));
  EXPECT_EQ(stream(tokenizer, {byte("a"), byte("Ġ"), byte("Ċ")}), (Parts{"a", " ", "\n", ""})) << "spaces are not held";
}

TEST(Detokenizer, ByteRunsOfTheFallbackKind) {
  const auto tokenizer = tiny("gemma");
  const auto id = [&](const char* text) { return *tokenizer->id_of(text); };
  EXPECT_EQ(stream(tokenizer, {id("<0xE2>"), id("<0x82>"), id("<0xAC>"), id("a")}), (Parts{"", "", "", "€a", ""}));
  EXPECT_EQ(stream(tokenizer, {id("<0xE2>"), id("<0x82>"), id("a")}), (Parts{"", "",
                                                                             "\xEF\xBF\xBD\xEF\xBF\xBD"
                                                                             "a",
                                                                             ""}));
  EXPECT_EQ(stream(tokenizer, {id("▁"), id("<0x41>")}), (Parts{" ", "", "A"}));
}

TEST(Detokenizer, SpecialTokensAndIdsOutsideTheVocabulary) {
  const auto tokenizer = tiny("qwen");
  const int32_t special = *tokenizer->id_of("<|im_end|>"), think = *tokenizer->id_of("<think>"),
                a = *tokenizer->id_of("a");
  EXPECT_EQ(stream(tokenizer, {a, special, think, a}), (Parts{"a", "", "<think>", "a", ""}));
  EXPECT_EQ(stream(tokenizer, {a, special}, false), (Parts{"a", "<|im_end|>", ""}));
  EXPECT_EQ(stream(tokenizer, {-1, 2147483647, -2147483647 - 1, a}), (Parts{"", "", "", "a", ""}));
}

TEST(Detokenizer, LeadingSpaceOfADummyPrefixIsDropped) {
  const auto tokenizer = tiny("llama2");
  const int32_t space = *tokenizer->id_of("▁"), a = *tokenizer->id_of("a");
  EXPECT_EQ(stream(tokenizer, {space, space, a}), (Parts{"", " ", "a", ""}));
}

}  // namespace
}  // namespace galvani::text
