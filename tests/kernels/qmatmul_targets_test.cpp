/// The f32 arms compiled for lesser instruction sets than this machine's best, which the other tests never reach.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "kernels/qmatmul/qmatmul.h"
#include "qmatmul_source.h"

namespace galvani::kernels {
namespace {

using testing::MemoryMatrix;
using testing::Scales;

/// Forces one Highway target for the life of the object.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) { hwy::GetChosenTarget().Update(target); }
  ~ForcedTarget() { hwy::GetChosenTarget().DeInit(); }
};

std::vector<MemoryMatrix> sources() {
  std::vector<MemoryMatrix> all;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    all.push_back(MemoryMatrix::affine_random(37, 96, bits, 32, DType::kF16, Scales::kFree, 1));
    all.push_back(MemoryMatrix::affine_random(37, 512, bits, 16, DType::kF32, Scales::kKQuantMid, 2));
  }
  all.push_back(MemoryMatrix::affine_random(37, 96, 4, 32, DType::kBF16, Scales::kCentred, 3));
  all.push_back(MemoryMatrix::affine_random(37, 256, 4, 32, DType::kF32, Scales::kKQuant, 3));
  all.push_back(MemoryMatrix::affine_random(37, 1184, 4, 32, DType::kF32, Scales::kFree, 3));
  all.push_back(MemoryMatrix::table_random(37, 64, quant::MatrixKind::kLut4, 32,
                                           {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
                                           4));
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    all.push_back(MemoryMatrix::dense_random(37, 70, type, 5));
  return all;
}

void expect_reference(const MemoryMatrix& source, int64_t m, QmatmulArm arm) {
  auto packed = qmatmul_pack(source, 0, source.rows());
  ASSERT_TRUE(packed) << packed.error().message;
  const int64_t k = source.cols(), n = source.rows();
  std::mt19937_64 rng(static_cast<uint64_t>(m));
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n)), want(y.size());
  for (float& v : x) v = normal(rng);
  qmatmul(**packed, x.data(), m, k, want.data(), n, Arithmetic::kF32, QmatmulArm::kRef);
  qmatmul(**packed, x.data(), m, k, y.data(), n, Arithmetic::kF32, arm);
  for (int64_t t = 0; t < m; ++t)
    for (int64_t r = 0; r < n; ++r) {
      double size = 0;
      for (int64_t c = 0; c < k; ++c)
        size += std::fabs(static_cast<double>(source.weight(r, c)) * x[static_cast<size_t>(t * k + c)]);
      ASSERT_NEAR(y[static_cast<size_t>(t * n + r)], want[static_cast<size_t>(t * n + r)], 9 * 0x1p-24 * size)
          << (*packed)->layout << " " << qmatmul_arm_name(arm) << " row " << r << " token " << t;
    }
}

void expect_target(int64_t target) {
  const ForcedTarget forced(target);
  for (const MemoryMatrix& source : sources())
    for (const QmatmulArm arm : {QmatmulArm::kRows, QmatmulArm::kPanel})
      for (const int64_t m : {1, 2, 3, 13}) {
        expect_reference(source, m, arm);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

#if defined(__x86_64__)
TEST(QmatmulTargets, Avx2) {
  if (!cpu_caps().avx2) GTEST_SKIP() << "this CPU has no AVX2";
  expect_target(HWY_AVX2);
}

TEST(QmatmulTargets, Scalar) { expect_target(HWY_SCALAR); }
#endif

TEST(QmatmulTargets, Best) { expect_target(hwy::SupportedTargets()); }

}  // namespace
}  // namespace galvani::kernels
