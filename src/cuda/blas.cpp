#include "cuda/blas.h"

#include <cublasLt.h>

#include <map>

#include "cuda/check.h"

namespace galvani::cuda {
namespace {

tl::unexpected<Error> blas_failed(cublasStatus_t status, const char* call) {
  return fail(status == CUBLAS_STATUS_NOT_SUPPORTED ? ErrorCode::kUnsupported : ErrorCode::kInternal,
              "cuBLASLt: {} answered {}", call, cublasLtGetStatusName(status));
}

#define GALVANI_BLAS_TRY(call)                                       \
  do {                                                               \
    const cublasStatus_t status_ = (call);                           \
    if (status_ != CUBLAS_STATUS_SUCCESS) [[unlikely]]               \
      return blas_failed(status_, detail::call_name(#call).c_str()); \
  } while (0)

cudaDataType_t type_of(BlasType type) {
  switch (type) {
    case BlasType::kF32: return CUDA_R_32F;
    case BlasType::kF16: return CUDA_R_16F;
    case BlasType::kBF16: return CUDA_R_16BF;
  }
  return CUDA_R_32F;
}

void destroy_layout(cublasLtMatrixLayout_t layout) { cublasLtMatrixLayoutDestroy(layout); }
void destroy_desc(cublasLtMatmulDesc_t desc) { cublasLtMatmulDescDestroy(desc); }
void destroy_preference(cublasLtMatmulPreference_t preference) { cublasLtMatmulPreferenceDestroy(preference); }
void destroy_handle(cublasLtHandle_t handle) { cublasLtDestroy(handle); }

using Layout = Owned<cublasLtMatrixLayout_t, destroy_layout>;
using Desc = Owned<cublasLtMatmulDesc_t, destroy_desc>;

struct Prepared {
  Desc desc;
  Layout weight, input, output;
  cublasLtMatmulAlgo_t algorithm{};
};

Result<Layout> make_layout(BlasType type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  GALVANI_BLAS_TRY(cublasLtMatrixLayoutCreate(&layout, type_of(type), static_cast<uint64_t>(rows),
                                              static_cast<uint64_t>(columns), stride));
  return Layout(layout);
}

/// cuBLAS is column-major: d of [m, n] row-major is [n, m] there, and equals bᵀ (stored [k, n]) times a (stored [k,
/// m]).
Result<Prepared> prepare(cublasLtHandle_t handle, size_t workspace, const BlasProblem& p) {
  Prepared prepared;
  cublasLtMatmulDesc_t desc = nullptr;
  GALVANI_BLAS_TRY(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  prepared.desc = Desc(desc);
  const cublasOperation_t transposed = CUBLAS_OP_T, as_is = CUBLAS_OP_N;
  GALVANI_BLAS_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  GALVANI_BLAS_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &as_is, sizeof(as_is)));
  GALVANI_TRY(prepared.weight, make_layout(p.in, p.k, p.n, p.b_stride > 0 ? p.b_stride : p.k));
  GALVANI_TRY(prepared.input, make_layout(p.in, p.k, p.m, p.a_stride > 0 ? p.a_stride : p.k));
  GALVANI_TRY(prepared.output, make_layout(p.out, p.n, p.m, p.d_stride > 0 ? p.d_stride : p.n));

  cublasLtMatmulPreference_t raw = nullptr;
  GALVANI_BLAS_TRY(cublasLtMatmulPreferenceCreate(&raw));
  const Owned<cublasLtMatmulPreference_t, destroy_preference> preference(raw);
  GALVANI_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                        sizeof(workspace)));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  GALVANI_BLAS_TRY(cublasLtMatmulAlgoGetHeuristic(handle, desc, prepared.weight.get(), prepared.input.get(),
                                                  prepared.output.get(), prepared.output.get(), raw, 1, &found,
                                                  &count));
  if (count == 0)
    return fail(ErrorCode::kUnsupported, "cuBLASLt has no algorithm for m {} n {} k {} with {} bytes of workspace", p.m,
                p.n, p.k, workspace);
  prepared.algorithm = found.algo;
  return prepared;
}

}  // namespace

struct Blas::Impl {
  CudaDevice* device = nullptr;
  Owned<cublasLtHandle_t, destroy_handle> handle;
  DeviceBuffer workspace;
  std::map<BlasProblem, Prepared> prepared;
};

Blas::Blas() : impl_(std::make_unique<Impl>()) {}
Blas::Blas(Blas&&) noexcept = default;
Blas& Blas::operator=(Blas&&) noexcept = default;
Blas::~Blas() = default;
size_t Blas::workspace_bytes() const { return impl_->workspace.size(); }

Result<Blas> Blas::create(CudaDevice& device, size_t workspace_bytes) {
  GALVANI_TRY_VOID(device.make_current());
  Blas blas;
  cublasLtHandle_t handle = nullptr;
  GALVANI_BLAS_TRY(cublasLtCreate(&handle));
  blas.impl_->device = &device;
  blas.impl_->handle = Owned<cublasLtHandle_t, destroy_handle>(handle);
  GALVANI_TRY(blas.impl_->workspace, DeviceBuffer::allocate(device, workspace_bytes, "cuBLASLt workspace"));
  return blas;
}

Status Blas::matmul(Stream& stream, const BlasProblem& problem, const void* a, const void* b, void* d) {
  if (problem.m < 1 || problem.n < 1 || problem.k < 1)
    return fail(ErrorCode::kInvalidArgument, "a product of m {} n {} k {}; each must be at least 1", problem.m,
                problem.n, problem.k);
  GALVANI_TRY_VOID(impl_->device->alive());
  GALVANI_TRY_VOID(impl_->device->make_current());
  auto found = impl_->prepared.find(problem);
  if (found == impl_->prepared.end()) {
    GALVANI_TRY(Prepared prepared, prepare(impl_->handle.get(), impl_->workspace.size(), problem));
    found = impl_->prepared.emplace(problem, std::move(prepared)).first;
  }
  const Prepared& p = found->second;
  GALVANI_BLAS_TRY(cublasLtMatmul(impl_->handle.get(), p.desc.get(), &problem.alpha, b, p.weight.get(), a,
                                  p.input.get(), &problem.beta, d, p.output.get(), d, p.output.get(), &p.algorithm,
                                  impl_->workspace.data(), impl_->workspace.size(), stream.handle()));
  return {};
}

}  // namespace galvani::cuda
