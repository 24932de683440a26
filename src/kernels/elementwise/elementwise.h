#pragma once
/// Element by element operations on f32 rows: activations of gated MLPs, adds, scales, soft caps; and argmax.
///
/// Arrays are [rows, dim] with a row stride in elements each; rows = 1 for a flat array. `out` may be an input itself
/// (same stride), else must not overlap. Every element depends on its own inputs alone, bit for bit, wherever it lies.
/// NaN propagates. exp, tanh and sigmoid inside are within 3 ulp of the exact function (measured: README.md).
#include <cstdint>

namespace galvani::kernels {

/// silu(g)·u with silu(g) = g / (1 + e^−g). Source: Shazeer 2020 (SwiGLU).
void swiglu(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride, int64_t up_stride,
            float* out, int64_t out_stride);

/// gelu_tanh(g)·u with gelu_tanh(g) = ½g·(1 + tanh(√(2/π)·(g + 0.044715 g³))), computed as g·sigmoid(2√(2/π)·(…)),
/// which keeps its relative accuracy for negative g. Source: Hendrycks and Gimpel 2016.
void geglu_tanh(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride, int64_t up_stride,
                float* out, int64_t out_stride);

/// (u' + 1)·g'·sigmoid(alpha·g') with g' = min(g, limit), u' = clamp(u, −limit, limit): gpt-oss, alpha 1.702, limit 7.
void swiglu_clamped(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride,
                    int64_t up_stride, float alpha, float limit, float* out, int64_t out_stride);

/// sigmoid(gate)·x: attention output gates.
void sigmoid_mul(const float* gate, const float* x, int64_t rows, int64_t dim, int64_t gate_stride, int64_t x_stride,
                 float* out, int64_t out_stride);

/// x[i] += y[i] for i < n.
void add(float* x, const float* y, int64_t n);
/// x[r, i] += bias[i].
void add_bias(float* x, int64_t rows, int64_t dim, int64_t stride, const float* bias);
/// x[i] *= factor.
void scale(float* x, int64_t n, float factor);
/// x[i] = cap·tanh(x[i] / cap), cap > 0. Source: Gemma 2 report, section 2.
void softcap(float* x, int64_t n, float cap);
/// x[i] = min(max(x[i], low), high); NaN stays NaN.
void clamp(float* x, int64_t n, float low, float high);

/// Index of the largest element, the lowest one on ties; −1 when n is 0 or an element is NaN.
int64_t argmax(const float* x, int64_t n);

// f64 formulas for tests.
double silu_ref(double g);
double gelu_tanh_ref(double g);
double swiglu_clamped_ref(double g, double u, double alpha, double limit);
double softcap_ref(double x, double cap);

}  // namespace galvani::kernels
