#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "kernels/elementwise/elementwise.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kGrain = 4096;

template <typename F>
void gated(const float* a, const float* b, int64_t rows, int64_t dim, int64_t a_stride, int64_t b_stride, float* out,
           int64_t out_stride, F f) {
  parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < dim; ++i)
        out[r * out_stride + i] = static_cast<float>(f(a[r * a_stride + i], b[r * b_stride + i]));
  });
}

}  // namespace

void swiglu(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride, int64_t up_stride,
            float* out, int64_t out_stride) {
  gated(gate, up, rows, dim, gate_stride, up_stride, out, out_stride, [](float g, float u) { return silu_ref(g) * u; });
}

void geglu_tanh(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride, int64_t up_stride,
                float* out, int64_t out_stride) {
  gated(gate, up, rows, dim, gate_stride, up_stride, out, out_stride,
        [](float g, float u) { return gelu_tanh_ref(g) * u; });
}

void swiglu_clamped(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride,
                    int64_t up_stride, float alpha, float limit, float* out, int64_t out_stride) {
  gated(gate, up, rows, dim, gate_stride, up_stride, out, out_stride,
        [=](float g, float u) { return swiglu_clamped_ref(g, u, alpha, limit); });
}

void sigmoid_mul(const float* gate, const float* x, int64_t rows, int64_t dim, int64_t gate_stride, int64_t x_stride,
                 float* out, int64_t out_stride) {
  gated(gate, x, rows, dim, gate_stride, x_stride, out, out_stride,
        [](float g, float v) { return v / (1.0 + std::exp(-double{g})); });
}

void add(float* x, const float* y, int64_t n) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) x[i] += y[i];
  });
}

void add_bias(float* x, int64_t rows, int64_t dim, int64_t stride, const float* bias) {
  parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < dim; ++i) x[r * stride + i] += bias[i];
  });
}

void scale(float* x, int64_t n, float factor) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) x[i] *= factor;
  });
}

void softcap(float* x, int64_t n, float cap) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) x[i] = static_cast<float>(softcap_ref(x[i], cap));
  });
}

void clamp(float* x, int64_t n, float low, float high) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) x[i] = std::isnan(x[i]) ? x[i] : std::min(std::max(x[i], low), high);
  });
}

int64_t argmax(const float* x, int64_t n) {
  int64_t best = n > 0 ? 0 : -1;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return -1;
    if (x[i] > x[best]) best = i;
  }
  return best;
}

}  // namespace galvani::kernels
