// Products small enough for compute-sanitizer, against f64 (qmatmul_cuda_testing.h).
#include <initializer_list>

#include "qmatmul_cuda_testing.h"

namespace galvani::kernels {
namespace {

class SmallProducts : public QmatmulCudaTest {
 protected:
  void affine_codes(std::initializer_list<QmatmulCudaArm> arms) {
    for (QmatmulCudaArm arm : arms)
      for (int bits : {4, 3}) {
        const MemoryMatrix source = matrix(72, 192, bits, 32, DType::kBF16);
        const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, 72).value();
        for (int64_t m : {1, 3, 40, 70}) {
          const Arithmetic arithmetic = arm == QmatmulCudaArm::kFewPlain ? Arithmetic::kF16 : Arithmetic::kBF16;
          if (!can(arm, w, m, arithmetic)) continue;
          const std::vector<float> x = random_x(m * 192, arithmetic);
          expect_product(source, x, m, run(w, x, m, arithmetic), arithmetic, {}, 72);
        }
      }
  }
  /// Columns that end inside a unit.
  void float_codes(std::initializer_list<QmatmulCudaArm> arms) {
    for (quant::MatrixKind kind : kFloatKinds) {
      const int64_t n = 72, k = kind == quant::MatrixKind::kNvfp4 ? 336 : 352;
      const MemoryMatrix source = float_matrix(n, k, kind, random());
      const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
      for (Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
        for (QmatmulCudaArm arm : arms)
          for (int64_t m : {1, 3, 8, 70}) {
            if (!can(arm, w, m, arithmetic)) continue;
            const std::vector<float> x = random_x(m * k, arithmetic);
            expect_product(source, x, m, run(w, x, m, arithmetic), arithmetic, {}, n);
            if (HasFailure()) return;
          }
    }
    std::cout << checked << " elements, worst error over bound " << worst << "\n";
  }
};

constexpr std::initializer_list<QmatmulCudaArm> kWithoutBarriers = {QmatmulCudaArm::kFewAsync,
                                                                    QmatmulCudaArm::kFewPlain, QmatmulCudaArm::kMma};
/// What racecheck cannot judge: rings with mbarriers, and expand, whose product is cuBLASLt's (it has none of its own).
constexpr std::initializer_list<QmatmulCudaArm> kUnraced = {QmatmulCudaArm::kFewBulk, QmatmulCudaArm::kStream,
                                                            QmatmulCudaArm::kWgmma, QmatmulCudaArm::kExpand};

/// scripts/gpu-gate runs these under memcheck and racecheck.
using CudaSmallBarrierFreeProducts = SmallProducts;
TEST_F(CudaSmallBarrierFreeProducts, AffineCodes) {
  affine_codes(kWithoutBarriers);
  // 7.5 multiplies no bf16, so that the plain rings are all that it runs here.
  if (device->caps().has(Feature::kBf16))
    expect_ran({{"few-async", 4}, {"few-plain", 4}, {"mma", 8}});
  else
    expect_ran({{"few-plain", 4}});
}
TEST_F(CudaSmallBarrierFreeProducts, FloatCodes) {
  float_codes(kWithoutBarriers);
  expect_ran({{"few-async", 18}, {"few-plain", 6}, {"mma", 24}});
}

/// And these under memcheck alone.
using CudaSmallUnracedProducts = SmallProducts;
TEST_F(CudaSmallUnracedProducts, AffineCodes) {
  affine_codes(kUnraced);
  if (device->caps().has(Feature::kBf16))
    expect_ran({{"few-bulk", 2}, {"one", 2}, {"stream", 6}, {"wgmma", 8}, {"expand", 8}});
  else
    EXPECT_EQ(checked, 0) << "bf16 products on a part without bf16";
}
TEST_F(CudaSmallUnracedProducts, FloatCodes) {
  float_codes(kUnraced);
  expect_ran({{"few-bulk", 18}, {"wgmma", 24}, {"expand", 24}});
}

}  // namespace
}  // namespace galvani::kernels
