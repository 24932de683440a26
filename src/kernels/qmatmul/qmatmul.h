#pragma once
/// y[m, n] = Σ_k x[m, k] · W[n, k]: a few or many tokens times one weight matrix, any storage.
///
/// x: f32, [m, k], row stride x_stride elements. y: f32, [m, n], row stride y_stride; overwritten.
/// Under Arithmetic::kBF16 x is rounded to bf16 (nearest even) where it enters the product; weights keep their stored
/// values where the arm can (affine codes times f32 scales) and are otherwise rounded to bf16 too; sums are f32.
/// Under kF16 x is rounded to f16 and the product is computed in f32. Each row of y depends on its own row of x alone,
/// bit for bit, within one arm. bf16 arms treat subnormal inputs as zero, as the instructions do. An infinity or NaN in
/// x gives a non-finite y, not always the one that IEEE arithmetic on dequantised weights would give.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "kernels/common/arithmetic.h"
#include "kernels/qmatmul/qmatmul_plan.h"
#include "quant/matrix_source.h"

namespace galvani::kernels {

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

/// Packs rows [r0, r1) of `source`. Several threads are used inside. Stored values are kept exactly; scales and biases
/// are stored in the smallest form that gives back the same f32 bits (see README.md).
Result<std::unique_ptr<CpuMatrix>> qmatmul_pack(const quant::MatrixSource& source, int64_t r0, int64_t r1);

/// One input, prepared once for several matrices: rounded to the arithmetic, zero-padded, with the sums of each group.
/// Keeps its memory from call to call. Not safe to share between threads that call qmatmul at the same time.
class CpuInput {
 public:
  CpuInput();
  ~CpuInput();
  CpuInput(CpuInput&&) noexcept;
  CpuInput& operator=(CpuInput&&) noexcept;

  /// Copies what it needs of x ([m, k], row stride x_stride); x may be changed or freed afterwards.
  void prepare(const float* x, int64_t m, int64_t k, int64_t x_stride, Arithmetic arithmetic);
  /// Row t of the input is row rows[t] of x (tokens grouped by expert).
  void prepare_rows(const float* x, std::span<const int32_t> rows, int64_t k, int64_t x_stride, Arithmetic arithmetic);

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Several matrices that share an input (q, k, v; gate, up), in one parallel region. Row t of y holds their results one
/// after another: y[t, Σ rows of earlier segments + r]. All have cols equal to the input's k.
void qmatmul_multi(std::span<const CpuMatrix* const> segments, const CpuInput& x, float* y, int64_t y_stride,
                   QmatmulArm arm = QmatmulArm::kAuto);

/// Rows [x_row, x_row + m) of an input times `segments`, to rows [y_row, y_row + m) of y from column y_column on, as
/// qmatmul_multi lays them out.
struct QmatmulItem {
  std::span<const CpuMatrix* const> segments;
  int64_t x_row = 0, y_row = 0, m = 0, y_column = 0;
};

/// Many products in one parallel region, each matrix read once: all experts of a step. Threads take equal shares of the
/// work, whatever item it belongs to. Each item's arm is chosen by its own m.
void qmatmul_grouped(std::span<const QmatmulItem> items, const CpuInput& x, float* y, int64_t y_stride,
                     QmatmulArm arm = QmatmulArm::kAuto);

/// Bytes of packed weights that the functions above and below have walked over since the process began: each block of
/// rows counts every time that an arm is handed it, however many tokens it multiplies there.
uint64_t qmatmul_bytes_walked() noexcept;

/// Computes on the thread pool. `arm` forces one; every arm exists for every matrix and arithmetic.
void qmatmul(const CpuMatrix& w, const float* x, int64_t m, int64_t x_stride, float* y, int64_t y_stride,
             Arithmetic arithmetic, QmatmulArm arm = QmatmulArm::kAuto);

/// Rows [r0, r1) back as f32, the stored values; out is [r1-r0, cols]. Scalar: for tests and the reference arm.
void qmatmul_unpack(const CpuMatrix& w, int64_t r0, int64_t r1, float* out);

/// Which kernel qmatmul runs for `w` on this machine.
QmatmulPlan qmatmul_plan_for(const CpuMatrix& w, int64_t m, Arithmetic arithmetic, QmatmulArm arm = QmatmulArm::kAuto);

}  // namespace galvani::kernels
