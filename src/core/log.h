#pragma once
/// Messages for a person watching: warnings and information, on standard error, through spdlog.
/// Libraries never print results; those are return values.
#include <spdlog/spdlog.h>

namespace galvani {

template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}

/// "[warn] message" on stderr; called once by programs.
void init_logging(bool verbose);

}  // namespace galvani
