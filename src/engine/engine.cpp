#include "galvani/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>

#include "core/error.h"
#include "engine/runner.h"
#include "engine/scheduler.h"

namespace galvani {

using engine::Clock;
using engine::Job;

const char* finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kRunning: return "running";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context full";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "?";
}

struct Engine::Impl {
  std::unique_ptr<engine::Runner> runner;
  std::unique_ptr<engine::Scheduler> scheduler;  // belongs to the stepping thread
  std::mutex stepping;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable work;
  RequestId next_id = 1;
  std::deque<std::unique_ptr<Job>> queue;
  std::map<RequestId, Update> updates;
  std::set<RequestId> cancelled;
  size_t running = 0;
  std::vector<std::pair<std::string, uint64_t>> kernels_run;
  std::vector<GraphInfo> graphs;
  LoadTimes times;
  Clock::time_point counted;  // when the three were taken

  Status check(const Request& request) const;
  void admit_queued();
  void publish();
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::load(const LoadOptions& options) {
  try {
    auto impl = std::make_unique<Impl>();
    GALVANI_TRY(impl->runner, engine::Runner::load(options));
    impl->times = impl->runner->info().times;
    // A tokenizer may know more ids than the model has rows; those can never be sampled anyway.
    const int64_t valid = std::min(options.valid_vocab, impl->runner->info().vocab);
    impl->scheduler = std::make_unique<engine::Scheduler>(*impl->runner, options.max_batch_tokens, valid);
    return std::unique_ptr<Engine>(new Engine(std::move(impl)));
  } catch (const InternalError& error) {
    return tl::unexpected<Error>(Error{ErrorCode::kInternal, error.message});
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "not enough memory to load {}; `galvani inspect` prints what it needs",
                options.model);
  }
}

const EngineInfo& Engine::info() const { return impl_->runner->info(); }

Status Engine::Impl::check(const Request& request) const {
  const EngineInfo& info = runner->info();
  if (request.prompt.empty())
    return fail(ErrorCode::kInvalidArgument, "the prompt is empty; give at least one token (a BOS token counts)");
  if (static_cast<int64_t>(request.prompt.size()) >= info.context)
    return fail(ErrorCode::kOutOfRange,
                "the prompt has {} tokens, the context holds {} and must keep room for one answer token; shorten the "
                "prompt or raise -c (the model was made for {})",
                request.prompt.size(), info.context, info.model_context);
  if (request.max_tokens < 1)
    return fail(ErrorCode::kInvalidArgument, "max_tokens is {}; give at least 1", request.max_tokens);
  const auto check_id = [&](int32_t id, const char* where) -> Status {
    if (id < 0 || id >= info.vocab)
      return fail(ErrorCode::kOutOfRange, "token id {} in {} is outside the vocabulary; allowed: 0 to {}", id, where,
                  info.vocab - 1);
    return {};
  };
  for (int32_t id : request.prompt) GALVANI_TRY_VOID(check_id(id, "the prompt"));
  for (const auto& [id, bias] : request.sampling.logit_bias) GALVANI_TRY_VOID(check_id(id, "the logit bias"));
  kernels::RowSampling row;
  row.temperature = request.sampling.temperature;
  row.top_k = request.sampling.top_k;
  row.top_p = request.sampling.top_p;
  row.min_p = request.sampling.min_p;
  row.repetition_penalty = request.sampling.repetition_penalty;
  row.presence_penalty = request.sampling.presence_penalty;
  row.frequency_penalty = request.sampling.frequency_penalty;
  row.top_logprobs = request.sampling.top_logprobs;
  row.logit_bias = request.sampling.logit_bias;
  return kernels::validate(row, info.vocab);
}

Result<RequestId> Engine::submit(Request request) {
  GALVANI_TRY_VOID(impl_->check(request));
  auto job = std::make_unique<Job>();
  job->request = std::move(request);
  job->submitted = Clock::now();
  const std::lock_guard lock(impl_->mutex);
  job->id = impl_->next_id++;
  const RequestId id = job->id;
  Update& update = impl_->updates[id];
  update.prompt_tokens = static_cast<int64_t>(job->request.prompt.size());
  impl_->queue.push_back(std::move(job));
  impl_->work.notify_all();
  return id;
}

