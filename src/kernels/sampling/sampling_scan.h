#pragma once
/// The passes of sampling over a whole vocabulary, vectorised. Private to this folder.
#include <cstdint>

namespace galvani::kernels {

constexpr int64_t kWeightBlock = 1024;

/// Largest of n > 0 values; `broken` when one is NaN or +infinity.
struct LogitScan {
  float peak = 0;
  bool broken = false;
};
LogitScan scan_logits(const float* logits, int64_t n);

/// weights[i] = e^((logits[i] − peak) / temperature), 0 below 2^−126; block_sums[b] = their sum over the b-th
/// kWeightBlock. Returns the sum of all. peak ≥ every logit.
double softmax_weights(const float* logits, int64_t n, float peak, float temperature, float* weights,
                       double* block_sums);

/// Σ e^(logits[i] − peak).
double softmax_sum(const float* logits, int64_t n, float peak);

/// Appends the indices i ≥ from with values[i] > bound to ids, in order, until `room` of them are found (room ≥ 64).
/// Returns where to go on, n when done; found counts what was appended.
int64_t collect_above(const float* values, int64_t from, int64_t n, float bound, int32_t* ids, int64_t room,
                      int64_t& found);

}  // namespace galvani::kernels
