#pragma once
/// What the comparisons of `galvani doctor` share: a device with a stream, data on it, outputs that begin as NaN, and
/// the largest error as a share of its bound.
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "cuda/memory.h"
#include "kernels/common/store_type.h"
#include "kernels/cuda_checks.h"

namespace galvani::kernels {

/// x as a 16-bit type has it, by way of f32.
inline float round_as(double x, StoreType type) {
  const auto f = static_cast<float>(x);
  return type == StoreType::kF16 ? f16_to_f32(f32_to_f16(f)) : bf16_to_f32(f32_to_bf16(f));
}

class CheckRig {
 public:
  static Result<CheckRig> create(cuda::CudaDevice& device, uint64_t seed) {
    GALVANI_TRY(cuda::Stream stream, cuda::Stream::create(device));
    return CheckRig(device, std::move(stream), seed);
  }
  cuda::CudaDevice& device() { return *device_; }
  cuda::Stream& stream() { return stream_; }
  std::mt19937_64& random() { return random_; }

  std::vector<float> normal(size_t n, float scale = 1) {
    std::normal_distribution<float> distribution(0, scale);
    std::vector<float> values(n);
    for (float& value : values) value = distribution(random_);
    return values;
  }

  /// Uploaded data and outputs live as long as the rig.
  template <typename T>
  Result<T*> upload(const std::vector<T>& values) {
    GALVANI_TRY(void* data, hold(values.size() * sizeof(T)));
    GALVANI_TRY_VOID(stream_.to_device(data, values.data(), values.size() * sizeof(T)));
    GALVANI_TRY_VOID(stream_.synchronize());
    return static_cast<T*>(data);
  }
  /// As they lie in memory; `values` become what the type can hold.
  Result<void*> upload_as(std::vector<float>& values, StoreType type) {
    std::vector<unsigned char> bytes(values.size() * static_cast<size_t>(store_bytes(type)));
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == StoreType::kF32) {
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
        continue;
      }
      const uint16_t bits = type == StoreType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
      values[i] = type == StoreType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
    GALVANI_TRY(unsigned char* data, upload(bytes));
    return static_cast<void*>(data);
  }
  Result<void*> output(size_t n, StoreType type) {
    const size_t bytes = n * static_cast<size_t>(store_bytes(type));
    GALVANI_TRY(void* data, hold(bytes));
    GALVANI_TRY_VOID(stream_.fill(data, 0xff, bytes));
    return data;
  }
  Result<std::vector<float>> read(const void* data, size_t n, StoreType type) {
    std::vector<unsigned char> bytes(n * static_cast<size_t>(store_bytes(type)));
    GALVANI_TRY_VOID(stream_.to_host(bytes.data(), data, bytes.size()));
    GALVANI_TRY_VOID(stream_.synchronize());
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) {
      uint16_t bits = 0;
      if (type == StoreType::kF32) {
        std::memcpy(&values[i], bytes.data() + 4 * i, 4);
        continue;
      }
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = type == StoreType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
    return values;
  }

 private:
  CheckRig(cuda::CudaDevice& device, cuda::Stream stream, uint64_t seed)
      : device_(&device), stream_(std::move(stream)), random_(seed) {}
  Result<void*> hold(size_t bytes) {
    GALVANI_TRY(buffers_.emplace_back(),
                cuda::DeviceBuffer::allocate(*device_, std::max<size_t>(bytes, 1), "self-test"));
    return buffers_.back().data();
  }

  cuda::CudaDevice* device_;
  cuda::Stream stream_;
  std::mt19937_64 random_;
  std::vector<cuda::DeviceBuffer> buffers_;
};

/// Unit roundoff of a type.
inline double store_roundoff(StoreType type) {
  return type == StoreType::kF32 ? 0x1p-24 : type == StoreType::kF16 ? 0x1p-11 : 0x1p-8;
}

/// Largest |got − exact| / bound, element by element; infinity where an element is NaN or was not written.
template <typename Bound>
double worst_share(std::span<const float> got, std::span<const double> exact, const Bound& bound) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double share = std::fabs(got[i] - exact[i]) / bound(i);
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return worst;
}

}  // namespace galvani::kernels
