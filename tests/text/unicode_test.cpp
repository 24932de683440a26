#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/unicode_normalize.h"

namespace galvani::text {
namespace {

TEST(Utf8, LossyReplacesMaximalSubparts) {
  EXPECT_EQ(utf8_lossy("a\xFF"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(utf8_lossy("\xE2\x82"), "\xEF\xBF\xBD");  // one for an unfinished character
  EXPECT_EQ(utf8_lossy("\xE2\x82x"), "\xEF\xBF\xBDx");
  EXPECT_EQ(utf8_lossy("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(utf8_lossy("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(utf8_lossy("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(utf8_lossy("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  std::string text;
  for (char32_t cp = 0; cp < 0x110000; ++cp) {
    if (cp >= 0xD800 && cp < 0xE000) continue;
    text.clear();
    append_utf8(text, cp);
    size_t length = 0;
    ASSERT_EQ(utf8_at(text, 0, length), cp);
    ASSERT_EQ(length, text.size());
    ASSERT_EQ(utf8_before(text, text.size()), 0u);
  }
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2u);
  EXPECT_EQ(find_invalid_utf8("ab\xC3"), 2u);
  EXPECT_EQ(find_invalid_utf8("ab\xC3\xA9"), std::string_view::npos);
}

TEST(CharTable, Classes) {
  const CharTable& table = CharTable::get();
  EXPECT_EQ(table['a'].category(), Category::Ll);
  EXPECT_EQ(table[0x1C89].category(), Category::Lu) << "assigned in Unicode 16";
  EXPECT_EQ(table[0x0378].category(), Category::Cn);
  EXPECT_EQ(table[0xD800].category(), Category::Cs);
  EXPECT_EQ(table[0x10FFFF].category(), Category::Cn);
  EXPECT_EQ(table[0x110000].category(), Category::Cn);
  EXPECT_TRUE(table[0x3000].space());
  EXPECT_FALSE(table[0x180E].space());
  EXPECT_TRUE(table[0x200D].word() && !table[0x200D].onig_word());
  EXPECT_TRUE(table[0x11DE0].numeric()) << "Rust's own table is newer than the regex library's";
  EXPECT_TRUE(table['$'].punctuation());
  int spaces = 0;
  for (char32_t cp = 0; cp < 0x110000; ++cp) spaces += table[cp].space();
  EXPECT_EQ(spaces, 25);
}

TEST(Lowercase, CharByChar) {
  const auto lower = [](char32_t cp) {
    std::string out;
    append_lower(out, cp);
    return out;
  };
  EXPECT_EQ(lower('A'), "a");
  EXPECT_EQ(lower('z'), "z");
  EXPECT_EQ(lower(0x130), "i\xCC\x87");
  EXPECT_EQ(lower(0x3A3), "σ") << "no final sigma: one character at a time";
  EXPECT_EQ(lower(0x16EA0), "\xF0\x96\xBA\xBB") << "U+16EA0 → U+16EBB, Unicode 17";
}

TEST(Normalize, Forms) {
  EXPECT_EQ(unicode_normalize("e\xCC\x81", NormalForm::kNfc), "\xC3\xA9");
  EXPECT_EQ(unicode_normalize("\xC3\xA9", NormalForm::kNfd), "e\xCC\x81");
  EXPECT_EQ(unicode_normalize("ﬁ①", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(unicode_normalize("\xEA\xB0\x81", NormalForm::kNfd), "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8");
  EXPECT_EQ(unicode_normalize("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", NormalForm::kNfc), "\xEA\xB0\x81");
  EXPECT_EQ(unicode_normalize("a\xCC\x87\xCC\xA3", NormalForm::kNfc), "\xE1\xBA\xA1\xCC\x87")
      << "marks are put in order";
  EXPECT_EQ(unicode_normalize("㋿", NormalForm::kNfkc), "㋿") << "newer than the package's tables";
  std::string marks;
  for (int i = 0; i < 50000; ++i) marks += i % 2 ? "\xCC\x81" : "\xCC\xA3";
  EXPECT_EQ(unicode_normalize("q" + marks, NormalForm::kNfc).size(), marks.size() + 1)
      << "must not take quadratic time";
}

}  // namespace
}  // namespace galvani::text
