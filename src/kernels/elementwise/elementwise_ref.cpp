#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"

namespace galvani::kernels {

double silu_ref(double g) { return g / (1.0 + std::exp(-g)); }

double gelu_tanh_ref(double g) {
  // ½(1 + tanh z) = 1 / (1 + e^−2z) exactly; the left side loses every digit for z below −20 even in f64.
  const double z = std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g);
  return g / (1.0 + std::exp(-2.0 * z));
}

double swiglu_clamped_ref(double g, double u, double alpha, double limit) {
  const double gate = std::min(g, limit), up = std::clamp(u, -limit, limit);
  return (up + 1.0) * gate / (1.0 + std::exp(-alpha * gate));
}

double softcap_ref(double x, double cap) { return cap * std::tanh(x / cap); }

}  // namespace galvani::kernels
