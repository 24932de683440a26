#pragma once
/// Threads that work through jobs in the order they came, while their caller does something else: what parallel_for,
/// which holds its caller until all is done, cannot overlap.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace galvani {

class TaskTeam {
 public:
  /// Work on one slice of a job. Called from any thread of the team, one that waits included; must not call OpenMP.
  using Slice = std::function<Status(int64_t)>;
  class Job;

  /// `threads` in all, of which the one that calls wait() is one; 1: everything is done there.
  explicit TaskTeam(int threads);
  /// Ends after the slices that run now; jobs that nobody waited for stay unfinished.
  ~TaskTeam();
  TaskTeam(const TaskTeam&) = delete;
  TaskTeam& operator=(const TaskTeam&) = delete;

  /// Asks for slice(0) … slice(count - 1), in any order and on any threads.
  std::shared_ptr<Job> start(int64_t count, Slice slice);
  /// Whether all slices have ended.
  static bool done(const Job& job);
  /// Helps until they have; the first error of a slice, or what one threw, is passed on. What slices wrote is visible
  /// after it.
  Status wait(Job& job);

 private:
  void work();
  /// Runs one slice of the oldest job that has any left; false when none has.
  bool run_one();
  std::shared_ptr<Job> take(int64_t& index);

  std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<std::shared_ptr<Job>> jobs_;  // those with slices to give out
  std::atomic<int64_t> waiting_{0};        // slices that nobody has taken
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace galvani
