#pragma once
/// Names from files, made safe for messages.
#include <string>
#include <string_view>

namespace galvani::formats {

/// `name` in single quotes, control bytes as \xNN, clipped after 120 bytes, so that a hostile file cannot flood a
/// terminal.
std::string quote(std::string_view name);

}  // namespace galvani::formats
