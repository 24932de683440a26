/// Every arm against f64, within the budget 1.05·u·|y| + 4·u·Σ|w·x|, u = 2^-24, with the roundings that the contract
/// names (x, and for bf16 panels the weights) applied to the reference's operands. Panels sum one column after another,
/// so that each partial sum S is rounded, by 0.29 to 0.58·u·|S| of standard deviation: their budget is
/// 1.05·u·|y| + u·Σ|w·x| + 4·u·√ΣS², where 8·u·Σ|w·x| was passed by an eighth by a sum that wandered far from 0. With 3
/// instead of 4 no error was above 0.76 of it in 4·10^7 sums.
#include "kernels/qmatmul/qmatmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/parallel.h"
#include "kernels/kernel_testing.h"
#include "kernels/qmatmul/packed.h"
#include "qmatmul_source.h"

namespace galvani::kernels {
namespace {

using testing::MemoryMatrix;
using testing::round_to;
using testing::Scales;

constexpr QmatmulArm kArms[] = {QmatmulArm::kRef, QmatmulArm::kRows, QmatmulArm::kPanel};
constexpr Arithmetic kArithmetics[] = {Arithmetic::kF32, Arithmetic::kF16, Arithmetic::kBF16};
constexpr uint32_t kPoison = 0x7fc0dead;

DType type_of(Arithmetic a) {
  return a == Arithmetic::kF32 ? DType::kF32 : a == Arithmetic::kF16 ? DType::kF16 : DType::kBF16;
}

std::vector<float> random_x(int64_t m, int64_t stride, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * stride));
  for (float& v : x) v = normal(rng);
  return x;
}

std::vector<float> poisoned(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), std::bit_cast<float>(kPoison));
}

/// Rows [r0, r0 + w.rows) of `source` in f64 against y.
void expect_product(const MemoryMatrix& source, int64_t r0, const CpuMatrix& w, const std::vector<float>& x, int64_t m,
                    int64_t x_stride, const std::vector<float>& y, int64_t y_stride, Arithmetic arithmetic,
                    QmatmulArm arm) {
  const QmatmulPlan plan = qmatmul_plan_for(w, m, arithmetic, arm);
  const bool bf16_weights =
      plan.variant == QmatmulVariant::kPanelBf16Amx || plan.variant == QmatmulVariant::kPanelBf16Avx512;
  const double u = 0x1p-24;
  const bool sequential = qmatmul_variant_arm(plan.variant) == QmatmulArm::kPanel;
  std::vector<double> rounded(static_cast<size_t>(m * w.cols)), weights(static_cast<size_t>(w.cols));
  for (int64_t t = 0; t < m; ++t)
    for (int64_t c = 0; c < w.cols; ++c)
      rounded[static_cast<size_t>(t * w.cols + c)] =
          round_to(type_of(arithmetic), x[static_cast<size_t>(t * x_stride + c)]);
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t c = 0; c < w.cols; ++c)
      weights[static_cast<size_t>(c)] =
          bf16_weights ? round_to(DType::kBF16, source.weight_fused(r0 + r, c)) : source.weight(r0 + r, c);
    for (int64_t t = 0; t < m; ++t) {
      double sum = 0, size = 0, path = 0;
      for (int64_t c = 0; c < w.cols; ++c) {
        const double product = weights[static_cast<size_t>(c)] * rounded[static_cast<size_t>(t * w.cols + c)];
        sum += product, size += std::fabs(product), path += sum * sum;
      }
      const double got = y[static_cast<size_t>(t * y_stride + r)];
      const double sums = sequential ? size + 4 * std::sqrt(path) : 4 * size;
      const double bound = 1.05 * u * std::fabs(sum) + u * sums + 1e-37;
      ASSERT_LE(std::fabs(got - sum), bound)
          << w.layout << " " << qmatmul_variant_name(plan.variant) << " row " << r << " token " << t << ": " << got
          << ", f64 " << sum << ", error over bound " << std::fabs(got - sum) / bound;
    }
  }
}

/// Runs one product with padded strides and guard bands and checks values and that nothing else was written.
void check(const MemoryMatrix& source, int64_t r0, const CpuMatrix& w, int64_t m, Arithmetic arithmetic, QmatmulArm arm,
           uint64_t seed) {
  const int64_t x_stride = w.cols + 3, y_stride = w.rows + 5, guard = 64;
  const std::vector<float> x = random_x(m, x_stride, seed);
  std::vector<float> y = poisoned(m * y_stride + 2 * guard);
  qmatmul(w, x.data(), m, x_stride, y.data() + guard, y_stride, arithmetic, arm);
  for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
    const int64_t at = i - guard;
    const bool inside = at >= 0 && at < m * y_stride && at % y_stride < w.rows;
    if (!inside) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[static_cast<size_t>(i)]), kPoison) << "guard band at " << at;
    }
  }
  y.erase(y.begin(), y.begin() + guard);
  expect_product(source, r0, w, x, m, x_stride, y, y_stride, arithmetic, arm);
}

