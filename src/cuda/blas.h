#pragma once
/// Dense matrix products by cuBLASLt, and the tensor maps of the copy engine. No CUDA include.
#include <array>
#include <map>
#include <memory>
#include <tuple>

#include "core/dtype.h"
#include "core/error.h"
#include "cuda/stream.h"

namespace galvani::cuda {

/// y[m, n] (+)= factor · Σ_k x[m, k] · w[n, k], row-major, sums in f32.
struct DenseProduct {
  int64_t m = 0, n = 0, k = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;  ///< elements between rows
  const void* w = nullptr;
  int64_t w_stride = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
  DType in = DType::kBF16;  ///< of x and w: bf16, f16 or f32
  DType out = DType::kF32;  ///< f32, or as `in`
  bool add = false;         ///< y += instead of y =; f32 alone, since cuBLASLt may round to 16 bits before it adds
  float factor = 1;
};

/// kInvalidArgument for what `Blas` does not multiply.
inline Status check_dense(const DenseProduct& p) {
  if (p.m < 1 || p.n < 1 || p.k < 1)
    return fail(ErrorCode::kInvalidArgument, "a dense product of {} × {} × {}: every dimension must be at least 1", p.m,
                p.n, p.k);
  if (p.add && p.out != DType::kF32)
    return fail(ErrorCode::kInvalidArgument,
                "a dense product added onto {}: cuBLASLt may round it to 16 bits before it adds; add onto f32",
                dtype_name(p.out));
  return {};
}

/// One cuBLASLt handle. One thread at a time; calls can be captured.
class Blas {
 public:
  static Result<std::unique_ptr<Blas>> create(CudaDevice& device);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// What cuBLASLt may use besides; a fixed workspace makes two runs choose alike.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  /// `workspace`: kWorkspaceBytes of device memory, 256-byte aligned. Errors: kInvalidArgument when there is
  /// nothing to multiply or `add` meets a 16-bit y; kUnsupported when cuBLASLt has no algorithm for these types and
  /// strides.
  Status multiply(Stream& stream, const DenseProduct& product, void* workspace);

 private:
  struct Plan;
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int, int, bool, int>;
  explicit Blas(CudaDevice& device) : device_(device) {}
  Result<const Plan*> plan(const DenseProduct& product);

  CudaDevice& device_;
  void* handle_ = nullptr;
  std::map<Key, std::shared_ptr<Plan>> plans_;
};

/// A CUtensorMap of a row-major matrix of 16-bit elements [rows, cols], row stride in elements, boxes of box_rows × 64
/// columns with the 128-byte swizzle, zeros outside the matrix. `data` and the stride in bytes must be multiples of 16.
Result<std::array<std::byte, 128>> tensor_map_2d(CudaDevice& device, const void* data, int64_t rows, int64_t cols,
                                                 int64_t stride, int box_rows);
/// The same of `planes` such matrices, plane_stride elements (a multiple of 8) apart; a box lies in one of them. Planes
/// that do not exist may be counted, as long as none is asked for.
Result<std::array<std::byte, 128>> tensor_map_3d(CudaDevice& device, const void* data, int64_t planes,
                                                 int64_t plane_stride, int64_t rows, int64_t cols, int64_t stride,
                                                 int box_rows);

}  // namespace galvani::cuda
