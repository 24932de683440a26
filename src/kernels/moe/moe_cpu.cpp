#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/common/simd_targets.h"
#include "kernels/moe/moe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/moe_cpu.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

/// out[i] = e^(x[i] − shift).
void exp_shifted(const float* x, int64_t n, float shift, float* out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec s = hn::Set(d, shift);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(exp_full(d, hn::Sub(hn::LoadU(d, x + i), s)), d, out + i);
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  store_partial(d, exp_full(d, hn::Sub(load_partial(d, x + i, rest), s)), out + i, rest);
}

/// out[i] = sigmoid(x[i]).
void sigmoids(const float* x, int64_t n, float* out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(sigmoid(d, hn::LoadU(d, x + i)), d, out + i);
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  store_partial(d, sigmoid(d, load_partial(d, x + i, rest)), out + i, rest);
}

/// y[c] = Σ_j w[j] · x[at[j] · stride + c], c < n.
void weighted_sum(const float* x, int64_t stride, const int64_t* at, const float* w, int top_k, int64_t n, float* y) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    F32Vec sum = hn::Mul(hn::Set(d, w[0]), hn::LoadU(d, x + at[0] * stride + c));
    for (int j = 1; j < top_k; ++j) sum = hn::MulAdd(hn::Set(d, w[j]), hn::LoadU(d, x + at[j] * stride + c), sum);
    hn::StoreU(sum, d, y + c);
  }
  if (c == n) return;
  const auto rest = static_cast<size_t>(n - c);
  F32Vec sum = hn::Mul(hn::Set(d, w[0]), load_partial(d, x + at[0] * stride + c, rest));
  for (int j = 1; j < top_k; ++j)
    sum = hn::MulAdd(hn::Set(d, w[j]), load_partial(d, x + at[j] * stride + c, rest), sum);
  store_partial(d, sum, y + c, rest);
}

/// y[c] += factor · x[c].
void add_scaled(const float* x, float factor, int64_t n, float* y) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec f = hn::Set(d, factor);
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) hn::StoreU(hn::MulAdd(f, hn::LoadU(d, x + c), hn::LoadU(d, y + c)), d, y + c);
  if (c == n) return;
  const auto rest = static_cast<size_t>(n - c);
  store_partial(d, hn::MulAdd(f, load_partial(d, x + c, rest), load_partial(d, y + c, rest)), y + c, rest);
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {

HWY_EXPORT(exp_shifted);
HWY_EXPORT(sigmoids);
HWY_EXPORT(weighted_sum);
HWY_EXPORT(add_scaled);

constexpr int64_t kGrain = 8192;  // elements; below this a thread costs more than it saves
constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t rows_a_thread(int64_t row_elements) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(row_elements, 1));
}

/// A thread's room for one row of experts and of groups.
struct RowScratch {
  std::vector<float> score, biased, groups;
  std::vector<char> kept;
};

/// Indices of the k largest of values[0, n) where allowed(i), best first; equal values by index. All finite.
template <typename Allowed>
void largest(const float* values, int n, int k, const Allowed& allowed, int32_t* out) {
  int have = 0;
  for (int i = 0; i < n; ++i) {
    if (!allowed(i) || (have == k && !(values[i] > values[out[k - 1]]))) continue;
    int at = have < k ? have++ : k - 1;
    for (; at > 0 && values[i] > values[out[at - 1]]; --at) out[at] = out[at - 1];
    out[at] = i;
  }
}

float group_score(const float* choice, int size, bool top2) {
  float best = kLowest, second = kLowest;
  for (int i = 0; i < size; ++i) {
    if (choice[i] > best)
      second = best, best = choice[i];
    else
      second = std::max(second, choice[i]);
  }
  return top2 ? best + second : best;
}

/// Fills s.kept with the groups that experts may be chosen from.
void keep_groups(const float* choice, const RouteParams& p, RowScratch& s) {
  const int size = p.experts / p.groups;
  s.groups.resize(static_cast<size_t>(p.groups));
  s.kept.assign(static_cast<size_t>(p.groups), 0);
  for (int g = 0; g < p.groups; ++g)
    s.groups[static_cast<size_t>(g)] = group_score(choice + g * size, size, p.group_top2);
  std::vector<int32_t> best(static_cast<size_t>(p.groups_kept));
  largest(
      s.groups.data(), p.groups, p.groups_kept, [](int) { return true; }, best.data());
  for (const int32_t g : best) s.kept[static_cast<size_t>(g)] = 1;
}

