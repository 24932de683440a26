#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace galvani::cli {

void ProgressBar::operator()(double share, const std::string& note) {
  if (!isatty(STDERR_FILENO)) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < std::chrono::seconds(1) && !shown_) return;
  if (share < 1.0 && shown_ && now - drawn_ < std::chrono::milliseconds(100)) return;
  shown_ = true;
  drawn_ = now;
  constexpr int kWidth = 32;
  const int filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  std::fprintf(stderr, "\r%s [%.*s%*s] %3.0f %% %s", label_.c_str(), filled, "################################",
               kWidth - filled, "", 100 * share, note.c_str());
  if (share >= 1.0) std::fprintf(stderr, "\r%*s\r", static_cast<int>(kWidth + 12 + label_.size() + note.size()), "");
  std::fflush(stderr);
}

}  // namespace galvani::cli
