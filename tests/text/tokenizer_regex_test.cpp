/// Split patterns: the hand-written matchers against PCRE2, and what is refused.
#include "text/tokenizer_regex.h"

#include "text/tokenizer_pretokenizer.h"
#include "text/tokenizer_testing.h"

namespace galvani::text {
namespace {

std::vector<Span> matches(const SplitPattern& pattern, std::string_view text) {
  std::vector<Span> out;
  const Status status = pattern.find_all(text, out);
  EXPECT_TRUE(status) << status.error().message;
  return out;
}

TEST(TokenizerRegex, HandWrittenEqualsPcre2) {
  for (const auto known : {KnownPattern::kGpt2, KnownPattern::kLlama3, KnownPattern::kQwen2, KnownPattern::kQwen35,
                           KnownPattern::kO200k}) {
    ASSERT_EQ(find_known_pattern(pattern_source(known)), known);
    const auto oracle = SplitPattern::pcre2(pattern_source(known));
    ASSERT_TRUE(oracle) << oracle.error().message;
    const auto fast = SplitPattern::known(known);
    for (const std::string& text : test_strings()) {
      ASSERT_EQ(matches(fast, text), matches(*oracle, text)) << pattern_source(known) << " on " << text;
    }
  }
}

TEST(TokenizerRegex, CharactersNewerThanTheRegexLibrary) {
  // U+1C89 is upper case since Unicode 16, U+11DE0 is no digit to \p{N} yet, U+180E is no space.
  const auto upper = SplitPattern::pcre2(R"(\p{Lu}+)"), space = SplitPattern::pcre2(R"(\s)");
  ASSERT_TRUE(upper && space);
  EXPECT_EQ(matches(*upper, "a\xE1\xB2\x89Z"), (std::vector<Span>{{1, 5}}));
  EXPECT_EQ(matches(*space, "\xE1\xA0\x8E \xC2\x85"), (std::vector<Span>{{3, 4}, {4, 6}}));
}

TEST(TokenizerRegex, WordClassIsOnigurumas) {
  const auto word = SplitPattern::pcre2(R"(\w+)");
  ASSERT_TRUE(word) << word.error().message;
  EXPECT_EQ(matches(*word, "e\xCC\x81_1 \xC2\xB2-\xE2\x92\xB6"), (std::vector<Span>{{0, 5}, {6, 8}, {9, 12}}));
}

TEST(TokenizerRegex, EmptyMatchesAdvance) {
  const auto maybe = SplitPattern::pcre2("x*");
  ASSERT_TRUE(maybe) << maybe.error().message;
  EXPECT_EQ(matches(*maybe, "axxé"), (std::vector<Span>{{0, 0}, {1, 3}, {5, 5}}));
}

TEST(TokenizerRegex, RefusesWhatEnginesReadDifferently) {
  for (const char* source : {"[a-z&&[^b]]+", "\\bword", "\\h+", "a{1,2}+", "(?m:a.b)", "(a)\\1", "[[:alpha:]]",
                             "(*ACCEPT)", "[\\W]", "(", "[a", "a\\", "\\p{NoSuchThing}"}) {
    const auto pattern = SplitPattern::regex(source);
    ASSERT_FALSE(pattern.has_value()) << source;
    EXPECT_EQ(pattern.error().code, ErrorCode::kUnsupported) << source;
    EXPECT_NE(pattern.error().message.find(source), std::string::npos) << pattern.error().message;
  }
}

TEST(TokenizerRegex, EndlessBacktrackingIsAnError) {
  const auto pattern = SplitPattern::regex("(a+)+(a+)+(a+)+[bc]");
  ASSERT_TRUE(pattern) << pattern.error().message;
  std::vector<Span> out;
  const Status status = pattern->find_all(std::string(300, 'a') + "!", out);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("backtracks too much"), std::string::npos) << status.error().message;
}

TEST(SplitAt, EveryBehavior) {
  const std::string text = "a--b-";
  const std::vector<Span> dashes = {{1, 2}, {2, 3}, {4, 5}};
  const auto parts = [&](SplitBehavior behavior, bool invert = false) {
    std::vector<Span> spans;
    split_at({0, 5}, dashes, behavior, invert, spans);
    std::string joined;
    for (const Span& span : spans) joined += text.substr(span.begin, span.end - span.begin) + "|";
    return joined;
  };
  EXPECT_EQ(parts(SplitBehavior::kRemoved), "a|b|");
  EXPECT_EQ(parts(SplitBehavior::kIsolated), "a|-|-|b|-|");
  EXPECT_EQ(parts(SplitBehavior::kMergedWithPrevious), "a-|-|b-|");
  EXPECT_EQ(parts(SplitBehavior::kMergedWithNext), "a|-|-b|-|");
  EXPECT_EQ(parts(SplitBehavior::kContiguous), "a|--|b|-|");
  EXPECT_EQ(parts(SplitBehavior::kRemoved, true), "-|-|-|");
}

}  // namespace
}  // namespace galvani::text