std::unique_ptr<CpuMatrix> pack(const MemoryMatrix& source, int64_t r0, int64_t r1) {
  auto packed = qmatmul_pack(source, r0, r1);
  if (!packed) ADD_FAILURE() << packed.error().message;
  return packed ? std::move(*packed) : nullptr;
}

TEST(Qmatmul, EveryAffineFormat) {
  uint64_t seed = fresh_seed();
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {16, 32, 64, 128})
      for (const DType type : {DType::kF16, DType::kBF16, DType::kF32})
        for (const Scales scales : {Scales::kFree, Scales::kCentred}) {
          const auto source = MemoryMatrix::affine_random(37, 256, bits, group, type, scales, ++seed);
          const auto w = pack(source, 2, 37);
          for (const Arithmetic arithmetic : kArithmetics)
            for (const auto& [arm, m] : {std::pair{QmatmulArm::kRef, 2},
                                         {QmatmulArm::kRows, 1},
                                         {QmatmulArm::kRows, 7},
                                         {QmatmulArm::kPanel, 17}}) {
              SCOPED_TRACE(::testing::Message() << "seed " << seed << " bits " << bits << " group " << group);
              check(source, 2, *w, m, arithmetic, arm, seed);
              if (HasFatalFailure()) return;
            }
        }
}

TEST(Qmatmul, KQuantsTablesAndDense) {
  uint64_t seed = fresh_seed();
  const std::vector<float> e2m1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const std::vector<float> iq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  std::vector<MemoryMatrix> sources;
  for (const int bits : {4, 5})
    sources.push_back(MemoryMatrix::affine_random(50, 640, bits, 32, DType::kF32, Scales::kKQuant, ++seed));
  sources.push_back(MemoryMatrix::affine_random(50, 512, 2, 16, DType::kF32, Scales::kKQuant, ++seed));
  for (const int bits : {3, 6})
    sources.push_back(MemoryMatrix::affine_random(50, 512, bits, 16, DType::kF32, Scales::kKQuantMid, ++seed));
  sources.push_back(MemoryMatrix::table_random(50, 96, quant::MatrixKind::kMxfp4, 32, e2m1, ++seed));
  sources.push_back(MemoryMatrix::table_random(50, 96, quant::MatrixKind::kNvfp4, 16, e2m1, ++seed));
  sources.push_back(MemoryMatrix::table_random(50, 96, quant::MatrixKind::kLut4, 32, iq4, ++seed));
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    for (const int64_t cols : {64, 77, 1}) sources.push_back(MemoryMatrix::dense_random(50, cols, type, ++seed));
  for (const MemoryMatrix& source : sources) {
    const auto w = pack(source, 0, 50);
    for (const Arithmetic arithmetic : kArithmetics)
      for (const QmatmulArm arm : kArms)
        for (const int64_t m : {1, 2, 5, 16, 33}) {
          SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << w->layout);
          check(source, 0, *w, m, arithmetic, arm, seed);
          if (HasFatalFailure()) return;
        }
  }
}

TEST(Qmatmul, RealShapes) {
  uint64_t seed = fresh_seed();
  const struct {
    int64_t rows, cols;
    int bits;
    DType type;
    Scales scales;
  } shapes[] = {
      {576, 576, 4, DType::kF16, Scales::kFree},     {192, 576, 4, DType::kF16, Scales::kFree},
      {1536, 576, 4, DType::kF16, Scales::kFree},    {576, 1536, 4, DType::kF16, Scales::kFree},
      {1000, 576, 8, DType::kF16, Scales::kCentred}, {1024, 640, 5, DType::kF16, Scales::kCentred},
      {640, 2048, 4, DType::kF32, Scales::kKQuant},  {640, 1024, 4, DType::kF32, Scales::kKQuant},
      {48, 704, 4, DType::kBF16, Scales::kFree},     {100, 2112, 4, DType::kBF16, Scales::kFree},
      {47, 2880, 4, DType::kBF16, Scales::kFree},    {33, 4096, 3, DType::kBF16, Scales::kFree},
  };
  for (const auto& s : shapes) {
    const auto source = MemoryMatrix::affine_random(s.rows, s.cols, s.bits, 32, s.type, s.scales, ++seed);
    const auto w = pack(source, 0, s.rows);
    for (const Arithmetic arithmetic : {Arithmetic::kF32, Arithmetic::kBF16})
      for (const auto& [arm, m] : {std::pair{QmatmulArm::kRows, 1}, {QmatmulArm::kRows, 8}, {QmatmulArm::kPanel, 20}}) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << s.rows << "x" << s.cols);
        check(source, 0, *w, m, arithmetic, arm, seed);
        if (HasFatalFailure()) return;
      }
  }
}

