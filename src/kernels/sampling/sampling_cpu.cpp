#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling.h"

namespace galvani::kernels {
namespace {

Result<SampledToken> sample_row(const float* logits, int64_t vocab, const RowSampling& row) {
  GALVANI_TRY_VOID(validate(row, vocab));
  const int64_t valid = row.valid_vocab > 0 ? row.valid_vocab : vocab;
  for (int64_t i = 0; i < valid; ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY)
      return fail(ErrorCode::kInternal, "the logit of token {} is {}; the model's output is broken", i, logits[i]);
  }
  auto kept = distribution_ref(logits, vocab, row);
  if (kept.empty()) return fail(ErrorCode::kInvalidArgument, "no token is left to sample: every id is masked or -inf");
  std::sort(kept.begin(), kept.end());
  const double u = philox_uniform(row.seed, row.position);
  double mass = 0;
  SampledToken token;
  token.id = kept.back().first;
  for (const auto& [id, p] : kept) {
    mass += p;
    if (u < mass) {
      token.id = id;
      break;
    }
  }
  token.logprob = NAN;
  if (!row.logprobs && row.top_logprobs == 0) return token;
  const float peak = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[i]} - peak);
  const double normaliser = peak + std::log(sum);
  token.logprob = static_cast<float>(logits[token.id] - normaliser);
  std::vector<int32_t> order(static_cast<size_t>(valid));
  for (int64_t i = 0; i < valid; ++i) order[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (int64_t i = 0; i < std::min<int64_t>(row.top_logprobs, valid); ++i) {
    const int32_t id = order[static_cast<size_t>(i)];
    token.top.emplace_back(id, static_cast<float>(logits[id] - normaliser));
  }
  return token;
}

}  // namespace

Result<std::vector<SampledToken>> sample(const float* logits, int64_t rows, int64_t vocab, int64_t stride,
                                         std::span<const RowSampling> per_row) {
  if (static_cast<int64_t>(per_row.size()) != rows)
    return fail(ErrorCode::kInvalidArgument, "sampling {} rows of logits with the parameters of {}", rows,
                per_row.size());
  std::vector<SampledToken> tokens;
  for (int64_t r = 0; r < rows; ++r) {
    auto token = sample_row(logits + r * stride, vocab, per_row[static_cast<size_t>(r)]);
    if (!token) return wrap(token.error(), fmt::format("row {}", r));
    tokens.push_back(std::move(*token));
  }
  return tokens;
}

}  // namespace galvani::kernels
