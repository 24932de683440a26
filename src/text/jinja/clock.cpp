#include "text/jinja/clock.h"

#include <chrono>
#include <ctime>

namespace galvani::text {
namespace {

bool leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int days_in_month(int year, int month) {
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return kDays[month - 1] + (month == 2 && leap(year) ? 1 : 0);
}

/// Fixed-width decimal number at `pos`, which moves on; -1 when there is none.
int number(std::string_view text, size_t& pos, size_t width) {
  if (pos + width > text.size()) return -1;
  int value = 0;
  for (size_t i = 0; i < width; ++i) {
    const char c = text[pos + i];
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  pos += width;
  return value;
}

bool skip(std::string_view text, size_t& pos, char c) {
  if (pos >= text.size() || text[pos] != c) return false;
  ++pos;
  return true;
}

bool parse_fraction(std::string_view text, size_t& pos, int& microsecond) {
  if (!skip(text, pos, '.')) return true;
  int scale = 100000;
  const size_t begin = pos;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos, scale /= 10) {
    microsecond += (text[pos] - '0') * scale;
  }
  return pos > begin;
}

bool parse_time(std::string_view text, size_t& pos, CivilTime& out) {
  out.hour = number(text, pos, 2);
  if (!skip(text, pos, ':')) return false;
  out.minute = number(text, pos, 2);
  if (skip(text, pos, ':')) {
    out.second = number(text, pos, 2);
    if (!parse_fraction(text, pos, out.microsecond)) return false;
  }
  return out.hour >= 0 && out.hour < 24 && out.minute >= 0 && out.minute < 60 && out.second >= 0 && out.second < 60;
}

bool parse_zone(std::string_view text, size_t& pos) {
  if (pos == text.size() || skip(text, pos, 'Z')) return true;
  if (!skip(text, pos, '+') && !skip(text, pos, '-')) return false;
  if (number(text, pos, 2) < 0) return false;
  skip(text, pos, ':');
  return pos == text.size() || number(text, pos, 2) >= 0;
}

std::tm to_tm(const CivilTime& time) {
  std::tm tm{};
  tm.tm_year = time.year - 1900;
  tm.tm_mon = time.month - 1;
  tm.tm_mday = time.day;
  tm.tm_hour = time.hour;
  tm.tm_min = time.minute;
  tm.tm_sec = time.second;
  tm.tm_isdst = -1;
  int yday = time.day - 1;
  for (int month = 1; month < time.month; ++month) yday += days_in_month(time.year, month);
  tm.tm_yday = yday;
  // Days since 0001-01-01 (a Monday) give the day of the week.
  const int y = time.year - 1;
  tm.tm_wday = (1 + y * 365 + y / 4 - y / 100 + y / 400 + yday) % 7;
  return tm;
}

}  // namespace

Result<CivilTime> parse_iso8601(std::string_view text) {
  CivilTime out;
  size_t pos = 0;
  bool good = (out.year = number(text, pos, 4)) >= 1 && skip(text, pos, '-') &&
              (out.month = number(text, pos, 2)) >= 1 && out.month <= 12 && skip(text, pos, '-') &&
              (out.day = number(text, pos, 2)) >= 1 && out.day <= days_in_month(out.year, out.month);
  if (good && pos < text.size()) {
    good = (skip(text, pos, 'T') || skip(text, pos, ' ')) && parse_time(text, pos, out) && parse_zone(text, pos);
  }
  if (good && pos == text.size()) return out;
  return fail(ErrorCode::kInvalidArgument,
              "'{}' is not a date and time; expected ISO 8601 such as 2024-07-26 or 2024-07-26T12:34:56", text);
}

CivilTime local_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm tm{};
  if (localtime_r(&seconds, &tm) == nullptr) return {};
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  return {tm.tm_year + 1900,
          tm.tm_mon + 1,
          tm.tm_mday,
          tm.tm_hour,
          tm.tm_min,
          tm.tm_sec > 59 ? 59 : tm.tm_sec,
          static_cast<int>(since % 1'000'000)};
}

std::string format_time(const CivilTime& time, std::string_view format) {
  static constexpr std::string_view kConversions = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyY%";
  static constexpr std::string_view kFlags = "-_0^#";
  const std::tm tm = to_tm(time);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    // One conversion at a time: no width, so the length of the result is bounded by that of the format.
    size_t end = i + 1;
    if (kFlags.find(format[end]) != kFlags.npos && end + 1 < format.size()) ++end;
    const char conversion = format[end];
    if (conversion == 'f') {
      out += fmt::format("{:06d}", time.microsecond);
    } else if (conversion == 'z' || conversion == 'Z') {
      // A naive time has no zone.
    } else if (kConversions.find(conversion) != kConversions.npos) {
      char buffer[128];
      const std::string piece(format.substr(i, end - i + 1));
      out.append(buffer, std::strftime(buffer, sizeof buffer, piece.c_str(), &tm));
    } else {
      out += format.substr(i, end - i + 1);
    }
    i = end;
  }
  return out;
}

}  // namespace galvani::text