bool Engine::cancel(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->updates.find(id);
  if (found == impl_->updates.end() || found->second.finish != FinishReason::kRunning) return false;
  const auto queued =
      std::find_if(impl_->queue.begin(), impl_->queue.end(), [id](const auto& job) { return job->id == id; });
  if (queued != impl_->queue.end()) {
    impl_->queue.erase(queued);
    found->second.finish = FinishReason::kCancelled;
  } else {
    impl_->cancelled.insert(id);
  }
  return true;
}

Result<Update> Engine::poll(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->updates.find(id);
  if (found == impl_->updates.end())
    return fail(ErrorCode::kNotFound, "there is no request {}: it never was, or its end has been polled already", id);
  Update news = found->second;
  if (news.finish != FinishReason::kRunning) {
    impl_->updates.erase(found);
  } else {
    found->second.tokens.clear();
    found->second.logprobs.clear();
    found->second.top_logprobs.clear();
  }
  return news;
}

void Engine::Impl::admit_queued() {
  const std::lock_guard lock(mutex);
  for (auto& job : scheduler->jobs()) {
    if (cancelled.count(job->id) != 0) scheduler->finish(*job, FinishReason::kCancelled);
  }
  cancelled.clear();
  // Those cancelled above leave the list here, so that publish() still reports them and their room is free.
  size_t live = 0;
  for (const auto& job : scheduler->jobs()) live += job->finish == FinishReason::kRunning;
  const auto room = static_cast<size_t>(runner->state().options().max_sequences);
  while (!queue.empty() && live < room) {
    scheduler->admit(std::move(queue.front()));
    queue.pop_front();
    ++live;
  }
  running = live;
}

void Engine::Impl::publish() {
  const std::lock_guard lock(mutex);
  auto& jobs = scheduler->jobs();
  for (auto& job : jobs) {
    const auto found = updates.find(job->id);
    if (found == updates.end()) continue;
    Update& update = found->second;
    if (job->sampled) {
      update.tokens.push_back(job->token.id);
      update.logprobs.push_back(job->token.logprob);
      update.top_logprobs.push_back(job->token.top);
      job->sampled = false;
    }
    update.generated_tokens = static_cast<int64_t>(job->output.size());
    update.times = job->times;
    update.finish = job->finish;
    update.error = job->error;
  }
  const bool ended = std::erase_if(jobs, [](const auto& job) { return job->finish != FinishReason::kRunning; }) > 0;
  running = jobs.size();
  // Lists of names take as long as some kernels: not between any two steps.
  const auto now = Clock::now();
  if (!ended && now - counted < std::chrono::milliseconds(100)) return;
  counted = now;
  kernels_run = runner->ops().kernels_run();
  graphs = runner->ops().graphs();
  times = runner->load_times();
}

Result<bool> Engine::step() {
  const std::lock_guard lock(impl_->stepping);
  try {
    impl_->admit_queued();
    if (impl_->scheduler->jobs().empty()) return false;
    impl_->scheduler->step();
    impl_->publish();
    return true;
  } catch (const InternalError& error) {
    for (auto& job : impl_->scheduler->jobs())
      impl_->scheduler->finish(*job, FinishReason::kError, Error{ErrorCode::kInternal, error.message});
    impl_->publish();
    return tl::unexpected<Error>(Error{ErrorCode::kInternal, error.message});
  }
}

bool Engine::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(impl_->mutex);
  return impl_->work.wait_for(lock, timeout, [this] { return impl_->running > 0 || !impl_->queue.empty(); });
}

std::vector<std::pair<std::string, uint64_t>> Engine::kernels_run() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->kernels_run;
}

std::vector<GraphInfo> Engine::graphs() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->graphs;
}

LoadTimes Engine::times() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->times;
}

}  // namespace galvani