TEST(Qmatmul, OneHotInputGivesTheDequantisedColumn) {
  const uint64_t seed = fresh_seed();
  std::vector<MemoryMatrix> sources;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    sources.push_back(MemoryMatrix::affine_random(19, 96, bits, 32, DType::kF16, Scales::kFree, seed));
    sources.push_back(MemoryMatrix::affine_random(19, 96, bits, 16, DType::kBF16, Scales::kFree, seed));
    sources.push_back(MemoryMatrix::affine_random(19, 96, bits, 32, DType::kF16, Scales::kCentred, seed));
    // With 8 bits scale · code would leave f32's 24 bits, and no GGUF type does that.
    if (bits < 8) sources.push_back(MemoryMatrix::affine_random(19, 96, bits, 16, DType::kF32, Scales::kKQuant, seed));
  }
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    sources.push_back(MemoryMatrix::dense_random(19, 70, type, seed));
  for (const MemoryMatrix& source : sources) {
    const auto w = pack(source, 0, source.rows());
    const int64_t k = source.cols();
    std::vector<float> x(static_cast<size_t>(k * k)), y = poisoned(k * source.rows());
    for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(i * k + i)] = 1.0f;
    for (const Arithmetic arithmetic : kArithmetics)
      for (const QmatmulArm arm : kArms) {
        qmatmul(*w, x.data(), k, k, y.data(), source.rows(), arithmetic, arm);
        const bool rounds = arithmetic == Arithmetic::kBF16 && arm == QmatmulArm::kPanel &&
                            qmatmul_plan_for(*w, k, arithmetic, arm).variant != QmatmulVariant::kPanelF32;
        for (int64_t c = 0; c < k; ++c)
          for (int64_t r = 0; r < source.rows(); ++r) {
            const float got = y[static_cast<size_t>(c * source.rows() + r)], stored = source.weight(r, c);
            const float want = rounds ? round_to(DType::kBF16, stored) : stored;
            ASSERT_EQ(got, want) << w->layout << " " << qmatmul_arm_name(arm) << " column " << c << " seed " << seed;
          }
      }
  }
}

TEST(Qmatmul, RowsDoNotDependOnTheirNeighbours) {
  const uint64_t seed = fresh_seed();
  std::vector<MemoryMatrix> sources;
  sources.push_back(MemoryMatrix::affine_random(70, 576, 4, 32, DType::kF16, Scales::kFree, seed));
  sources.push_back(MemoryMatrix::affine_random(70, 2560, 8, 64, DType::kBF16, Scales::kFree, seed));
  sources.push_back(MemoryMatrix::affine_random(70, 256, 6, 16, DType::kF32, Scales::kKQuantMid, seed));
  sources.push_back(MemoryMatrix::dense_random(70, 300, DType::kBF16, seed));
  sources.push_back(MemoryMatrix::dense_random(70, 300, DType::kF16, seed));
  constexpr int64_t kDistinct = 61, kMost = 512, kRows = 70;
  for (const MemoryMatrix& source : sources) {
    const auto w = pack(source, 0, kRows);
    const int64_t k = source.cols();
    std::vector<float> x = random_x(kDistinct, k, seed);
    while (static_cast<int64_t>(x.size()) < (kDistinct + kMost) * k)
      x.push_back(x[x.size() - static_cast<size_t>(kDistinct * k)]);
    for (const Arithmetic arithmetic : {Arithmetic::kF32, Arithmetic::kBF16})
      for (const QmatmulArm arm : {QmatmulArm::kRows, QmatmulArm::kPanel}) {
        std::vector<float> alone(static_cast<size_t>(kDistinct * kRows)), y(static_cast<size_t>(kMost * kRows));
        for (int64_t t = 0; t < kDistinct; ++t)
          qmatmul(*w, x.data() + t * k, 1, k, alone.data() + t * kRows, kRows, arithmetic, arm);
        for (const int64_t m : {2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 512}) {
          const int64_t first = m % kDistinct;
          std::ranges::fill(y, std::bit_cast<float>(kPoison));
          qmatmul(*w, x.data() + first * k, m, k, y.data(), kRows, arithmetic, arm);
          for (int64_t t = 0; t < m; ++t) {
            const float* want = alone.data() + (first + t) % kDistinct * kRows;
            ASSERT_EQ(std::memcmp(y.data() + t * kRows, want, kRows * 4), 0)
                << w->layout << " " << qmatmul_arm_name(arm) << " " << arithmetic_name(arithmetic) << " m " << m
                << " token " << t << " seed " << seed;
          }
        }
      }
  }
}

