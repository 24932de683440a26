#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace galvani {

void init_logging(bool verbose) {
  auto logger = spdlog::stderr_color_mt("galvani");
  logger->set_pattern("%^%l:%$ %v");
  logger->set_level(verbose ? spdlog::level::debug : spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace galvani
