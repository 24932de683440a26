#include "engine/scheduler.h"

#include <algorithm>

#include "core/error.h"

namespace galvani::engine {
namespace {

double ms_since(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

bool Scheduler::has_room() const { return static_cast<int>(jobs_.size()) < runner_.state().options().max_sequences; }

void Scheduler::admit(std::unique_ptr<Job> job) {
  auto sequence = runner_.state().create_sequence();
  GALVANI_CHECK(sequence.has_value(), "admit without room");
  job->sequence = *sequence;
  job->times.start = ms_since(job->submitted);
  jobs_.push_back(std::move(job));
}

void Scheduler::finish(Job& job, FinishReason reason, Error error) {
  job.finish = reason;
  job.error = std::move(error);
  if (job.sequence >= 0) runner_.state().release(job.sequence);
  job.sequence = -1;
}

bool Scheduler::add_chunk(exec::Batch& batch, Job& job, std::span<const int32_t> ids, exec::WantLogits want) {
  exec::Chunk chunk{.sequence = job.sequence,
                    .first_position = runner_.state().length(job.sequence),
                    .count = static_cast<int32_t>(ids.size())};
  if (auto reserved = runner_.state().reserve(chunk); !reserved) {
    // Running into the context's end is an ordinary way to stop; anything else is an error of this request alone.
    const bool context_full = reserved.error().code == ErrorCode::kOutOfRange;
    finish(job, context_full ? FinishReason::kContext : FinishReason::kError, reserved.error());
    return false;
  }
  batch.add(job.sequence, chunk.first_position, ids, want);
  return true;
}

void Scheduler::plan(exec::Batch& batch, std::vector<Job*>& rows) {
  for (auto& job : jobs_) {
    if (job->finish != FinishReason::kRunning || job->prefilled < job->request.prompt.size()) continue;
    if (batch.rows() >= max_batch_tokens_) break;
    if (add_chunk(batch, *job, std::span(&job->output.back(), 1), exec::WantLogits::kLast)) rows.push_back(job.get());
  }
  for (auto& job : jobs_) {
    const auto& prompt = job->request.prompt;
    const auto budget = static_cast<size_t>(std::max<int64_t>(0, max_batch_tokens_ - batch.rows()));
    if (job->finish != FinishReason::kRunning || job->prefilled >= prompt.size()) continue;
    if (budget == 0) break;
    const size_t count = std::min(budget, prompt.size() - job->prefilled);
    const bool last = job->prefilled + count == prompt.size();
    if (!add_chunk(batch, *job, std::span(prompt).subspan(job->prefilled, count),
                   last ? exec::WantLogits::kLast : exec::WantLogits::kNone))
      continue;
    job->prefilled += count;
    if (last) rows.push_back(job.get());
  }
}

kernels::RowSampling Scheduler::sampling_of(const Job& job) const {
  const SamplingParams& params = job.request.sampling;
  kernels::RowSampling row;
  row.temperature = params.temperature;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.min_p = params.min_p;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.seed = params.seed;
  row.position = job.request.prompt.size() + job.output.size();
  row.logit_bias = params.logit_bias;
  row.prompt_tokens = job.request.prompt;
  row.output_tokens = job.output;
  row.logprobs = true;
  row.top_logprobs = params.top_logprobs;
  row.valid_vocab = static_cast<int32_t>(valid_vocab_ > 0 ? valid_vocab_ : runner_.info().vocab);
  row.suppress = runner_.suppressed();
  return row;
}

void Scheduler::apply(Job& job, kernels::SampledToken token) {
  job.times.last_token = ms_since(job.submitted);
  if (job.output.empty()) job.times.first_token = job.times.last_token;
  const int32_t id = token.id;
  job.token = std::move(token);
  job.sampled = true;
  job.output.push_back(id);
  const bool end =
      contains(job.request.stop_ids, id) || (!job.request.ignore_eos && contains(runner_.info().eos_ids, id));
  if (end)
    finish(job, FinishReason::kStop);
  else if (static_cast<int64_t>(job.output.size()) >= job.request.max_tokens)
    finish(job, FinishReason::kLength);
}

void Scheduler::step() {
  for (auto& job : jobs_) job->sampled = false;
  exec::Batch batch;
  std::vector<Job*> rows;
  plan(batch, rows);
  if (batch.rows() == 0) return;

  const auto fail_all = [&](const Error& error) {
    for (auto& job : jobs_) {
      if (job->finish == FinishReason::kRunning) finish(*job, FinishReason::kError, error);
    }
  };
  auto logits = runner_.forward(batch);
  if (!logits) return fail_all(logits.error());
  if (rows.empty()) return;
  // The batch lists logit rows in the order chunks were added, which is the order of `rows`.
  std::vector<kernels::RowSampling> sampling;
  for (const Job* job : rows) sampling.push_back(sampling_of(*job));
  auto tokens = runner_.ops().sample(*logits, sampling);
  if (!tokens) return fail_all(tokens.error());
  for (size_t i = 0; i < rows.size(); ++i) apply(*rows[i], std::move((*tokens)[i]));
}

}  // namespace galvani::engine
