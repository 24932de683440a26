#pragma once
/// y[m, n] (+)= Σ_k x[m, k] · W[n, k] on the GPU: W in A16 (a16_layout.h), affine or float codes (mxfp4, mxfp8, nvfp4),
/// x f16 or bf16, sums in f32.
///
/// Contract. y is f32, or has x's type (one more rounding). The few-token arms keep the stored weights exactly: codes
/// are integers in the tensor product, scale and bias apply to sums in f32. The other arms round each weight once to
/// x's type. Float codes are never rounded: few tokens and mma apply their scales to sums in f32, the other arms refuse
/// a matrix whose weights are not exact in x's type; a matrix's factor is applied to finished sums. A row of y depends
/// on its own row of x alone, bit for bit within one arm and one launch shape (the arm, and for the few-token arms the
/// number of blocks that share K, follow from m; QmatmulCudaOptions::forced pins the arm). Two runs give the same bits.
/// Rows of x may have any stride; 16-byte-aligned rows are faster, and wgmma needs them.
#include <memory>
#include <optional>
#include <string_view>

#include "cuda/blas.h"
#include "cuda/memory.h"
#include "kernels/qmatmul/a16_float_pack.h"
#include "kernels/qmatmul/qmatmul_cuda_plan.h"
#include "quant/matrix_source.h"

namespace galvani::kernels {

/// A packed matrix in device memory; `owner` is empty when somebody else keeps the bytes.
struct CudaMatrix {
  int64_t rows = 0, cols = 0;
  A16Format format;
  const unsigned char* data = nullptr;  ///< packed_bytes() bytes, 16-byte aligned
  cuda::DeviceBuffer owner;
  A16FloatForm form;  ///< float codes alone

  int64_t packed_bytes() const { return a16_bytes(format, rows, cols); }
  /// Whether all weights are numbers of x's type.
  bool exact(Arithmetic arithmetic) const { return arithmetic == Arithmetic::kF16 ? form.exact_f16 : form.exact_bf16; }
};

/// The A16 form of a matrix; kUnsupported when it has none.
Result<A16Format> qmatmul_cuda_format_of(const quant::MatrixSource& source);

/// Packs rows [r0, r1) of an affine matrix or one of float codes and copies them to the device; returns when the copy
/// is done. Errors: as qmatmul_cuda_format_of, a16_pack and a16_float_pack.
Result<CudaMatrix> qmatmul_cuda_upload(cuda::Stream& stream, const quant::MatrixSource& source, int64_t r0, int64_t r1);

struct CudaActivations {
  const void* data = nullptr;
  int64_t m = 0, stride = 0;  ///< elements between rows
};

struct CudaResult {
  void* data = nullptr;
  int64_t stride = 0;  ///< elements between rows
  bool as_x = false;   ///< the type of x instead of f32
  bool add = false;    ///< y += (f32 alone)
  /// gate.on: W's first half of rows is the gate, the second up, and y[m, n / 2] = gate'(gate, up), in x's type (as_x),
  /// n a multiple of 32, y and its rows at multiples of 16 bytes. Not every plan can: ask plan() before run().
  QmatmulGate gate{};
};

std::optional<QmatmulCudaArm> qmatmul_cuda_arm_from_name(std::string_view name);

/// What products on one device share. One thread at a time; calls may be captured into a graph.
class QmatmulCuda {
 public:
  struct Options {
    int forced = -1;                   ///< a QmatmulCudaArm
    int64_t expand_bytes = 0;          ///< the largest matrix the expand arm may hold; 0 forbids it
    QmatmulCudaCrossovers crossovers;  ///< of this part
    QmatmulCudaTuning tuning;          ///< for measuring
    bool dependent_launch = true;
  };
  /// Allocates the workspace: expand_bytes + cuda::Blas::kWorkspaceBytes when expanding is allowed, and kPartsBytes
  /// where wgmma runs.
  static Result<std::unique_ptr<QmatmulCuda>> create(std::shared_ptr<cuda::CudaDevice> device, const Options& options);

  /// Errors: kUnsupported with the reason when no arm (or not the forced one) can compute it; launch errors.
  Status run(cuda::Stream& stream, const CudaMatrix& w, const CudaActivations& x, Arithmetic arithmetic,
             const CudaResult& y);
  QmatmulCudaPlan plan(const CudaMatrix& w, const CudaActivations& x, Arithmetic arithmetic,
                       const CudaResult& y = {}) const;

  /// What create() allocates on such a part.
  static int64_t workspace_bytes(const DeviceCaps& caps, int64_t expand_bytes);

  Options& options() { return options_; }
  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_.size() + parts_.size()); }

 private:
  Status run_few(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args, size_t y_bytes);
  Status run_stream(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args, size_t y_bytes);
  Status run_wgmma(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args, const QmatmulGate& gate,
                   size_t y_bytes);
  Status run_expand(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args, float factor);

  std::shared_ptr<cuda::CudaDevice> device_;
  Options options_;
  std::unique_ptr<cuda::Blas> blas_;
  cuda::DeviceBuffer workspace_;
  cuda::DeviceBuffer parts_;  ///< of products whose K several blocks share: kPartsBytes where wgmma runs
};

}  // namespace galvani::kernels
