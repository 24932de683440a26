#pragma once
/// The one error type of the library. Expected failures (bad file, unsupported shape, no memory, client gone) are
/// values; nothing in the library throws for them, prints, or exits.
#include <string>
#include <tl/expected.hpp>

namespace galvani {

/// What kind of failure it was; the C API maps these one to one.
enum class ErrorCode {
  kInvalidArgument = 1,  ///< the caller asked for something that can never work
  kNotFound,             ///< a file, tensor, key or token that should exist does not
  kCorrupt,              ///< a file breaks the rules of its own format
  kUnsupported,          ///< well-formed, but this build or this device cannot do it
  kOutOfRange,           ///< an index, id, length or position beyond what is allowed
  kOutOfMemory,          ///< the memory plan does not fit
  kIo,                   ///< the operating system refused a read or a write
  kCancelled,            ///< the caller took the request back
  kInternal,             ///< a broken invariant: a bug in Galvani
};

/// `message` says what was asked, what was found, what is allowed and what to do; it is meant for a person.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

/// Stable lower-case name of a code, e.g. "corrupt".
const char* error_code_name(ErrorCode code) noexcept;

template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

}  // namespace galvani
