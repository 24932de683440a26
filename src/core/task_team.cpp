#include "core/task_team.h"

#include <algorithm>
#include <chrono>
#include <exception>

namespace galvani {
namespace {

/// How long a thread looks for work before it sleeps: waking it again costs tens of microseconds, in a virtual machine
/// more, and pieces of an upload follow each other faster than that.
constexpr auto kSpin = std::chrono::microseconds(200);

template <typename Ready>
bool spin_until(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

class TaskTeam::Job {
 public:
  Job(int64_t count, Slice slice) : count_(count), left_(count), slice_(std::move(slice)) {}

 private:
  friend class TaskTeam;
  int64_t next_ = 0;  // of the slices to give out; the team's mutex
  const int64_t count_;
  std::atomic<int64_t> left_;
  Slice slice_;
  std::mutex mutex_;
  Status status_;
  std::exception_ptr thrown_;
};

TaskTeam::TaskTeam(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

TaskTeam::~TaskTeam() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::shared_ptr<TaskTeam::Job> TaskTeam::start(int64_t count, Slice slice) {
  auto job = std::make_shared<Job>(std::max<int64_t>(count, 0), std::move(slice));
  if (count < 1) return job;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    waiting_ += count;
  }
  count == 1 ? wake_.notify_one() : wake_.notify_all();
  return job;
}

bool TaskTeam::done(const Job& job) { return job.left_.load(std::memory_order_acquire) == 0; }

std::shared_ptr<TaskTeam::Job> TaskTeam::take(int64_t& index) {
  const std::lock_guard lock(mutex_);
  if (jobs_.empty() || stop_) return nullptr;
  std::shared_ptr<Job> job = jobs_.front();
  index = job->next_++;
  --waiting_;
  if (job->next_ == job->count_) jobs_.pop_front();
  return job;
}

bool TaskTeam::run_one() {
  int64_t index = 0;
  const std::shared_ptr<Job> job = take(index);
  if (job == nullptr) return false;
  try {
    if (Status status = job->slice_(index); !status) {
      const std::lock_guard lock(job->mutex_);
      if (job->status_) job->status_ = std::move(status);
    }
  } catch (...) {
    const std::lock_guard lock(job->mutex_);
    if (job->thrown_ == nullptr) job->thrown_ = std::current_exception();
  }
  if (job->left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    const std::lock_guard lock(mutex_);  // so that whoever is about to sleep in wait() has seen it, or hears it
    ended_.notify_all();
  }
  return true;
}

void TaskTeam::work() {
  while (!stop_) {
    if (run_one()) continue;
    const auto ready = [&] { return stop_ || waiting_ > 0; };
    if (spin_until(ready)) continue;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, ready);
  }
}

Status TaskTeam::wait(Job& job) {
  while (!done(job)) {
    if (run_one()) continue;
    if (spin_until([&] { return done(job); })) break;
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return done(job); });
  }
  const std::lock_guard lock(job.mutex_);
  if (job.thrown_ != nullptr) std::rethrow_exception(job.thrown_);
  return job.status_;
}

}  // namespace galvani
