#pragma once
/// The GPT-2 byte-level alphabet: 188 bytes stand for themselves, the other 68 for U+0100.. in order.
#include <string>
#include <string_view>

namespace galvani::text {

/// Appends the character of each byte.
void append_byte_level(std::string& out, std::string_view bytes);

/// The bytes a byte-level text stands for; false (and `out` untouched) when it holds a character outside the alphabet.
bool append_byte_level_bytes(std::string& out, std::string_view text);

}  // namespace galvani::text
