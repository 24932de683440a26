#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/sampling_scan.h"

namespace galvani::kernels {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

/// A thread's working memory; grows to the vocabulary and stays.
struct Scratch {
  std::vector<float> logits, weights;
  std::vector<double> block_sums;
  std::vector<int32_t> ids, border;
  std::vector<int32_t> counts;  // zero between calls
  std::vector<uint8_t> seen;    // likewise
};

bool penalises(const RowSampling& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f || row.frequency_penalty != 0.0f;
}

bool edits(const RowSampling& row) {
  return row.allowed_mask || !row.suppress.empty() || !row.logit_bias.empty() || penalises(row);
}

void apply_mask(const uint32_t* mask, std::vector<float>& logits) {
  const size_t n = logits.size();
  for (size_t word = 0; word * 32 < n; ++word) {
    const size_t begin = word * 32, end = std::min(n, begin + 32);
    if (mask[word] == 0) {
      std::fill(logits.begin() + static_cast<std::ptrdiff_t>(begin), logits.begin() + static_cast<std::ptrdiff_t>(end),
                kNone);
      continue;
    }
    for (uint32_t banned = ~mask[word]; banned != 0; banned &= banned - 1) {
      const size_t id = begin + static_cast<size_t>(std::countr_zero(banned));
      if (id < end) logits[id] = kNone;
    }
  }
}

void apply_penalties(const RowSampling& row, int64_t vocab, Scratch& scratch) {
  std::vector<float>& logits = scratch.logits;
  const auto valid = [&](int32_t id) { return static_cast<size_t>(id) < logits.size(); };
  if (row.repetition_penalty != 1.0f) {
    scratch.seen.resize(std::max(scratch.seen.size(), static_cast<size_t>(vocab)));
    for (auto tokens : {row.prompt_tokens, row.output_tokens}) {
      for (int32_t id : tokens) {
        if (!valid(id) || std::exchange(scratch.seen[static_cast<size_t>(id)], uint8_t{1})) continue;
        float& x = logits[static_cast<size_t>(id)];
        x = x > 0 ? x / row.repetition_penalty : x * row.repetition_penalty;
      }
    }
    for (auto tokens : {row.prompt_tokens, row.output_tokens})
      for (int32_t id : tokens) scratch.seen[static_cast<size_t>(id)] = 0;
  }
  if (row.presence_penalty == 0.0f && row.frequency_penalty == 0.0f) return;
  scratch.counts.resize(std::max(scratch.counts.size(), static_cast<size_t>(vocab)));
  for (int32_t id : row.output_tokens) ++scratch.counts[static_cast<size_t>(id)];
  for (int32_t id : row.output_tokens) {
    const int32_t count = std::exchange(scratch.counts[static_cast<size_t>(id)], 0);
    if (count == 0 || !valid(id)) continue;
    float& x = logits[static_cast<size_t>(id)];
    x -= row.frequency_penalty * static_cast<float>(count);
    x -= row.presence_penalty;
  }
}

/// The logits to draw from, [valid]: the model's own when nothing edits them.
const float* processed(const float* logits, int64_t vocab, int64_t valid, const RowSampling& row, Scratch& scratch) {
  if (!edits(row)) return logits;
  scratch.logits.assign(logits, logits + valid);
  std::vector<float>& l = scratch.logits;
  if (row.allowed_mask) apply_mask(row.allowed_mask, l);
  for (int32_t id : row.suppress)
    if (id < valid) l[static_cast<size_t>(id)] = kNone;
  for (const auto& [id, bias] : row.logit_bias)
    if (id < valid) l[static_cast<size_t>(id)] += bias;
  if (penalises(row)) apply_penalties(row, vocab, scratch);
  return l.data();
}

/// The k first of (value descending, id ascending), −infinity excluded, in that order, at the front of scratch.ids.
/// One pass over the values: only those above the k-th of what was seen so far are looked at. Returns how many.
int64_t select_top(const float* values, int64_t n, int64_t k, Scratch& scratch) {
  std::vector<int32_t>& ids = scratch.ids;
  const int64_t room = k + std::max<int64_t>(k, 1024);
  ids.resize(std::max(ids.size(), static_cast<size_t>(room)));
  const auto before = [values](int32_t a, int32_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
  };
  int64_t held = 0;
  float bound = kNone;
  for (int64_t next = 0; next < n;) {
    int64_t found = 0;
    next = collect_above(values, next, n, bound, ids.data() + held, room - held, found);
    held += found;
    if (held <= k) continue;
    std::nth_element(ids.begin(), ids.begin() + (k - 1), ids.begin() + held, before);
    held = k;
    bound = values[ids[static_cast<size_t>(k - 1)]];  // a later equal one has a higher id and stays out
  }
  std::sort(ids.begin(), ids.begin() + held, before);
  return held;
}

/// Draws from ids[0 … count), which ascend, with the given weights.
int32_t draw_from(const std::vector<int32_t>& ids, int64_t count, const float* weights, double u) {
  double mass = 0;
  for (int64_t i = 0; i < count; ++i) mass += weights[ids[static_cast<size_t>(i)]];
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += weights[ids[static_cast<size_t>(i)]];
    if (u * mass < sum) return ids[static_cast<size_t>(i)];
  }
  return ids[static_cast<size_t>(count - 1)];
}

