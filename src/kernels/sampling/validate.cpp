#include <cmath>

#include "core/error.h"
#include "kernels/sampling/sampling.h"

namespace galvani::kernels {
namespace {

Status check_ids(const char* name, std::span<const int32_t> ids, int64_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab)
      return fail(ErrorCode::kOutOfRange, "{}[{}] is token id {}; the vocabulary holds ids 0 to {}", name, i, ids[i],
                  vocab - 1);
  }
  return {};
}

}  // namespace

Status validate(const RowSampling& row, int64_t vocab) {
  constexpr auto kBad = ErrorCode::kInvalidArgument;
  // Written so that NaN fails every comparison.
  if (!(row.temperature >= 0.0f && std::isfinite(row.temperature)))
    return fail(kBad, "temperature is {}; it must be a finite number ≥ 0 (0 is greedy)", row.temperature);
  if (!(row.top_p > 0.0f && row.top_p <= 1.0f))
    return fail(kBad, "top_p is {}; it must be above 0 and at most 1 (1 turns it off)", row.top_p);
  if (!(row.min_p >= 0.0f && row.min_p <= 1.0f))
    return fail(kBad, "min_p is {}; it must be between 0 (off) and 1", row.min_p);
  if (!(row.repetition_penalty > 0.0f && std::isfinite(row.repetition_penalty)))
    return fail(kBad, "repetition_penalty is {}; it must be a finite number above 0 (1 turns it off)",
                row.repetition_penalty);
  if (!(std::fabs(row.presence_penalty) <= 2.0f))
    return fail(kBad, "presence_penalty is {}; it must be between -2 and 2 (0 turns it off)", row.presence_penalty);
  if (!(std::fabs(row.frequency_penalty) <= 2.0f))
    return fail(kBad, "frequency_penalty is {}; it must be between -2 and 2 (0 turns it off)", row.frequency_penalty);
  if (row.top_logprobs < 0 || row.top_logprobs > kMaxTopLogprobs)
    return fail(kBad, "top_logprobs is {}; it must be between 0 and {}", row.top_logprobs, kMaxTopLogprobs);
  if (row.valid_vocab < 0 || row.valid_vocab > vocab)
    return fail(kBad, "valid_vocab is {}; the logits have {} entries (0 means all are valid)", row.valid_vocab, vocab);
  for (const auto& [id, bias] : row.logit_bias) {
    if (id < 0 || id >= vocab)
      return fail(ErrorCode::kOutOfRange, "logit_bias names token id {}; the vocabulary holds ids 0 to {}", id,
                  vocab - 1);
    if (!std::isfinite(bias)) return fail(kBad, "logit_bias of token {} is {}; it must be finite", id, bias);
  }
  if (auto status = check_ids("suppress", row.suppress, vocab); !status) return status;
  if (auto status = check_ids("prompt_tokens", row.prompt_tokens, vocab); !status) return status;
  return check_ids("output_tokens", row.output_tokens, vocab);
}

}  // namespace galvani::kernels
