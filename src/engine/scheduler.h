#pragma once
/// Decides what each step runs: decode rows of every running request first, then prefill chunks up to the token budget.
/// Owned by the stepping thread; knows requests and sequences, never layers.
#include <chrono>
#include <memory>
#include <vector>

#include "engine/runner.h"

namespace galvani::engine {

using Clock = std::chrono::steady_clock;

/// One request from its first step to its end.
struct Job {
  RequestId id = 0;
  Request request;
  Clock::time_point submitted;
  exec::SeqId sequence = -1;
  size_t prefilled = 0;  ///< prompt tokens run so far
  std::vector<int32_t> output;
  RequestTimes times;
  FinishReason finish = FinishReason::kRunning;
  Error error;
  // What this step added.
  bool sampled = false;
  kernels::SampledToken token;
};

class Scheduler {
 public:
  Scheduler(Runner& runner, int max_batch_tokens, int64_t valid_vocab)
      : runner_(runner), max_batch_tokens_(max_batch_tokens), valid_vocab_(valid_vocab) {}

  /// Room for another job?
  bool has_room() const;
  /// Takes a job in; has_room() must hold.
  void admit(std::unique_ptr<Job> job);
  /// One step over all jobs; afterwards each job's `sampled` says whether `token` is new, and finished jobs have given
  /// their sequence back. An error of the step ends every job that took part in it with that error.
  void step();
  std::vector<std::unique_ptr<Job>>& jobs() { return jobs_; }
  /// Ends a job: its pages are free again.
  void finish(Job& job, FinishReason reason, Error error = {});

 private:
  void plan(exec::Batch& batch, std::vector<Job*>& rows);
  bool add_chunk(exec::Batch& batch, Job& job, std::span<const int32_t> ids, exec::WantLogits want);
  void apply(Job& job, kernels::SampledToken token);
  kernels::RowSampling sampling_of(const Job& job) const;

  Runner& runner_;
  int max_batch_tokens_;
  int64_t valid_vocab_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace galvani::engine
