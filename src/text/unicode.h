#pragma once
/// UTF-8 and the character classes of the Rust `tokenizers` package (tables: scripts/unicode/make_unicode_tables.py).
/// Token ids depend on these classes, so they are that package's own, not those of whatever Unicode release a system
/// library happens to carry.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace galvani::text {

/// General categories, in the order of the generated table.
enum class Category : uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn
};

/// What is known of one code point.
struct CharClass {
  uint16_t bits = 0;

  constexpr Category category() const { return static_cast<Category>(bits & 31); }
  constexpr bool in(uint32_t categories) const { return (categories >> (bits & 31)) & 1; }
  constexpr bool space() const { return bits & (1 << 5); }           ///< White_Space
  constexpr bool word() const { return bits & (1 << 6); }            ///< \w of Rust's `regex`
  constexpr bool onig_word() const { return bits & (1 << 7); }       ///< \w of Oniguruma
  constexpr bool numeric() const { return bits & (1 << 8); }         ///< Rust's char::is_numeric
  constexpr bool punctuation() const { return bits & (1 << 9); }     ///< what the Punctuation pre-tokenizer splits on
  constexpr bool nfc_active() const { return bits & (1 << 10); }     ///< may change, or change others, under NFC
  constexpr bool accent() const { return bits & (1 << 11); }         ///< removed by StripAccents
  constexpr bool inert() const { return bits & (1 << 12); }          ///< unknown to the normalisation tables
  constexpr bool newer_than_14() const { return bits & (1 << 13); }  ///< class differs from Unicode 14's
};

constexpr uint32_t category_mask(Category c) { return 1u << static_cast<unsigned>(c); }
template <typename... Rest>
constexpr uint32_t category_mask(Category c, Rest... rest) {
  return category_mask(c) | category_mask(rest...);
}
inline constexpr uint32_t kLetters =
    category_mask(Category::Lu, Category::Ll, Category::Lt, Category::Lm, Category::Lo);
inline constexpr uint32_t kMarks = category_mask(Category::Mn, Category::Mc, Category::Me);
inline constexpr uint32_t kNumbers = category_mask(Category::Nd, Category::Nl, Category::No);

/// Two-stage lookup table; fetch it once outside a hot loop. `cp` above U+10FFFF reads as unassigned.
class CharTable {
 public:
  static const CharTable& get();
  CharClass operator[](char32_t cp) const {
    if (cp >= 0x110000) return CharClass{static_cast<uint16_t>(Category::Cn)};
    return CharClass{values_[(static_cast<size_t>(blocks_[cp >> 8]) << 8) | (cp & 255)]};
  }

 private:
  CharTable();
  uint16_t blocks_[0x1100];
  std::basic_string<char16_t> values_;
};

/// Lower case of one code point as Rust's char::to_lowercase; U+0130 is the only one that becomes two.
void append_lower(std::string& out, char32_t cp);

/// One step through bytes that may not be UTF-8. Invalid: `length` is the maximal subpart that one U+FFFD replaces
/// (Unicode 3.9, as Rust's from_utf8_lossy). Incomplete: the bytes up to the end may still become a code point.
struct Utf8Step {
  enum Kind : uint8_t { kValid, kInvalid, kIncomplete } kind;
  uint8_t length;  ///< bytes, 1..4
  char32_t cp;     ///< U+FFFD unless valid
};
Utf8Step utf8_step(std::string_view bytes, size_t position);

/// Code point at `position` of valid UTF-8 (U+FFFD of length 1 for a byte that is none).
inline char32_t utf8_at(std::string_view text, size_t position, size_t& length) {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte < 0x80) {
    length = 1;
    return byte;
  }
  const Utf8Step step = utf8_step(text, position);
  length = step.kind == Utf8Step::kValid ? step.length : 1;
  return step.cp;
}

/// Start of the code point that ends right before `position` (> 0) in valid UTF-8.
inline size_t utf8_before(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

void append_utf8(std::string& out, char32_t cp);

/// Offset of the first byte that is not part of valid UTF-8, npos when all is well.
size_t find_invalid_utf8(std::string_view bytes);

/// Every maximal invalid subpart becomes one U+FFFD.
std::string utf8_lossy(std::string_view bytes);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace galvani::text
