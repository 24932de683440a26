#include "cuda/blas.h"

#include <cublasLt.h>
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "cuda/check.h"

namespace galvani::cuda {
namespace {

cudaDataType_t type_of(DType type) {
  return type == DType::kF32 ? CUDA_R_32F : type == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

Status check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(ErrorCode::kUnsupported, "{} failed: {}", call, cublasLtGetStatusString(status));
}

int alignment_of(const void* data) {
  for (int a = 256; a > 1; a /= 2)
    if (reinterpret_cast<uintptr_t>(data) % static_cast<unsigned>(a) == 0) return a;
  return 1;
}

}  // namespace

/// In cuBLASLt's column-major words: y^T[n, m] = w^T[n, k] · x^T[k, m], with w^T the transpose of what is stored.
struct Blas::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  ~Plan() {
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {w, x, y})
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
  }
};

Result<std::unique_ptr<Blas>> Blas::create(CudaDevice& device) {
  GALVANI_TRY_VOID(device.make_current());
  std::unique_ptr<Blas> blas(new Blas(device));
  cublasLtHandle_t handle = nullptr;
  GALVANI_TRY_VOID(check(cublasLtCreate(&handle), "cublasLtCreate"));
  blas->handle_ = handle;
  return blas;
}

Blas::~Blas() {
  plans_.clear();
  if (handle_ != nullptr) cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_));
}

Result<const Blas::Plan*> Blas::plan(const DenseProduct& p) {
  const int alignment = std::min({alignment_of(p.x), alignment_of(p.w), alignment_of(p.y)});
  const Key key{
      p.m,   p.n,      p.k, p.x_stride, p.w_stride, p.y_stride, static_cast<int>(p.in), static_cast<int>(p.out),
      p.add, alignment};
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  auto plan = std::make_shared<Plan>();
  const cublasOperation_t transposed = CUBLAS_OP_T;
  GALVANI_TRY_VOID(
      check(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate"));
  GALVANI_TRY_VOID(check(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
      "cublasLtMatmulDescSetAttribute"));
  const auto layout = [](cublasLtMatrixLayout_t* to, DType type, int64_t rows, int64_t cols, int64_t stride) {
    return check(
        cublasLtMatrixLayoutCreate(to, type_of(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), stride),
        "cublasLtMatrixLayoutCreate");
  };
  GALVANI_TRY_VOID(layout(&plan->w, p.in, p.k, p.n, p.w_stride));
  GALVANI_TRY_VOID(layout(&plan->x, p.in, p.k, p.m, p.x_stride));
  GALVANI_TRY_VOID(layout(&plan->y, p.out, p.n, p.m, p.y_stride));
  cublasLtMatmulPreference_t preference = nullptr;
  GALVANI_TRY_VOID(check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  const size_t workspace = kWorkspaceBytes;
  const auto bytes = static_cast<uint32_t>(alignment);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof(workspace));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &bytes, sizeof(bytes));
  // Partial sums are added in f32, never in a 16-bit output.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                       sizeof(reductions));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(static_cast<cublasLtHandle_t>(handle_), plan->operation, plan->w, plan->x, plan->y,
                                     plan->y, preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0)
    return fail(ErrorCode::kUnsupported,
                "cuBLASLt has no algorithm for {} × {} × {} in {} with {} out (strides {}, {}, {}): {}", p.m, p.n, p.k,
                dtype_name(p.in), dtype_name(p.out), p.x_stride, p.w_stride, p.y_stride,
                cublasLtGetStatusString(status));
  plan->algorithm = result.algo;
  return (plans_[key] = std::move(plan)).get();
}

Status Blas::multiply(Stream& stream, const DenseProduct& p, void* workspace) {
  GALVANI_TRY_VOID(device_.alive());
  GALVANI_TRY_VOID(check_dense(p));
  GALVANI_TRY(const Plan* plan, this->plan(p));
  const float alpha = p.factor, beta = p.add ? 1.0f : 0.0f;
  return check(
      cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_), plan->operation, &alpha, p.w, plan->w, p.x, plan->x, &beta,
                     p.y, plan->y, p.y, plan->y, &plan->algorithm, workspace, kWorkspaceBytes, stream.handle()),
      "cublasLtMatmul");
}

namespace {
/// dims, strides (bytes, of dims 1 and up), box: as cuTensorMapEncodeTiled takes them.
Result<std::array<std::byte, 128>> encode_map(CudaDevice& device, const void* data, int rank, const cuuint64_t* dims,
                                              const cuuint64_t* strides, const cuuint32_t* box) {
  static_assert(sizeof(CUtensorMap) == 128);
  bool aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0;
  for (int i = 0; i + 1 < rank; ++i) aligned = aligned && strides[i] % 16 == 0;
  if (!aligned || box[1] < 1 || box[1] > 256)
    return fail(ErrorCode::kInvalidArgument,
                "a tensor map needs data and rows at multiples of 16 bytes and boxes of 1 to 256 rows; got address {}, "
                "strides of {} bytes, {} rows",
                data, fmt::join(strides, strides + rank - 1, " and "), box[1]);
  // The driver's function through the runtime, so that the binary does not link the driver.
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) return device.failed(error, "looking up cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    return fail(ErrorCode::kUnsupported, "the driver has no cuTensorMapEncodeTiled; it needs CUDA 12.0 or newer");
  CUtensorMap map{};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, static_cast<cuuint32_t>(rank), const_cast<void*>(data), dims, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return fail(ErrorCode::kInternal,
                "cuTensorMapEncodeTiled refused [{}], strides of {} bytes, box {}: driver error {}",
                fmt::join(dims, dims + rank, ", "), fmt::join(strides, strides + rank - 1, " and "),
                fmt::join(box, box + rank, ", "), static_cast<int>(result));
  std::array<std::byte, 128> bytes;
  std::memcpy(bytes.data(), &map, sizeof(map));
  return bytes;
}
}  // namespace

Result<std::array<std::byte, 128>> tensor_map_2d(CudaDevice& device, const void* data, int64_t rows, int64_t cols,
                                                 int64_t stride, int box_rows) {
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  return encode_map(device, data, 2, dims, strides, box);
}

Result<std::array<std::byte, 128>> tensor_map_3d(CudaDevice& device, const void* data, int64_t planes,
                                                 int64_t plane_stride, int64_t rows, int64_t cols, int64_t stride,
                                                 int box_rows) {
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(planes)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(stride) * 2, static_cast<cuuint64_t>(plane_stride) * 2};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
  return encode_map(device, data, 3, dims, strides, box);
}

}  // namespace galvani::cuda
