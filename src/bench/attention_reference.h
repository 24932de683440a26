#pragma once
/// A few elements of an attention's result in f64, for the benches, which time nothing that is wrong.
#include <cmath>
#include <cstring>
#include <vector>

#include "core/dtype.h"

namespace galvani::bench {

struct AttentionElement {
  int64_t at;  ///< in the result
  double want, bound;
};

/// One row of one head over `tokens` keys: q(i), k(t, i), v(t, i). Weights are rounded to bf16 before they meet the
/// values, and u_out is the result's unit roundoff. Appends the row's `dim` elements, the first of them at `at`.
template <typename Q, typename K, typename V>
void attention_reference(int tokens, int dim, double scale, double u_out, int64_t at, const Q& q, const K& k,
                         const V& v, std::vector<AttentionElement>& elements) {
  std::vector<double> score(static_cast<size_t>(tokens)), sum(static_cast<size_t>(dim)), size(sum);
  double peak = -INFINITY, total = 0;
  for (int t = 0; t < tokens; ++t) {
    double dot = 0;
    for (int i = 0; i < dim; ++i) dot += q(i) * k(t, i);
    score[static_cast<size_t>(t)] = dot * scale;
    peak = std::max(peak, score[static_cast<size_t>(t)]);
  }
  for (int t = 0; t < tokens; ++t) {
    const double weight = std::exp(score[static_cast<size_t>(t)] - peak);
    total += weight;
    for (int i = 0; i < dim; ++i) {
      const double part = weight * v(t, i);
      sum[static_cast<size_t>(i)] += part, size[static_cast<size_t>(i)] += std::fabs(part);
    }
  }
  for (int i = 0; i < dim; ++i) {
    const double want = sum[static_cast<size_t>(i)] / total, parts = size[static_cast<size_t>(i)] / total;
    elements.push_back({at + i, want, 1.05 * u_out * std::fabs(want) + (1.05 * 0x1p-8 + 0x1p-16) * parts + 1e-30});
  }
}

/// Largest difference over its bound; infinite where something is no number. got(index) of the result.
template <typename Got>
double attention_worst(const std::vector<AttentionElement>& elements, const Got& got) {
  double worst = 0;
  for (const AttentionElement& e : elements) {
    const double share = std::fabs(got(e.at) - e.want) / e.bound;
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return worst;
}

/// Element `index` of bf16 data.
inline double bf16_at(const std::vector<std::byte>& bytes, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * index, 2);
  return bf16_to_f32(bits);
}

}  // namespace galvani::bench
