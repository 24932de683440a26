/// The router's formula in f64, and what both arms refuse.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "kernels/moe/moe.h"

namespace galvani::kernels {

Status check_route(const RouteParams& p) {
  if (p.experts < 1 || p.top_k < 1 || p.top_k > p.experts)
    return fail(ErrorCode::kInvalidArgument,
                "{} experts a token of {} cannot be chosen; allowed: 1 to the number there is", p.top_k, p.experts);
  if (p.groups < 1 || p.experts % p.groups != 0)
    return fail(ErrorCode::kInvalidArgument, "{} experts do not divide into {} groups of one size", p.experts,
                p.groups);
  if (p.groups_kept < 1 || p.groups_kept > p.groups)
    return fail(ErrorCode::kInvalidArgument, "{} of {} expert groups cannot be kept; allowed: 1 to {}", p.groups_kept,
                p.groups, p.groups);
  const int size = p.experts / p.groups;
  if (p.top_k > p.groups_kept * size)
    return fail(ErrorCode::kInvalidArgument,
                "{} experts a token cannot be chosen from {} groups of {}; at most {} are in reach", p.top_k,
                p.groups_kept, size, p.groups_kept * size);
  if (p.groups > 1 && p.group_top2 && size < 2)
    return fail(ErrorCode::kInvalidArgument,
                "groups of one expert have no two best to score a group by; {} experts in {} groups", p.experts,
                p.groups);
  return {};
}

void route_ref(const float* logits, const RouteParams& p, int32_t* ids, double* weights) {
  const auto n = static_cast<size_t>(p.experts);
  const double top = *std::max_element(logits, logits + p.experts);
  std::vector<double> score(n), choice(n);
  double sum = 0;
  for (size_t e = 0; e < n; ++e) {
    score[e] = p.score == RouteScore::kSigmoid ? 1.0 / (1.0 + std::exp(-static_cast<double>(logits[e])))
                                               : std::exp(logits[e] - top);
    sum += score[e];
  }
  if (p.score == RouteScore::kSoftmaxAll)
    for (double& value : score) value /= sum;
  for (size_t e = 0; e < n; ++e) choice[e] = score[e] + (p.bias != nullptr ? p.bias[e] : 0.0);

  // Groups in order of their score, then experts of the kept ones in order of theirs; equal ones by index.
  const auto best_first = [](const std::vector<double>& by) {
    std::vector<size_t> order(by.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return by[a] > by[b]; });
    return order;
  };
  const size_t size = n / static_cast<size_t>(p.groups);
  std::vector<double> group_score;
  for (size_t g = 0; g < static_cast<size_t>(p.groups); ++g) {
    std::vector<double> members(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                                choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(members.begin(), members.end(), std::greater<>());
    group_score.push_back(members[0] + (p.group_top2 && size > 1 ? members[1] : 0.0));
  }
  std::vector<bool> kept(static_cast<size_t>(p.groups), false);
  const auto group_order = best_first(group_score);
  for (size_t i = 0; i < static_cast<size_t>(p.groups_kept); ++i) kept[group_order[i]] = true;
  size_t slot = 0;
  double chosen_sum = 0;
  for (const size_t e : best_first(choice)) {
    if (!kept[e / size]) continue;
    ids[slot] = static_cast<int32_t>(e);
    weights[slot] = score[e];
    chosen_sum += score[e];
    if (++slot == static_cast<size_t>(p.top_k)) break;
  }
  if (p.score == RouteScore::kSigmoid) chosen_sum += 1e-20;
  const bool divide = p.renormalize || p.score == RouteScore::kSoftmaxTopK;
  for (size_t j = 0; j < slot; ++j) {
    weights[j] = (divide ? weights[j] / chosen_sum : weights[j]) * p.scaling;
    if (p.expert_scale != nullptr) weights[j] *= p.expert_scale[ids[j]];
  }
}

}  // namespace galvani::kernels
