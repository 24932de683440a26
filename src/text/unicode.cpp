#include "text/unicode.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace galvani::text {
namespace {

struct ClassRange {
  uint32_t first;  ///< code points from here to the next entry
  uint16_t value;
};
struct LowerCase {
  uint32_t upper;
  uint32_t lower;
};
#include "text/unicode_data.inc"

}  // namespace

CharTable::CharTable() {
  std::map<std::basic_string<char16_t>, uint16_t> seen;
  size_t range = 0;
  for (uint32_t block = 0; block < 0x1100; ++block) {
    std::basic_string<char16_t> values(256, 0);
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t cp = block * 256 + i;
      while (range + 1 < std::size(kClassRanges) && kClassRanges[range + 1].first <= cp) ++range;
      values[i] = static_cast<char16_t>(kClassRanges[range].value);
    }
    auto [entry, added] = seen.try_emplace(values, static_cast<uint16_t>(values_.size() / 256));
    if (added) values_ += values;
    blocks_[block] = entry->second;
  }
}

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

void append_lower(std::string& out, char32_t cp) {
  if (cp < 0x80) {
    out += static_cast<char>(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp);
    return;
  }
  if (cp == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  const auto* found = std::lower_bound(std::begin(kLowerCase), std::end(kLowerCase), cp,
                                       [](const LowerCase& entry, char32_t value) { return entry.upper < value; });
  append_utf8(out, found != std::end(kLowerCase) && found->upper == cp ? found->lower : cp);
}

Utf8Step utf8_step(std::string_view bytes, size_t position) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(position);
  if (lead < 0x80) return {Utf8Step::kValid, 1, lead};
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  unsigned length = 0, low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Step::kInvalid, 1, 0xFFFD};
  }
  char32_t cp = lead & (0x7Fu >> length);
  for (unsigned i = 1; i < length; ++i) {
    if (position + i >= bytes.size()) return {Utf8Step::kIncomplete, static_cast<uint8_t>(i), 0xFFFD};
    const unsigned char byte = at(position + i);
    if (byte < low || byte > high) return {Utf8Step::kInvalid, static_cast<uint8_t>(i), 0xFFFD};
    cp = (cp << 6) | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kValid, static_cast<uint8_t>(length), cp};
}

void append_utf8(std::string& out, char32_t cp) {
  if (cp < 0x80) {
    out += static_cast<char>(cp);
  } else if (cp < 0x800) {
    out += static_cast<char>(0xC0 | (cp >> 6));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    out += static_cast<char>(0xE0 | (cp >> 12));
    out += static_cast<char>(0x80 | ((cp >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (cp >> 18));
    out += static_cast<char>(0x80 | ((cp >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((cp >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  }
}

size_t find_invalid_utf8(std::string_view bytes) {
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Step step = utf8_step(bytes, position);
    if (step.kind != Utf8Step::kValid) return position;
    position += step.length;
  }
  return std::string_view::npos;
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Step step = utf8_step(bytes, position);
    if (step.kind == Utf8Step::kValid) {
      out.append(bytes.substr(position, step.length));
    } else {
      out += kReplacementCharacter;
    }
    position += step.length;
  }
  return out;
}

}  // namespace galvani::text
