// The bound of GPU products: what the kernels' arithmetic does on tensor cores of every generation, simulated here, is
// within it; what a wrong kernel does is not. 96 rows and three tokens of 320 columns, as doctor has them.
#include "kernels/qmatmul/qmatmul_cuda_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

#include "core/dtype.h"
#include "emulated_gpu/tensor_sum.h"
#include "kernel_testing.h"
#include "quant/fp_codec.h"

namespace galvani::kernels {
namespace {

constexpr size_t kRows = 96, kTokens = 3, kCols = 320;
constexpr int kArchs[] = {750, 800, 900};

enum class Fault { kNone, kBiasLeftOut, kCodesExchanged, kColumnsLeftOut, kScaleInF16, kNeighboursScale, kSumsInF16 };
constexpr Fault kFaults[] = {Fault::kNone,           Fault::kBiasLeftOut, Fault::kCodesExchanged,
                             Fault::kColumnsLeftOut, Fault::kScaleInF16,  Fault::kNeighboursScale,
                             Fault::kSumsInF16};
const char* fault_name(Fault fault) {
  constexpr const char* kNames[] = {"none",
                                    "a group's bias left out",
                                    "two codes exchanged",
                                    "16 columns left out",
                                    "scales rounded to f16",
                                    "a neighbour's scale",
                                    "sums in f16"};
  return kNames[static_cast<int>(fault)];
}

TensorCore core_of(int arch) {
  const auto [products, extra] = emulated::tensor_core(arch);
  return {products, extra};
}
float as_f16(float x) { return f16_to_f32(f32_to_f16(x)); }

/// A tensor core's sum of a·x, 16 columns a step.
float accumulate(std::span<const float> a, std::span<const float> x, int arch, bool f16_sums, int least) {
  float sum = 0;
  for (size_t k = 0; k < a.size(); k += 16) {
    int a_log2[16], x_log2[16];
    for (size_t i = 0; i < 16; ++i)
      a_log2[i] = emulated::exponent_of(a[k + i], least), x_log2[i] = emulated::exponent_of(x[k + i], least);
    sum = emulated::truncated_sum(sum, &a[k], a_log2, &x[k], x_log2, 1, 16, emulated::tensor_core(arch));
    if (f16_sums) sum = as_f16(sum);
  }
  return sum;
}

struct Affine {
  int bits, group;
  Arithmetic arithmetic;
  std::vector<uint32_t> codes;
  std::vector<float> scales, biases;
};

Affine draw(int bits, int group, Arithmetic arithmetic, std::mt19937_64& random) {
  Affine a{bits, group, arithmetic, {}, {}, {}};
  std::normal_distribution<float> normal(0, 0.1f);
  for (size_t i = 0; i < kCols; ++i) a.codes.push_back(static_cast<uint32_t>(random()) & ((1u << bits) - 1));
  for (size_t i = 0; i < kCols / static_cast<size_t>(group); ++i)
    a.scales.push_back(normal(random)), a.biases.push_back(normal(random));
  return a;
}

/// Faults of all rows; the others are of one group of one row.
bool everywhere(Fault fault) { return fault == Fault::kSumsInF16 || fault == Fault::kScaleInF16; }

/// Spoils a row; false where this row cannot show it.
bool spoil(Affine& a, Fault fault) {
  switch (fault) {
    case Fault::kBiasLeftOut: return std::fabs(std::exchange(a.biases[1], 0.0f)) > 0.01f;
    case Fault::kNeighboursScale:
      std::swap(a.scales[1], a.scales[2]);
      return std::fabs(a.scales[1] - a.scales[2]) > 0.01f;
    case Fault::kScaleInF16:
      for (float& scale : a.scales) scale = as_f16(scale);
      return true;
    case Fault::kCodesExchanged:
      std::swap(a.codes[5], a.codes[6]);
      return a.codes[5] != a.codes[6] && std::fabs(a.scales[0]) > 0.01f;
    case Fault::kColumnsLeftOut: return std::fabs(a.scales[1]) > 0.01f;
    default: return true;
  }
}

/// The arithmetic of qmatmul_few.cuh for one row and token.
float few(const Affine& a, std::span<const float> x, bool upper, int arch, Fault fault) {
  const bool bf16 = a.arithmetic == Arithmetic::kBF16;
  const auto offset = static_cast<float>(a.bits == 8 ? bf16 ? -128 : 256 : a.bits == 2 && !upper ? 16 : 1 << a.bits);
  const auto group = static_cast<size_t>(a.group);
  float out = 0;
  for (size_t k = 0; k < kCols; k += group) {
    std::vector<float> codes,
        in(x.begin() + static_cast<std::ptrdiff_t>(k), x.begin() + static_cast<std::ptrdiff_t>(k + group));
    std::vector<float> tree = in;
    for (size_t n = group / 2; n > 0; n /= 2)
      for (size_t i = 0; i < n; ++i) tree[i] = tree[2 * i] + tree[2 * i + 1];
    for (size_t i = 0; i < group; ++i) codes.push_back(offset + static_cast<float>(a.codes[k + i]));
    if (fault == Fault::kColumnsLeftOut && k == group) std::fill_n(in.end() - 16, 16, 0.0f);
    const float sum = accumulate(codes, in, arch, fault == Fault::kSumsInF16, bf16 ? -126 : -14);
    const float scale = a.scales[k / group], bias = std::fma(-offset, scale, a.biases[k / group]);
    out = std::fma(scale, sum, std::fma(bias, tree[0], out));
  }
  return out;
}

/// x as the arithmetic has it.
std::vector<float> draw_x(bool bf16, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(kCols);
  for (float& v : x) v = bf16 ? bf16_to_f32(f32_to_bf16(normal(random))) : as_f16(normal(random));
  return x;
}

double share_of(float got, const BoundedSum& sum) {
  return std::fabs(got - sum.value) / (1.05 * 0x1p-24 * std::fabs(sum.value) + sum.error());
}

TEST(QmatmulCudaBound, FewTokensMeetItAndFaultsDoNot) {
  const uint64_t seed = fresh_seed();
  std::mt19937_64 random(seed);
  double worst_of_all = 0;
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {32, 64})
      for (const Arithmetic arithmetic : {Arithmetic::kF16, Arithmetic::kBF16})
        for (const int arch : kArchs) {
          const bool bf16 = arithmetic == Arithmetic::kBF16;
          if (bf16 && arch < 800) continue;
          std::vector<std::vector<float>> xs;
          for (size_t t = 0; t < kTokens; ++t) xs.push_back(draw_x(bf16, random));
          for (const Fault fault : kFaults) {
            double worst = 0;
            const size_t spoilt = random() % kRows;
            for (size_t r = 0; r < kRows; ++r) {
              if (fault != Fault::kNone && !everywhere(fault) && r != spoilt) continue;
              Affine right = draw(bits, group, arithmetic, random), wrong = right;
              while (!spoil(wrong, fault)) wrong = right = draw(bits, group, arithmetic, random);
              const bool upper = r % 16 >= 8;
              for (const std::vector<float>& x : xs) {
                const AffineRow row{right.codes, right.scales, right.biases, bits, group, upper};
                worst = std::max(worst, share_of(few(wrong, x, upper, arch, fault),
                                                 few_affine_sum(row, x, arithmetic, core_of(arch))));
              }
            }
            const auto where = ::testing::Message()
                               << bits << " bits, group " << group << ", " << arithmetic_name(arithmetic) << ", "
                               << arch << ", " << fault_name(fault) << ", seed " << seed;
            if (fault == Fault::kNone) {
              worst_of_all = std::max(worst_of_all, worst);
              EXPECT_LE(worst, 1) << where;
            } else {
              EXPECT_GT(worst, 1) << where;
            }
          }
        }
  // A bound that nothing comes near says nothing.
  EXPECT_GT(worst_of_all, 0.1);
  RecordProperty("worst", std::to_string(worst_of_all));
}

TEST(QmatmulCudaBound, ChainsOfFloatCodesMeetItAndFaultsDoNot) {
  const uint64_t seed = fresh_seed();
  std::mt19937_64 random(seed);
  const std::vector<std::vector<int>> chain = {{0, 1, 2, 3, 4}};
  double worst_of_all = 0;
  for (const int arch : kArchs)
    for (const Fault fault : {Fault::kNone, Fault::kCodesExchanged, Fault::kColumnsLeftOut, Fault::kSumsInF16}) {
      double worst = 0;
      for (size_t r = 0; r < (fault == Fault::kNone ? 100 * kRows : kRows); ++r) {
        std::vector<float> w;
        std::normal_distribution<float> normal(0, 100);
        while (w.size() < kCols) {
          uint8_t code = 0;
          const float value = std::fabs(normal(random));
          while (code < 126 && quant::e4m3(static_cast<uint8_t>(code + 1)) <= value) ++code;
          w.push_back(std::ldexp(quant::e4m3(code), -static_cast<int>(w.size() / 32 % 3) - 6) *
                      (random() % 2 ? 1.0f : -1.0f));
        }
        const std::vector<double> exact(w.begin(), w.end());
        const std::vector<float> x = draw_x(false, random);
        if (fault == Fault::kCodesExchanged) std::rotate(w.begin(), w.begin() + 1, w.begin() + 3);
        if (fault == Fault::kColumnsLeftOut) std::fill_n(w.end() - 16, 16, 0.0f);
        worst = std::max(worst, share_of(accumulate(w, x, arch, fault == Fault::kSumsInF16, -14),
                                         chained_sum(exact, x, chain, core_of(arch))));
      }
      if (fault == Fault::kNone) {
        worst_of_all = std::max(worst_of_all, worst);
        EXPECT_LE(worst, 1) << arch << ", seed " << seed;
      } else {
        EXPECT_GT(worst, 1) << arch << ", " << fault_name(fault) << ", seed " << seed;
      }
    }
  EXPECT_GT(worst_of_all, 0.1);
  RecordProperty("worst", std::to_string(worst_of_all));
}

}  // namespace
}  // namespace galvani::kernels
