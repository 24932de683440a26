#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace galvani::text {
namespace {

struct Outcome {
  std::string shown;
  int matched;
  bool operator==(const Outcome&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Outcome& o) { return out << '"' << o.shown << "\" " << o.matched; }

/// Feeds `text` in pieces of `step` bytes.
Outcome run(const std::vector<std::string>& stops, std::string_view text, size_t step) {
  auto matcher = StopStrings::create(stops);
  EXPECT_TRUE(matcher) << matcher.error().message;
  std::string shown;
  for (size_t i = 0; i < text.size(); i += step) matcher->push(text.substr(i, step), shown);
  matcher->finish(shown);
  return {shown, matcher->matched()};
}

TEST(StopStrings, WhateverThePieces) {
  for (size_t step = 1; step <= 12; ++step) {
    EXPECT_EQ(run({"END"}, "some text END more", step), (Outcome{"some text ", 0}));
    EXPECT_EQ(run({"END"}, "some EN EEND", step), (Outcome{"some EN E", 0}));
    EXPECT_EQ(run({"END"}, "some EN", step), (Outcome{"some EN", -1}));
    EXPECT_EQ(run({"aab"}, "aaaaab", step), (Outcome{"aaa", 0}));
    EXPECT_EQ(run({"\n\n", "User:"}, "hi\nUser: \n\n", step), (Outcome{"hi\n", 1}));
    EXPECT_EQ(run({"b", "ab"}, "xab", step), (Outcome{"x", 1})) << "complete at once: the one that began first";
    EXPECT_EQ(run({}, "anything", step), (Outcome{"anything", -1}));
    EXPECT_EQ(run({"é"}, "caf\xC3\xA9!", step), (Outcome{"caf", 0}));
  }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBegin) {
  auto matcher = StopStrings::create({"stop"});
  ASSERT_TRUE(matcher);
  std::string shown;
  EXPECT_FALSE(matcher->push("a st", shown));
  EXPECT_EQ(shown, "a ");
  EXPECT_FALSE(matcher->push("a", shown));
  EXPECT_EQ(shown, "a sta");
  EXPECT_TRUE(matcher->push(" stop it", shown));
  EXPECT_EQ(shown, "a sta ");
  EXPECT_TRUE(matcher->push("later", shown));
  EXPECT_EQ(shown, "a sta ");
}

TEST(StopStrings, AgreesWithSearchingTheWhole) {
  uint32_t state = 1;
  const auto next = [&](uint32_t limit) { return (state = state * 1664525u + 1013904223u) >> 16 & 0x7FFF % limit; };
  for (int round = 0; round < 2000; ++round) {
    const auto word = [&](uint32_t longest) {
      std::string text;
      for (uint32_t i = 0, n = 1 + next(1u << 15) % longest; i < n; ++i)
        text += static_cast<char>('a' + next(1u << 15) % 2);
      return text;
    };
    const std::string text = word(30);
    const std::vector<std::string> stops = {word(5), word(4), word(6)};
    size_t end = std::string::npos, begin = 0;  // the first end wins, then the first beginning
    for (const auto& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      if (at + stop.size() < end || (at + stop.size() == end && at < begin)) end = at + stop.size(), begin = at;
    }
    const Outcome outcome = run(stops, text, 1 + static_cast<size_t>(round) % 5);
    ASSERT_EQ(outcome.shown, end == std::string::npos ? text : text.substr(0, begin)) << text;
  }
}

TEST(StopStrings, EmptyIsAnError) {
  const auto matcher = StopStrings::create({"a", ""});
  ASSERT_FALSE(matcher.has_value());
  EXPECT_NE(matcher.error().message.find("stop string 1 is empty"), std::string::npos) << matcher.error().message;
}

}  // namespace
}  // namespace galvani::text
