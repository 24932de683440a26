#include "formats/quoted.h"

#include <fmt/format.h>

namespace galvani::formats {

std::string quote(std::string_view name) {
  constexpr size_t kLongest = 120;
  std::string out = "'";
  for (char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  out += '\'';
  if (name.size() > kLongest) out += fmt::format("... ({} bytes)", name.size());
  return out;
}

}  // namespace galvani::formats
