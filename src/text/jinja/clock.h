#pragma once
/// The wall clock that strftime_now() shows: local civil time, injectable so that a rendering can be repeated.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace galvani::text {

/// A civil (calendar) date and time. Valid by construction through parse_iso8601 and local_now.
struct CivilTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0, microsecond = 0;
};

/// "2024-07-26", "2024-07-26T12:34", "2024-07-26 12:34:56.5", with an optional Z or ±hh:mm, which is checked and then
/// ignored: the time is shown as written. Errors: kInvalidArgument.
Result<CivilTime> parse_iso8601(std::string_view text);
CivilTime local_now();
/// strftime of the C locale, plus %f; %z and %Z are empty, as for Python's naive datetime.
std::string format_time(const CivilTime& time, std::string_view format);

}  // namespace galvani::text