/// How many of ids[0 … count), largest first, top-p and min-p keep. `mass` is that of what top-p works on.
int64_t kept_prefix(const RowSampling& row, const std::vector<int32_t>& ids, int64_t count, const float* weights,
                    double mass) {
  int64_t n = count;
  if (row.top_p < 1.0f) {
    double sum = 0;
    for (n = 0; n < count && sum < double{row.top_p} * mass;) sum += weights[ids[static_cast<size_t>(n++)]];
    n = std::max<int64_t>(n, 1);
  }
  while (n > 1 && weights[ids[static_cast<size_t>(n - 1)]] < row.min_p) --n;  // the largest weighs 1
  return n;
}

/// Cuts ids[0 … count), which ascend, down to top-p's set, in place and in order; returns its size. Only what shares
/// the crossing's bucket in a histogram of the weights' leading bits, or lies next to it, is sorted.
int64_t keep_top_p(float top_p, const float* logits, const float* weights, double mass, std::vector<int32_t>& ids,
                   int64_t count, std::vector<int32_t>& border) {
  constexpr int kShift = 20;  // sign, exponent and 3 bits of mantissa: a bucket spans 12 % or less
  const auto bucket = [weights](int32_t id) { return std::bit_cast<uint32_t>(weights[id]) >> kShift; };
  const double target = double{top_p} * mass;
  double sums[(0x3f800000u >> kShift) + 1] = {};
  for (int64_t i = 0; i < count; ++i) sums[bucket(ids[static_cast<size_t>(i)])] += weights[ids[static_cast<size_t>(i)]];
  uint32_t crossing = static_cast<uint32_t>(std::size(sums));
  double above = 0;
  for (double next = 0; crossing > 0 && next < target; next = above + sums[crossing]) {
    above = next;
    --crossing;
  }
  // A bucket more on the lower side absorbs the rounding of the sums.
  border.clear();
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    if (bucket(id) <= crossing && bucket(id) + 1 >= crossing) border.push_back(id);
  }
  const auto before = [logits](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::sort(border.begin(), border.end(), before);
  size_t taken = 0;
  while (taken < border.size() && above < target) above += weights[border[taken++]];
  const auto kept = std::remove_if(ids.begin(), ids.begin() + count, [&](int32_t id) {
    if (bucket(id) > crossing) return false;
    return taken == 0 || before(border[taken - 1], id);
  });
  return kept - ids.begin();
}

/// Draws from the whole distribution.
int32_t draw_unfiltered(const float* weights, int64_t n, const std::vector<double>& block_sums, double mass, double u) {
  const double target = u * mass;
  double sum = 0;
  size_t block = 0;
  const size_t last = static_cast<size_t>((n - 1) / kWeightBlock);
  while (block < last && sum + block_sums[block] <= target) sum += block_sums[block++];
  int64_t drawn = -1;
  const int64_t begin = static_cast<int64_t>(block) * kWeightBlock, end = std::min(n, begin + kWeightBlock);
  for (int64_t i = begin; i < end; ++i) {
    if (weights[i] <= 0) continue;
    drawn = i;
    sum += weights[i];
    if (target < sum) return static_cast<int32_t>(i);
  }
  // Rounding left the target beyond the block's last token; a block without weight is only met at the very end.
  for (int64_t i = begin; drawn < 0 && i-- > 0;)
    if (weights[i] > 0) drawn = i;
  return static_cast<int32_t>(drawn);
}

