#include "core/error.h"

namespace galvani {

const char* error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kOutOfRange: return "out of range";
    case ErrorCode::kOutOfMemory: return "out of memory";
    case ErrorCode::kIo: return "i/o";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  throw InternalError{fmt::format("internal error at {}:{}: {} does not hold{}{}", file, line, condition,
                                  detail.empty() ? "" : ": ", detail)};
}

}  // namespace galvani