TEST(Qmatmul, SegmentsShareAnInput) {
  const uint64_t seed = fresh_seed();
  const auto a = MemoryMatrix::affine_random(100, 320, 4, 32, DType::kF16, Scales::kFree, seed);
  const auto b = MemoryMatrix::affine_random(33, 320, 8, 32, DType::kF16, Scales::kCentred, seed + 1);
  const auto c = MemoryMatrix::dense_random(20, 320, DType::kF16, seed + 2);
  const auto wa = pack(a, 0, 100), wb = pack(b, 1, 33), wc = pack(c, 0, 20);
  const CpuMatrix* const segments[] = {wa.get(), wb.get(), wc.get()};
  for (const Arithmetic arithmetic : kArithmetics)
    for (const int64_t m : {1, 3, 40})
      for (const int team : {1, 2, 3}) {
        set_threads(team);
        const std::vector<float> x = random_x(m, 320, seed);
        CpuInput input;
        input.prepare(x.data(), m, 320, 320, arithmetic);
        std::vector<float> together = poisoned(m * 152), apart = poisoned(m * 152);
        qmatmul_multi(segments, input, together.data(), 152);
        qmatmul(*wa, x.data(), m, 320, apart.data(), 152, arithmetic);
        qmatmul(*wb, x.data(), m, 320, apart.data() + 100, 152, arithmetic);
        qmatmul(*wc, x.data(), m, 320, apart.data() + 132, 152, arithmetic);
        EXPECT_EQ(std::memcmp(together.data(), apart.data(), together.size() * 4), 0) << "m " << m << " seed " << seed;
      }
  set_threads(0);
}

TEST(Qmatmul, AnInputCanBePreparedAgain) {
  const auto source = MemoryMatrix::affine_random(32, 256, 4, 64, DType::kBF16, Scales::kFree, 3);
  const auto w = pack(source, 0, 32);
  const CpuMatrix* const one[] = {w.get()};
  CpuInput used;
  const std::vector<float> big = random_x(64, 512, 1), x = random_x(5, 256, 2);
  used.prepare(big.data(), 64, 512, 512, Arithmetic::kF32);
  for (const Arithmetic arithmetic : kArithmetics) {
    CpuInput fresh;
    fresh.prepare(x.data(), 5, 256, 256, arithmetic), used.prepare(x.data(), 5, 256, 256, arithmetic);
    for (const QmatmulArm arm : kArms) {
      std::vector<float> a = poisoned(5 * 32), b = poisoned(5 * 32);
      qmatmul_multi(one, fresh, a.data(), 32, arm), qmatmul_multi(one, used, b.data(), 32, arm);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * 4), 0) << qmatmul_arm_name(arm);
    }
  }
}

TEST(Qmatmul, OutliersAndNonFiniteInputs) {
  const uint64_t seed = fresh_seed();
  const auto source = MemoryMatrix::affine_random(32, 256, 4, 32, DType::kF16, Scales::kFree, seed);
  const auto w = pack(source, 0, 32);
  for (const Arithmetic arithmetic : {Arithmetic::kF32, Arithmetic::kBF16})
    for (const QmatmulArm arm : kArms) {
      std::vector<float> x = random_x(4, 256, seed), y = poisoned(4 * 32);
      x[7] = 1e3f, x[256 + 9] = INFINITY, x[512 + 9] = NAN;
      qmatmul(*w, x.data(), 4, 256, y.data(), 32, arithmetic, arm);
      for (int r = 0; r < 32; ++r) {
        EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(r)]));
        EXPECT_FALSE(std::isfinite(y[static_cast<size_t>(32 + r)])) << qmatmul_arm_name(arm);
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(64 + r)]));
        EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(96 + r)])) << "a neighbour's NaN leaked";
      }
    }
}

TEST(Qmatmul, NamesOfArms) {
  for (const QmatmulArm arm : {QmatmulArm::kAuto, QmatmulArm::kRef, QmatmulArm::kRows, QmatmulArm::kPanel})
    EXPECT_EQ(qmatmul_arm_from_name(qmatmul_arm_name(arm)), arm);
  EXPECT_FALSE(qmatmul_arm_from_name("fast").has_value());
}

}  // namespace
}  // namespace galvani::kernels
