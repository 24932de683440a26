#pragma once
/// Making and passing on errors. `fail` formats with fmt; GALVANI_TRY returns early with the callee's error.
#include <fmt/format.h>

#include <utility>

#include "galvani/error.h"

namespace galvani {

template <typename... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

/// Puts `context` in front of an error's message, so that the reader sees the file before the detail.
[[nodiscard]] inline tl::unexpected<Error> wrap(Error error, const std::string& context) {
  error.message = context + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

/// A broken invariant. Thrown by GALVANI_CHECK and caught at thread and program edges only.
struct InternalError {
  std::string message;
};
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace galvani

#define GALVANI_CONCAT_IMPL(a, b) a##b
#define GALVANI_CONCAT(a, b) GALVANI_CONCAT_IMPL(a, b)

/// GALVANI_TRY(auto x, f()): x = value of f(), or return f's error.
#define GALVANI_TRY(declaration, expression) GALVANI_TRY_IMPL(GALVANI_CONCAT(try_, __LINE__), declaration, expression)
#define GALVANI_TRY_IMPL(temporary, declaration, expression)                               \
  auto temporary = (expression);                                                           \
  if (!temporary) return ::tl::unexpected<::galvani::Error>(std::move(temporary).error()); \
  declaration = std::move(*temporary)

/// GALVANI_TRY_VOID(f()): for a Status.
#define GALVANI_TRY_VOID(expression)                                                     \
  do {                                                                                   \
    auto status_ = (expression);                                                         \
    if (!status_) return ::tl::unexpected<::galvani::Error>(std::move(status_).error()); \
  } while (0)

/// An invariant that holds in every build type.
#define GALVANI_CHECK(condition, ...)                                                         \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::galvani::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (0)
