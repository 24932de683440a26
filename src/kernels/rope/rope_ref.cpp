#include <cmath>

#include "kernels/rope/rope.h"

namespace galvani::kernels {

void rope_ref(RopePairing pairing, const float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
              const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale, double* y) {
  const int64_t half = rotary_dim / 2;
  const bool split = pairing == RopePairing::kHalfSplit;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const float* in = x + r * row_stride + h * head_dim;
      double* out = y + (r * heads + h) * head_dim;
      for (int64_t i = 0; i < head_dim; ++i) out[i] = in[i];
      for (int64_t i = 0; i < half; ++i) {
        const double angle = double{inv_freq[i]} * positions[r];
        const double c = std::cos(angle) * attention_scale, s = std::sin(angle) * attention_scale;
        const int64_t first = split ? i : 2 * i, second = split ? i + half : 2 * i + 1;
        out[first] = in[first] * c - in[second] * s;
        out[second] = in[second] * c + in[first] * s;
      }
    }
  }
}

}  // namespace galvani::kernels
