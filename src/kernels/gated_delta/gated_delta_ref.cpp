#include <cmath>
#include <vector>

#include "kernels/gated_delta/gated_delta.h"

namespace galvani::kernels {
namespace {

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

double length(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

/// The convolved and activated channels of one token; moves its input into `conv`.
void convolve(const GatedDeltaShape& shape, const GatedDeltaWeights& weights, const float* m, double* conv, double* u) {
  const int64_t channels = shape.channels();
  const int past = shape.kernel - 1;
  for (int64_t c = 0; c < channels; ++c) {
    double sum = double{weights.conv[past * channels + c]} * m[c];
    for (int j = 0; j < past; ++j) sum += double{weights.conv[j * channels + c]} * conv[j * channels + c];
    u[c] = sum * sigmoid_of(sum);
    for (int j = 0; j + 1 < past; ++j) conv[j * channels + c] = conv[(j + 1) * channels + c];
    conv[(past - 1) * channels + c] = m[c];
  }
}

void normalise(double* x, int dim, double factor) {
  double sum = 0;
  for (int i = 0; i < dim; ++i) sum += x[i] * x[i];
  for (int i = 0; i < dim; ++i) x[i] *= factor / std::sqrt(sum + 1e-6);
}

/// S ← e^g S, d = β (v − kᵀS), S ← S + k dᵀ, o = qᵀ S.
void advance(const GatedDeltaShape& shape, const double* q, const double* k, const double* v, double decay, double beta,
             double* state, double* o) {
  for (int j = 0; j < shape.v_dim; ++j) {
    double known = 0;
    for (int i = 0; i < shape.k_dim; ++i) known += k[i] * decay * state[i * shape.v_dim + j];
    const double d = beta * (v[j] - known);
    o[j] = 0;
    for (int i = 0; i < shape.k_dim; ++i) {
      double& s = state[i * shape.v_dim + j];
      s = decay * s + k[i] * d;
      o[j] += q[i] * s;
    }
  }
}

void finish(const GatedDeltaShape& shape, const GatedDeltaWeights& weights, const float* z, double* o) {
  double sum = 0;
  for (int j = 0; j < shape.v_dim; ++j) sum += o[j] * o[j];
  const double inverse = 1.0 / std::sqrt(sum / shape.v_dim + weights.eps);
  for (int j = 0; j < shape.v_dim; ++j) {
    const double gate = sigmoid_of(z[j]) * (weights.sigmoid_gate ? 1.0 : double{z[j]});
    o[j] *= inverse * weights.norm[j] * gate;
  }
}

}  // namespace

void gated_delta_ref(const GatedDeltaShape& shape, const GatedDeltaWeights& weights, const float* in, int64_t in_stride,
                     int64_t count, double* conv, double* state, double* out, double* alignment) {
  const int64_t channels = shape.channels();
  std::vector<double> u(static_cast<size_t>(channels));
  for (int64_t t = 0; t < count; ++t) {
    const float* row = in + t * in_stride;
    convolve(shape, weights, row, conv, u.data());
    double* q = u.data();
    double* k = q + shape.keys();
    const double* v = k + shape.keys();
    for (int h = 0; h < shape.key_heads; ++h) {
      normalise(q + h * shape.k_dim, shape.k_dim, 1.0 / std::sqrt(static_cast<double>(shape.k_dim)));
      normalise(k + h * shape.k_dim, shape.k_dim, 1.0);
    }
    const float* z = row + channels;
    const float* b = z + shape.values();
    const float* a = b + shape.value_heads;
    for (int h = 0; h < shape.value_heads; ++h) {
      const int64_t key = int64_t{shape.key_head(h)} * shape.k_dim, value = int64_t{h} * shape.v_dim;
      const double g = -std::exp(double{weights.a_log[h]}) * softplus(double{a[h]} + weights.dt_bias[h]);
      double* o = out + t * shape.values() + value;
      advance(shape, q + key, k + key, v + value, std::exp(g), sigmoid_of(b[h]), state + value * shape.k_dim, o);
      if (alignment)
        alignment[t * shape.value_heads + h] = length(o, shape.v_dim) / length(q + key, shape.k_dim) /
                                               length(state + value * shape.k_dim, shape.k_dim * shape.v_dim);
      finish(shape, weights, z + value, o);
    }
  }
}

}  // namespace galvani::kernels
