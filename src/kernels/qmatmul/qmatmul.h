#pragma once
/// y[m, n] = Σ_k x[m, k] · W[n, k]: a few or many tokens times one weight matrix, any storage.
///
/// x: f32, [m, k], row stride x_stride elements. y: f32, [m, n], row stride y_stride; overwritten.
/// Under Arithmetic::kBF16 x is rounded to bf16 (nearest even) where it enters the product; weights keep their stored
/// values where the arm can (affine codes times f32 scales) and are otherwise rounded to bf16 too; sums are f32.
/// Each row of y depends on its own row of x alone, bit for bit, within one arm.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/arena.h"
#include "kernels/common/arithmetic.h"
#include "quant/matrix_source.h"

namespace galvani::kernels {

/// How the CPU computes it. kAuto lets the plan choose by m.
enum class QmatmulArm { kAuto, kRef, kRows, kPanel };
std::optional<QmatmulArm> qmatmul_arm_from_name(std::string_view name);
const char* qmatmul_arm_name(QmatmulArm arm);

/// A weight matrix packed once for the CPU arms.
class CpuMatrix {
 public:
  virtual ~CpuMatrix() = default;
  int64_t rows = 0, cols = 0;
  /// Bytes that one decode step reads of it.
  int64_t packed_bytes = 0;
  /// E.g. "affine4 g32 f16".
  std::string layout;
};

/// Packs rows [r0, r1) of `source`. Several threads are used inside.
Result<std::unique_ptr<CpuMatrix>> qmatmul_pack(const quant::MatrixSource& source, int64_t r0, int64_t r1);

/// Computes on the thread pool. `arm` forces one; the caller has checked it exists for this matrix.
void qmatmul(const CpuMatrix& w, const float* x, int64_t m, int64_t x_stride, float* y, int64_t y_stride,
             Arithmetic arithmetic, QmatmulArm arm = QmatmulArm::kAuto);

}  // namespace galvani::kernels
