#include "text/tokenizer_bytelevel.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace galvani::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> text;   ///< byte → UTF-8 of its character
  std::array<int16_t, 0x200> byte_of;  ///< character → byte, −1 when outside
  Alphabet() {
    byte_of.fill(-1);
    char32_t extra = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      const char32_t cp = itself ? byte : extra++;
      append_utf8(text[byte], cp);
      byte_of[cp] = static_cast<int16_t>(byte);
    }
  }
  static const Alphabet& get() {
    static const Alphabet alphabet;
    return alphabet;
  }
};

}  // namespace

void append_byte_level(std::string& out, std::string_view bytes) {
  const Alphabet& alphabet = Alphabet::get();
  for (const char c : bytes) out += alphabet.text[static_cast<unsigned char>(c)];
}

bool append_byte_level_bytes(std::string& out, std::string_view text) {
  const Alphabet& alphabet = Alphabet::get();
  const size_t start = out.size();
  size_t length = 0;
  for (size_t i = 0; i < text.size(); i += length) {
    const char32_t cp = utf8_at(text, i, length);
    const int byte = cp < alphabet.byte_of.size() ? alphabet.byte_of[cp] : -1;
    if (byte < 0) {
      out.resize(start);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

}  // namespace galvani::text
