#pragma once
/// What one rendering may spend. A template is data from a stranger's checkpoint: it must not be able to hang or to
/// fill memory, so every operation charges a budget and the interpreter stops when one is used up.
#include <cstddef>
#include <cstdint>

namespace galvani::text::jinja {

struct Limits {
  int64_t steps = 1'000'000;                 ///< expressions and statements evaluated
  size_t output_bytes = size_t{8} << 20;     ///< rendered text, and any one string
  int64_t created_bytes = int64_t{1} << 29;  ///< sum over all values created
  int64_t touched_bytes = int64_t{1} << 30;  ///< sum over all bytes read by string operations and comparisons
  int max_range = 100'000;                   ///< length of range(), as in jinja2's sandbox
  int max_value_depth = 200;                 ///< lists in lists in lists
  int max_call_depth = 800;                  ///< nested evaluations (statements, expressions, macro calls)
};

/// Counts down; operations that cannot return an error themselves (comparisons, printing) set `exhausted` and stop.
class Budget {
 public:
  explicit Budget(const Limits& limits)
      : limits_(limits), steps_(limits.steps), created_(limits.created_bytes), touched_(limits.touched_bytes) {}

  const Limits& limits() const noexcept { return limits_; }
  bool exhausted() const noexcept { return what_ != nullptr; }
  /// Which budget ran out, in words; null when none did.
  const char* what() const noexcept { return what_; }

  void step() noexcept {
    if (--steps_ < 0) exhaust("evaluation steps");
  }
  void create(size_t bytes) noexcept {
    created_ -= static_cast<int64_t>(bytes);
    if (created_ < 0) exhaust("memory for values");
  }
  void touch(size_t bytes) noexcept {
    touched_ -= static_cast<int64_t>(bytes) + 1;
    if (touched_ < 0) exhaust("work on strings");
  }
  void exhaust(const char* what) noexcept {
    if (what_ == nullptr) what_ = what;
  }

 private:
  Limits limits_;
  int64_t steps_, created_, touched_;
  const char* what_ = nullptr;
};

}  // namespace galvani::text::jinja
