#pragma once
/// From rows of logits to token ids, each row with parameters of its own.
///
/// Order (OpenAI's and vLLM's): allowed mask, suppressed and invalid ids → logit bias → repetition, frequency, presence
/// penalties → temperature → top-k → top-p → min-p → draw. top-p's mass is renormalised over what top-k kept.
/// Below temperature 1e-5 the row is greedy: the largest penalised logit, the lowest id on ties; filters are skipped.
/// Everywhere tokens are ordered by (logit descending, id ascending), so ties at a filter's border go to the lower ids.
/// The draw is u · mass in id order over what the filters kept, with u from Philox4x32-10 keyed (seed, position): a
/// row's token depends on its logits and parameters alone, never on the batch.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "galvani/error.h"

namespace galvani::kernels {

constexpr float kGreedyTemperature = 1e-5f;
constexpr int kMaxTopLogprobs = 20;

/// Defaults change nothing: the model's own distribution. Spans must outlive the call.
struct RowSampling {
  float temperature = 1.0f;  ///< ≥ 0; below kGreedyTemperature greedy
  int top_k = 0;             ///< keep the k largest; ≤ 0 or ≥ vocab: off
  float top_p = 1.0f;        ///< (0, 1]: keep the smallest set whose mass reaches it, at least one; 1: off
  float min_p = 0.0f;        ///< [0, 1]: keep p ≥ min_p · p_max
  float repetition_penalty =
      1.0f;  ///< > 0, once per token of prompt ∪ output: logit > 0 is divided by it, else multiplied
  float presence_penalty = 0.0f;   ///< [−2, 2]: subtracted once per token of output
  float frequency_penalty = 0.0f;  ///< [−2, 2]: subtracted per occurrence in output
  uint64_t seed = 0;
  uint64_t position = 0;                                  ///< position of the token drawn, in its sequence
  std::span<const std::pair<int32_t, float>> logit_bias;  ///< finite; a repeated id adds up
  std::span<const int32_t> prompt_tokens;                 ///< may repeat; read only when repetition_penalty ≠ 1
  std::span<const int32_t> output_tokens;                 ///< with repetitions; read only when a penalty is on
  const uint32_t* allowed_mask = nullptr;                 ///< token i is allowed iff bit i%32 of word i/32; null: all
  bool logprobs = false;    ///< report `logprob` of the token; implied by top_logprobs > 0. Costs a pass of exp.
  int top_logprobs = 0;     ///< 0 … kMaxTopLogprobs most likely tokens to report
  int32_t valid_vocab = 0;  ///< ids at or above it are never sampled (padding rows); 0: all are valid
  std::span<const int32_t> suppress;  ///< ids never sampled
};

struct SampledToken {
  int32_t id = -1;
  /// log-softmax of the raw logits (before mask, bias, penalties, temperature), over all `vocab` of them; NaN when not
  /// asked.
  float logprob = 0.0f;
  /// The top_logprobs most likely valid ids with their raw log-probability, by (logprob descending, id ascending).
  std::vector<std::pair<int32_t, float>> top;
};

/// Checks one row's parameters against the ranges above and ids against [0, vocab); the message names the parameter.
Status validate(const RowSampling& row, int64_t vocab);

/// logits: [rows, vocab] f32, row stride `stride` elements; per_row: one each. Errors name the row: parameters out of
/// range, a NaN or +infinity among the logits of ids that may be sampled, no id left to sample.
Result<std::vector<SampledToken>> sample(const float* logits, int64_t rows, int64_t vocab, int64_t stride,
                                         std::span<const RowSampling> per_row);

/// What the row draws from, in f64 by full sort: (id, probability) by (probability descending, id ascending). One entry
/// when greedy, none when no id is left. For tests.
std::vector<std::pair<int32_t, double>> distribution_ref(const float* logits, int64_t vocab, const RowSampling& row);

}  // namespace galvani::kernels
