#pragma once
/// The emulated GPU's environment variables. A value that is not understood ends the program with 2: a test that ran
/// under other conditions than were asked for would say nothing.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace galvani::emulated {

inline std::string_view environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

/// Whether the variable is set to `value`, the one it can have beside none.
inline bool environment_is(const char* name, std::string_view value) {
  const std::string_view text = environment(name);
  if (!text.empty() && text != value) {
    std::fprintf(stderr, "%s is '%s'; allowed: %s, or not set\n", name, text.data(), value.data());
    std::exit(2);
  }
  return !text.empty();
}

/// 1 to `most`; `unset` where there is none.
inline int64_t environment_number(const char* name, int64_t most, int64_t unset) {
  const std::string_view text = environment(name);
  if (text.empty()) return unset;
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size() || number < 1 || number > most) {
    std::fprintf(stderr, "%s is '%s'; allowed: a number from 1 to %lld, or not set\n", name, text.data(),
                 static_cast<long long>(most));
    std::exit(2);
  }
  return number;
}

}  // namespace galvani::emulated
