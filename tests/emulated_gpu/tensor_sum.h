#pragma once
/// How a tensor product adds. Exact products added in f32 in the order of k, or, where GALVANI_EMULATED_SUMS is
/// `truncated`, what tensor cores have been found to do with 16-bit operands and f32 sums: some products and the sum so
/// far are aligned to the largest exponent among them, cut off (towards zero) some bits below f32's last place, added
/// exactly, and the result is cut off to f32. Products count with the sum of their operands' exponents, not normalised.
/// Sources: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021; Khattak and
/// Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv 2512.07004, which found its models bit-exact on V100,
/// A100, H100, H200 and B200. Turing is taken to be as Volta (Fasi et al. found no difference).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "emulated_gpu/block.h"

namespace galvani::emulated {

struct TensorCore {
  int products;  ///< that are added at once
  int extra;     ///< bits kept below f32's last place when they are aligned
};
constexpr TensorCore tensor_core(int cuda_arch) {
  return cuda_arch < 800 ? TensorCore{4, 0} : cuda_arch < 900 ? TensorCore{8, 1} : TensorCore{16, 2};
}

constexpr int kNoExponent = -100000;  // of zero, which takes no part
inline int exponent_of(float x, int least) {
  if (x == 0) return kNoExponent;
  return std::max(static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 255u) - 127, least);
}
inline double power_of_two(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

/// c + Σ a·b of one element as a tensor core of that kind adds it. a_log2, b_log2: exponent_of each.
inline float truncated_sum(float c, const float* a, const int* a_log2, const float* b, const int* b_log2, int b_step,
                           int count, TensorCore core) {
  for (int first = 0; first < count; first += core.products) {
    int largest = exponent_of(c, -126);
    for (int k = first; k < first + core.products; ++k) largest = std::max(largest, a_log2[k] + b_log2[k * b_step]);
    if (largest <= kNoExponent / 2) continue;
    const int unit = largest - 23 - core.extra;
    const double scale = power_of_two(-unit);
    auto sum = static_cast<int64_t>(c * scale);
    bool finite = std::isfinite(c);
    for (int k = first; k < first + core.products; ++k) {
      const double product = static_cast<double>(a[k]) * b[k * b_step];
      finite = finite && std::isfinite(product);
      if (finite) sum += static_cast<int64_t>(product * scale);
    }
    if (!finite) {
      for (int k = first; k < first + core.products; ++k) c += a[k] * b[k * b_step];
      continue;
    }
    // 24 significant bits; below f32's normal numbers the conversion rounds instead of cutting off.
    const auto bits = std::bit_cast<uint64_t>(static_cast<double>(sum)) & ~((uint64_t{1} << 29) - 1);
    c = static_cast<float>(std::bit_cast<double>(bits) * power_of_two(unit));
  }
  return c;
}

/// c[16][kN] += a[16][16] · b[16][kN], elements of T (f16 or another type with bf16's exponents).
template <int kCudaArch, bool kIsF16, int kN>
void tensor_product(float (&c)[16][kN], const float (&a)[16][16], const float (&b)[16][kN]) {
  if (!truncated_sums()) {
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < kN; ++n) c[row][n] += a[row][k] * b[k][n];
    return;
  }
  constexpr int kLeast = kIsF16 ? -14 : -126;
  int a_log2[16][16], b_log2[16][kN];
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k) a_log2[row][k] = exponent_of(a[row][k], kLeast);
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < kN; ++n) b_log2[k][n] = exponent_of(b[k][n], kLeast);
  for (int row = 0; row < 16; ++row)
    for (int n = 0; n < kN; ++n)
      c[row][n] =
          truncated_sum(c[row][n], a[row], a_log2[row], &b[0][n], &b_log2[0][n], kN, 16, tensor_core(kCudaArch));
}

}  // namespace galvani::emulated
