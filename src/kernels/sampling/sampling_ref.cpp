#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/sampling/sampling.h"

namespace galvani::kernels {
namespace {

std::vector<double> penalised(const float* logits, int64_t vocab, const RowSampling& row) {
  std::vector<double> l(logits, logits + vocab);
  for (int64_t i = 0; i < vocab; ++i) {
    const bool allowed = !row.allowed_mask || (row.allowed_mask[i / 32] >> (i % 32) & 1u);
    if (!allowed || (row.valid_vocab > 0 && i >= row.valid_vocab)) l[static_cast<size_t>(i)] = -INFINITY;
  }
  for (int32_t id : row.suppress) l[static_cast<size_t>(id)] = -INFINITY;
  for (const auto& [id, bias] : row.logit_bias) l[static_cast<size_t>(id)] += double{bias};
  std::set<int32_t> seen(row.prompt_tokens.begin(), row.prompt_tokens.end());
  seen.insert(row.output_tokens.begin(), row.output_tokens.end());
  for (int32_t id : seen) {
    double& x = l[static_cast<size_t>(id)];
    x = x > 0 ? x / row.repetition_penalty : x * row.repetition_penalty;
  }
  for (int32_t id : row.output_tokens) l[static_cast<size_t>(id)] -= double{row.frequency_penalty};
  for (int32_t id : std::set<int32_t>(row.output_tokens.begin(), row.output_tokens.end()))
    l[static_cast<size_t>(id)] -= double{row.presence_penalty};
  return l;
}

}  // namespace

std::vector<std::pair<int32_t, double>> distribution_ref(const float* logits, int64_t vocab, const RowSampling& row) {
  const std::vector<double> l = penalised(logits, vocab, row);
  std::vector<std::pair<int32_t, double>> kept;
  for (int64_t i = 0; i < vocab; ++i)
    if (l[static_cast<size_t>(i)] > -INFINITY) kept.emplace_back(static_cast<int32_t>(i), l[static_cast<size_t>(i)]);
  std::stable_sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (kept.empty()) return kept;
  const bool greedy = row.temperature < kGreedyTemperature;
  const auto shrink = [&](size_t n) { kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(n), kept.end()); };
  if (greedy) shrink(1);
  if (!greedy && row.top_k > 0 && static_cast<size_t>(row.top_k) < kept.size()) shrink(static_cast<size_t>(row.top_k));

  const double peak = kept.front().second, temperature = greedy ? 1.0 : double{row.temperature};
  double sum = 0;
  for (auto& [id, x] : kept) sum += x = std::exp((x - peak) / temperature);
  if (!greedy && row.top_p < 1.0f) {
    double mass = 0;
    size_t n = 0;
    while (n < kept.size() && mass < double{row.top_p} * sum) mass += kept[n++].second;
    shrink(std::max<size_t>(n, 1));
  }
  if (!greedy) {
    size_t n = 1;
    while (n < kept.size() && kept[n].second >= double{row.min_p}) ++n;  // the largest is e^0
    shrink(n);
  }
  sum = 0;
  for (const auto& entry : kept) sum += entry.second;
  for (auto& entry : kept) entry.second /= sum;
  return kept;
}

}  // namespace galvani::kernels
