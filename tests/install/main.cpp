// Uses what the public headers offer, from outside: the version, the error type, and a symbol of the library.
#include <galvani/error.h>
#include <galvani/version.h>

#include <cstdio>
#include <string_view>

static galvani::Result<int> half(int value) {
  if (value % 2 != 0) return tl::unexpected(galvani::Error{galvani::ErrorCode::kInvalidArgument, "odd"});
  return value / 2;
}

int main() {
  const galvani::Result<int> good = half(4), bad = half(3);
  if (!good || *good != 2 || bad) return 1;
  const std::string_view name = galvani::error_code_name(bad.error().code);
  std::printf("galvani %s, error code: %.*s\n", GALVANI_VERSION_STRING, static_cast<int>(name.size()), name.data());
  return name.empty() ? 1 : 0;
}
