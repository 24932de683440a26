#pragma once
// A gated activation of one element. NVRTC compiles it alone.
#include "kernels/common/device.cuh"
#include "kernels/common/gate.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// x / (1 + exp(z)). A quarter of the sum, since the reciprocal of more than 2^126 would be flushed to 0. The quotient
/// is within 3u (u = 2^-24) beside the errors of exp and of the sum. kRounded: the result goes to 16 bits, so that exp
/// may be off by (5 + |z|)·u more: eleven instructions become five.
template <bool kRounded>
GALVANI_DEVICE float over_one_plus_exp(float x, float z) {
  const float quarter = kRounded ? exp2_fast(fmaf(z, 1.4426950408889634f, -2.0f)) : 0.25f * expf(z);
  return 0.25f * x * reciprocal_fast(quarter + 0.25f);
}

/// elementwise.h's formulas but the sigmoid's; gelu_tanh as g·sigmoid(2√(2/π)·(g + 0.044715 g³)). alpha, limit: of
/// kSwigluClamped.
template <bool kRounded>
GALVANI_DEVICE float gated_mlp_value(Gate kind, float g, float u, float alpha, float limit) {
  float z = -g;
  if (kind == Gate::kGeluTanh) z = -1.5957691216057308f * (g + 0.044715f * g * g * g);
  if (kind == Gate::kSwigluClamped) {
    g = g > limit ? limit : g;  // NaN stays NaN
    u = (u > limit ? limit : u < -limit ? -limit : u) + 1.0f;
    z = -alpha * g;
  }
  return over_one_plus_exp<kRounded>(g, z) * u;
}
template <bool kRounded>
GALVANI_DEVICE float gated_value(Gate kind, float g, float u, float alpha, float limit) {
  return kind == Gate::kSigmoid ? over_one_plus_exp<kRounded>(u, -g)
                                : gated_mlp_value<kRounded>(kind, g, u, alpha, limit);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
