/// cuda/blas.h for the emulated GPU: the plain triple loop, sums in f32 in the order of k.
#include "cuda/blas.h"

#include <bit>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "emulated_gpu/runtime.h"
#include "emulated_gpu/tensor_map.h"

namespace galvani::cuda {
namespace {

float load(const void* data, int64_t i, DType type) {
  if (type == DType::kF32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return type == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}
void store(void* data, int64_t i, DType type, float value) {
  if (type == DType::kF32)
    static_cast<float*>(data)[i] = value;
  else
    static_cast<uint16_t*>(data)[i] = type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
}

void run(const DenseProduct& p) {
#pragma omp parallel for
  for (int64_t n = 0; n < p.n; ++n) {
    std::vector<float> w(static_cast<size_t>(p.k));
    for (int64_t k = 0; k < p.k; ++k) w[static_cast<size_t>(k)] = load(p.w, n * p.w_stride + k, p.in);
    for (int64_t m = 0; m < p.m; ++m) {
      float sum = 0;
      for (int64_t k = 0; k < p.k; ++k) sum += load(p.x, m * p.x_stride + k, p.in) * w[static_cast<size_t>(k)];
      sum *= p.factor;
      const int64_t at = m * p.y_stride + n;
      store(p.y, at, p.out, p.add ? load(p.y, at, p.out) + sum : sum);
    }
  }
}

}  // namespace

struct Blas::Plan {};

Result<std::unique_ptr<Blas>> Blas::create(CudaDevice& device) { return std::unique_ptr<Blas>(new Blas(device)); }
Blas::~Blas() = default;

Status Blas::multiply(Stream& stream, const DenseProduct& p, void* workspace) {
  GALVANI_TRY_VOID(device_.alive());
  GALVANI_TRY_VOID(check_dense(p));
  // What a workspace is for, cuBLASLt decides; that it is there and writable, it must be.
  emulated::enqueue(stream.handle(), [p, workspace] {
    std::memset(workspace, 0xff, kWorkspaceBytes);
    run(p);
  });
  return {};
}

namespace {
Result<std::array<std::byte, 128>> encode(const emulated::TensorMap& map) {
  if (reinterpret_cast<uintptr_t>(map.data) % 16 != 0 || map.stride % 8 != 0 || map.plane_stride % 8 != 0 ||
      map.box_rows < 1 || map.box_rows > 256)
    return fail(ErrorCode::kInvalidArgument,
                "a tensor map needs data and rows at multiples of 16 bytes and boxes of 1 to 256 rows; got address {}, "
                "strides {} and {} elements, {} rows",
                static_cast<const void*>(map.data), map.stride, map.plane_stride, map.box_rows);
  std::array<std::byte, 128> bytes{};
  std::memcpy(bytes.data(), &map, sizeof(map));
  return bytes;
}
}  // namespace

Result<std::array<std::byte, 128>> tensor_map_2d(CudaDevice&, const void* data, int64_t rows, int64_t cols,
                                                 int64_t stride, int box_rows) {
  return encode({static_cast<const char*>(data), 0, 0, rows, cols, stride, box_rows, emulated::TensorMap::kMagic});
}

Result<std::array<std::byte, 128>> tensor_map_3d(CudaDevice&, const void* data, int64_t planes, int64_t plane_stride,
                                                 int64_t rows, int64_t cols, int64_t stride, int box_rows) {
  return encode({static_cast<const char*>(data), planes, plane_stride, rows, cols, stride, box_rows,
                 emulated::TensorMap::kMagic});
}

}  // namespace galvani::cuda