int32_t draw(const float* logits, int64_t n, float peak, const RowSampling& row, Scratch& scratch) {
  const double u = philox_uniform(row.seed, row.position);
  scratch.weights.resize(std::max(scratch.weights.size(), static_cast<size_t>(n)));
  scratch.block_sums.resize(std::max(scratch.block_sums.size(), static_cast<size_t>(n / kWeightBlock + 1)));
  float* weights = scratch.weights.data();
  if (row.top_k > 0 && row.top_k < n) {
    const int64_t count = select_top(logits, n, row.top_k, scratch);
    double mass = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t id = scratch.ids[static_cast<size_t>(i)];
      mass += weights[id] = std::exp((logits[id] - peak) / row.temperature);
    }
    const int64_t kept = kept_prefix(row, scratch.ids, count, weights, mass);
    std::sort(scratch.ids.begin(), scratch.ids.begin() + kept);
    return draw_from(scratch.ids, kept, weights, u);
  }
  const double mass = softmax_weights(logits, n, peak, row.temperature, weights, scratch.block_sums.data());
  if (row.top_p >= 1.0f && row.min_p <= 0.0f) return draw_unfiltered(weights, n, scratch.block_sums, mass, u);

  // Weights below (1 − p) · mass / n cannot add up to (1 − p) · mass, so the set is complete without them; the factor
  // and the largest weight, 1, keep rounding out of the argument.
  const double spare = 0.99 * (1.0 - double{row.top_p}) * mass / static_cast<double>(n);
  float bound = row.top_p < 1.0f ? static_cast<float>(std::min(spare, 0.5)) : 0.0f;
  if (row.top_p >= 1.0f) bound = std::nextafter(row.min_p, 0.0f);
  scratch.ids.resize(std::max(scratch.ids.size(), static_cast<size_t>(n) + 64));
  int64_t count = 0;
  collect_above(weights, 0, n, bound, scratch.ids.data(), static_cast<int64_t>(scratch.ids.size()), count);
  if (row.top_p < 1.0f) {
    count = keep_top_p(row.top_p, logits, weights, mass, scratch.ids, count, scratch.border);
    const auto kept = std::remove_if(scratch.ids.begin(), scratch.ids.begin() + count,
                                     [&](int32_t id) { return weights[id] < row.min_p; });
    count = kept - scratch.ids.begin();
  }
  return draw_from(scratch.ids, count, weights, u);
}

Status report_logprobs(const float* logits, int64_t vocab, int64_t valid, const RowSampling& row, Scratch& scratch,
                       SampledToken& token) {
  const LogitScan scan = scan_logits(logits, vocab);
  if (scan.broken)
    return fail(ErrorCode::kInternal, "log-probabilities were asked for, but a logit is NaN or infinite");
  const double normaliser = scan.peak + std::log(softmax_sum(logits, vocab, scan.peak));
  token.logprob = static_cast<float>(logits[token.id] - normaliser);
  const int64_t count = row.top_logprobs > 0 ? select_top(logits, valid, row.top_logprobs, scratch) : 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = scratch.ids[static_cast<size_t>(i)];
    token.top.emplace_back(id, static_cast<float>(logits[id] - normaliser));
  }
  return {};
}

Result<SampledToken> sample_row(const float* logits, int64_t vocab, const RowSampling& row, Scratch& scratch) {
  GALVANI_TRY_VOID(validate(row, vocab));
  const int64_t valid = row.valid_vocab > 0 ? row.valid_vocab : vocab;
  const float* l = processed(logits, vocab, valid, row, scratch);
  const LogitScan scan = scan_logits(l, valid);
  if (scan.broken) {
    const float* bad = std::find_if(l, l + valid, [](float x) { return std::isnan(x) || x == INFINITY; });
    return fail(ErrorCode::kInternal, "the logit of token {} is {}: the model's output is broken", bad - l, *bad);
  }
  if (scan.peak == kNone)
    return fail(ErrorCode::kInvalidArgument, "no token is left to sample: each of {} ids is masked or has logit -inf",
                valid);
  SampledToken token;
  token.id = row.temperature < kGreedyTemperature ? static_cast<int32_t>(argmax(l, valid))
                                                  : draw(l, valid, scan.peak, row, scratch);
  token.logprob = std::numeric_limits<float>::quiet_NaN();
  if (row.logprobs || row.top_logprobs > 0)
    GALVANI_TRY_VOID(report_logprobs(logits, vocab, valid, row, scratch, token));
  return token;
}

}  // namespace

Result<std::vector<SampledToken>> sample(const float* logits, int64_t rows, int64_t vocab, int64_t stride,
                                         std::span<const RowSampling> per_row) {
  if (static_cast<int64_t>(per_row.size()) != rows)
    return fail(ErrorCode::kInvalidArgument, "sampling {} rows of logits with the parameters of {}", rows,
                per_row.size());
  if (vocab <= 0) return fail(ErrorCode::kInvalidArgument, "sampling from a vocabulary of {} tokens", vocab);
  std::vector<std::optional<Result<SampledToken>>> results(static_cast<size_t>(rows));
  parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    thread_local Scratch scratch;
    for (int64_t r = begin; r < end; ++r)
      results[static_cast<size_t>(r)] =
          sample_row(logits + r * stride, vocab, per_row[static_cast<size_t>(r)], scratch);
  });
  std::vector<SampledToken> tokens;
  tokens.reserve(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    Result<SampledToken>& result = *results[static_cast<size_t>(r)];
    if (!result) return wrap(std::move(result).error(), fmt::format("row {}", r));
    tokens.push_back(std::move(*result));
  }
  return tokens;
}

}  // namespace galvani::kernels