/// One row. Returns the expert whose logit or biased score is not finite, or -1.
int route_row(const float* logits, const RouteParams& p, RowScratch& s, int32_t* ids, float* weights) {
  const int n = p.experts;
  for (int e = 0; e < n; ++e)
    if (!std::isfinite(logits[e])) return e;
  s.score.resize(static_cast<size_t>(n));
  float* score = s.score.data();
  float total = 1;
  if (p.score == RouteScore::kSigmoid) {
    HWY_DYNAMIC_DISPATCH(sigmoids)(logits, n, score);
  } else {
    HWY_DYNAMIC_DISPATCH(exp_shifted)(logits, n, *std::max_element(logits, logits + n), score);
    if (p.score == RouteScore::kSoftmaxAll) {
      total = 0;
      for (int e = 0; e < n; ++e) total += score[e];
    }
  }
  const bool by_score = p.bias != nullptr || (p.groups > 1 && p.group_top2);
  const float* choice = logits;
  if (by_score) {
    s.biased.resize(static_cast<size_t>(n));
    for (int e = 0; e < n; ++e) {
      s.biased[static_cast<size_t>(e)] = score[e] / total + (p.bias != nullptr ? p.bias[e] : 0.0f);
      if (!std::isfinite(s.biased[static_cast<size_t>(e)])) return e;
    }
    choice = s.biased.data();
  }
  if (p.groups > 1 && p.groups_kept < p.groups) {
    keep_groups(choice, p, s);
    const int size = n / p.groups;
    largest(
        choice, n, p.top_k, [&](int e) { return s.kept[static_cast<size_t>(e / size)] != 0; }, ids);
  } else {
    largest(
        choice, n, p.top_k, [](int) { return true; }, ids);
  }
  if (p.renormalize || p.score == RouteScore::kSoftmaxTopK) {
    total = p.score == RouteScore::kSigmoid ? 1e-20f : 0.0f;
    for (int j = 0; j < p.top_k; ++j) total += score[ids[j]];
  }
  for (int j = 0; j < p.top_k; ++j) {
    weights[j] = score[ids[j]] / total * p.scaling;
    if (p.expert_scale != nullptr) weights[j] *= p.expert_scale[ids[j]];
  }
  return -1;
}

}  // namespace

Status route(const float* logits, int64_t rows, int64_t stride, const RouteParams& params, int32_t* ids,
             float* weights) {
  std::atomic<int64_t> bad{std::numeric_limits<int64_t>::max()};  // the first row · experts + expert
  parallel_for(rows, rows_a_thread(4 * int64_t{params.experts}), [&](int64_t begin, int64_t end, int) {
    thread_local RowScratch scratch;
    for (int64_t r = begin; r < end; ++r) {
      const int expert =
          route_row(logits + r * stride, params, scratch, ids + r * params.top_k, weights + r * params.top_k);
      if (expert < 0) continue;
      const int64_t at = r * params.experts + expert;
      for (int64_t seen = bad; at < seen && !bad.compare_exchange_weak(seen, at);) {
      }
      return;
    }
  });
  if (bad == std::numeric_limits<int64_t>::max()) return {};
  const int64_t row = bad / params.experts, expert = bad % params.experts;
  return fail(ErrorCode::kCorrupt,
              "router: the score of expert {} is not a finite number (logit {}) in row {} of this step; the weights or "
              "an earlier layer's values are broken",
              expert, logits[row * stride + expert], row);
}

void ExpertGroups::build(const int32_t* ids, int64_t rows, int top_k, int experts) {
  const int64_t total = rows * top_k;
  next.assign(static_cast<size_t>(experts) + 1, 0);
  for (int64_t i = 0; i < total; ++i) {
    GALVANI_CHECK(ids[i] >= 0 && ids[i] < experts, "expert {} of {}", ids[i], experts);
    ++next[static_cast<size_t>(ids[i]) + 1];
  }
  groups.clear();
  for (int e = 0; e < experts; ++e) {
    const int64_t count = next[static_cast<size_t>(e) + 1], first = next[static_cast<size_t>(e)];
    if (count > 0) groups.push_back({e, first, count});
    next[static_cast<size_t>(e) + 1] = first + count;
  }
  tokens.resize(static_cast<size_t>(total));
  places.resize(static_cast<size_t>(total));
  for (int64_t i = 0; i < total; ++i) {
    const int64_t place = next[static_cast<size_t>(ids[i])]++;
    tokens[static_cast<size_t>(place)] = static_cast<int32_t>(i / top_k);
    places[static_cast<size_t>(i)] = place;
  }
}

void combine_experts(const float* x, int64_t x_stride, const int64_t* places, const float* weights, int64_t rows,
                     int top_k, int64_t dim, float* y, int64_t y_stride) {
  parallel_for(rows, rows_a_thread(dim * top_k), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) HWY_DYNAMIC_DISPATCH(weighted_sum)
    (x, x_stride, places + t * top_k, weights + t * top_k, top_k, dim, y + t * y_stride);
  });
}

void add_shared_expert(const float* x, int64_t x_stride, const float* gate, int64_t gate_stride, int64_t rows,
                       int64_t dim, float* y, int64_t y_stride) {
  parallel_for(rows, rows_a_thread(dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float factor = 1;
      if (gate != nullptr) HWY_DYNAMIC_DISPATCH(sigmoids)(gate + t * gate_stride, 1, &factor);
      HWY_DYNAMIC_DISPATCH(add_scaled)(x + t * x_stride, factor, dim, y + t * y_stride);
    }
  });
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
