#pragma once
/// A bar on a terminal, once the work has taken a second; nothing in logs and pipes.
#include <chrono>
#include <string>

namespace galvani::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  /// share: 0…1; 1 removes the bar. `note` stands behind the percentage.
  void operator()(double share, const std::string& note = {});

 private:
  std::string label_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), drawn_{};
  bool shown_ = false;
};

}  // namespace galvani::cli
