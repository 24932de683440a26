/// The tile arm's walk with tile registers kept in arrays: what tdpbf16ps reads and writes, on CPUs that lack it.
#include <gtest/gtest.h>

#include <cstring>

#include "core/dtype.h"
#include "kernels/qmatmul/panel_amx.h"
#include "kernels/qmatmul/self_test.h"
#include "qmatmul_source.h"

namespace galvani::kernels {
namespace {

using testing::MemoryMatrix;
using testing::Scales;

/// 16 rows of 32 bf16.
struct Operand {
  uint16_t values[16][32] = {};
  void load(const void* from, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(values[r], static_cast<const std::byte*>(from) + r * stride, 64);
  }
};

struct Sums {
  float values[16][16] = {};
  void store(float* to, int64_t stride) const {
    for (int r = 0; r < 16; ++r) std::memcpy(reinterpret_cast<std::byte*>(to) + r * stride, values[r], 64);
  }
};

/// sums[m][n] += Σ over 16 pairs of a[m][pair] · b[pair][n], as Intel's manual has it (rounding of the steps aside).
void tdpbf16ps(Sums& sums, const Operand& a, const Operand& b) {
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n)
      for (int pair = 0; pair < 16; ++pair)
        for (int half = 0; half < 2; ++half)
          sums.values[m][n] += bf16_to_f32(a.values[m][2 * pair + half]) * bf16_to_f32(b.values[pair][2 * n + half]);
}

struct ArrayTiles {
  Sums c[4];
  Operand x[2], w[2];
  void zero_sums() {
    for (Sums& sums : c) sums = {};
  }
  void load_x0(const void* from, int64_t stride) { x[0].load(from, stride); }
  void load_x1(const void* from, int64_t stride) { x[1].load(from, stride); }
  void load_w0(const void* from, int64_t stride) { w[0].load(from, stride); }
  void load_w1(const void* from, int64_t stride) { w[1].load(from, stride); }
  void multiply_w0() { tdpbf16ps(c[0], x[0], w[0]), tdpbf16ps(c[1], x[1], w[0]); }
  void multiply_w1() { tdpbf16ps(c[2], x[0], w[1]), tdpbf16ps(c[3], x[1], w[1]); }
  void store_w0(float* x0, float* x1, int64_t stride) { c[0].store(x0, stride), c[1].store(x1, stride); }
  void store_w1(float* x0, float* x1, int64_t stride) { c[2].store(x0, stride), c[3].store(x1, stride); }
};

void expect_walk(const MemoryMatrix& source, int64_t m) {
  auto packed = qmatmul_pack(source, 0, source.rows());
  ASSERT_TRUE(packed) << packed.error().message;
  const auto& w = static_cast<const PackedMatrix&>(**packed);
  std::mt19937_64 rng(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * w.cols)), y(static_cast<size_t>(m * w.rows), NAN);
  for (float& v : x) v = normal(rng);
  CpuInput input;
  input.prepare(x.data(), m, w.cols, w.cols, Arithmetic::kBF16);
  input.impl().require_rows((m + 31) / 32 * 32);
  ArrayTiles tiles;
  amx_panel_rows(tiles, {w, 0, w.blocks, input.impl(), y.data(), w.rows});
  for (int64_t t = 0; t < m; ++t)
    for (int64_t r = 0; r < w.rows; ++r) {
      double sum = 0, size = 0;
      for (int64_t c = 0; c < w.cols; ++c) {
        const double product = static_cast<double>(testing::round_to(DType::kBF16, source.weight_fused(r, c))) *
                               testing::round_to(DType::kBF16, x[static_cast<size_t>(t * w.cols + c)]);
        sum += product, size += std::fabs(product);
      }
      ASSERT_NEAR(y[static_cast<size_t>(t * w.rows + r)], sum, 8 * 0x1p-24 * size) << "row " << r << " token " << t;
    }
}

TEST(QmatmulAmx, WalksTilesAsTheProductNeeds) {
  if (!cpu_caps().avx512_bf16) GTEST_SKIP() << "its panels are made with AVX512_BF16, which this CPU lacks";
  expect_walk(MemoryMatrix::affine_random(75, 96, 4, 32, DType::kF16, Scales::kFree, 1), 37);
  expect_walk(MemoryMatrix::affine_random(300, 704, 5, 32, DType::kF16, Scales::kCentred, 4), 33);
  expect_walk(MemoryMatrix::affine_random(33, 2560, 8, 32, DType::kF16, Scales::kCentred, 2), 5);
  expect_walk(MemoryMatrix::dense_random(50, 70, DType::kBF16, 3), 64);
}

// The test that lets the AMX arm in must let a right arm pass and catch a wrong one.
TEST(QmatmulAmx, TheSelfTestTellsRightFromWrong) {
  if (!cpu_caps().avx512_bf16) GTEST_SKIP() << "it compares bf16 arms, and this CPU has none";
  EXPECT_TRUE(computes_integers_exactly(qmatmul_panel_bf16_avx512));
  EXPECT_FALSE(computes_integers_exactly([](const ArmCall&) {}));
  EXPECT_FALSE(computes_integers_exactly([](const ArmCall& call) {
    qmatmul_panel_bf16_avx512(call);
    call.y[44 * call.y_stride + 69] += 1.0f;
  }));
}

TEST(QmatmulAmx, HardwareIsTestedWhereThereIsSome) {
  if (!cpu_caps().amx_bf16) GTEST_SKIP() << "this CPU has no AMX bf16 tiles (or the kernel grants none)";
  const auto source = MemoryMatrix::dense_random(16, 32, DType::kBF16, 3);
  auto packed = qmatmul_pack(source, 0, 16);
  ASSERT_TRUE(packed);
  EXPECT_EQ(qmatmul_plan_for(**packed, 64, Arithmetic::kBF16).variant, QmatmulVariant::kPanelBf16Amx)
      << "the other tests of this folder would not reach the tiles";
}

}  // namespace
}  // namespace galvani::kernels
