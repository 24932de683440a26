#pragma once
/// Dense matrix products through cuBLASLt, f32 sums. No CUDA include.
#include <cstdint>
#include <memory>

#include "cuda/memory.h"

namespace galvani::cuda {

enum class BlasType { kF32, kF16, kBF16 };

/// d[m, n] = alpha · Σ_k a[m, k] · b[n, k] + beta · d; everything row-major, strides in elements. a are activations, b
/// a weight as checkpoints store it.
struct BlasProblem {
  int64_t m = 0, n = 0, k = 0;
  BlasType in = BlasType::kBF16, out = BlasType::kBF16;
  int64_t a_stride = 0, b_stride = 0, d_stride = 0;  ///< 0: k, k, n
  float alpha = 1, beta = 0;

  auto operator<=>(const BlasProblem&) const = default;
};

/// One handle with its workspace; calls of one Blas run on one stream at a time. What an algorithm search finds is kept
/// for the next call of the same problem, and nothing is allocated then, so calls can be captured.
class Blas {
 public:
  static Result<Blas> create(CudaDevice& device, size_t workspace_bytes = size_t{32} << 20);
  Blas(Blas&&) noexcept;
  Blas& operator=(Blas&&) noexcept;
  ~Blas();
  /// Errors: kInvalidArgument (a dimension below 1), kUnsupported (no algorithm).
  Status matmul(Stream& stream, const BlasProblem& problem, const void* a, const void* b, void* d);
  size_t workspace_bytes() const;

 private:
  Blas();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace galvani::cuda
