#pragma once
/// What the tests of CUDA kernels share: the device, buffers with NaN between guard bands, rounding to storage types.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "cuda/memory.h"
#include "kernels/common/store_type.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {

/// Opens the first GPU for each test, or skips with the reason.
class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    const cuda::DriverState state = cuda::driver_state();
    if (state.kind != cuda::DriverState::Kind::kReady) GTEST_SKIP() << state.message;
    auto opened = cuda::CudaDevice::open(0);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    device = *opened;
    auto created = cuda::Stream::create(*device);
    ASSERT_TRUE(created.has_value()) << created.error().message;
    stream = std::make_unique<cuda::Stream>(std::move(*created));
  }
  void TearDown() override {
    if (stream == nullptr) return;
    EXPECT_TRUE(stream->synchronize().has_value());
  }

  template <typename T>
  cuda::DeviceBuffer upload(std::span<const T> values) {
    auto buffer = cuda::DeviceBuffer::allocate(*device, std::max<size_t>(values.size_bytes(), 1), "test");
    EXPECT_TRUE(buffer.has_value()) << buffer.error().message;
    EXPECT_TRUE(stream->to_device(buffer->data(), values.data(), values.size_bytes()).has_value());
    EXPECT_TRUE(stream->synchronize().has_value());
    return std::move(*buffer);
  }
  template <typename T>
  cuda::DeviceBuffer upload(const std::vector<T>& values) {
    return upload(std::span<const T>(values));
  }
  template <typename T>
  std::vector<T> download(const void* data, size_t n) {
    std::vector<T> values(n);
    EXPECT_TRUE(stream->to_host(values.data(), data, n * sizeof(T)).has_value());
    EXPECT_TRUE(stream->synchronize().has_value());
    return values;
  }
  static void ok(const Status& status) { ASSERT_TRUE(status.has_value()) << status.error().message; }

  /// n elements of NaN between two guard bands of 256 bytes.
  struct Poisoned {
    cuda::DeviceBuffer buffer;
    size_t bytes = 0;
    char* data() const { return buffer.as<char>() + 256; }
  };
  Poisoned poisoned(size_t n, StoreType type) {
    Poisoned p;
    p.bytes = n * static_cast<size_t>(store_bytes(type));
    auto buffer = cuda::DeviceBuffer::allocate(*device, p.bytes + 512, "test");
    EXPECT_TRUE(buffer.has_value());
    p.buffer = std::move(*buffer);
    EXPECT_TRUE(stream->fill(p.buffer.data(), 0xff, p.bytes + 512).has_value());
    return p;
  }
  /// The elements as f32; fails when a guard band was written.
  std::vector<float> read(const Poisoned& p, StoreType type) {
    const auto bytes = download<unsigned char>(p.buffer.data(), p.bytes + 512);
    for (size_t i = 0; i < 256; ++i) {
      EXPECT_EQ(bytes[i], 0xff) << "guard band before the output, byte " << i;
      EXPECT_EQ(bytes[bytes.size() - 1 - i], 0xff) << "guard band after the output, byte " << i;
    }
    return to_floats(bytes.data() + 256, p.bytes / static_cast<size_t>(store_bytes(type)), type);
  }

  static std::vector<float> to_floats(const unsigned char* bytes, size_t n, StoreType type) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) {
      if (type == StoreType::kF32) {
        std::memcpy(&values[i], bytes + 4 * i, 4);
      } else {
        uint16_t bits;
        std::memcpy(&bits, bytes + 2 * i, 2);
        values[i] = type == StoreType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      }
    }
    return values;
  }

  std::shared_ptr<cuda::CudaDevice> device;
  std::unique_ptr<cuda::Stream> stream;
};

/// Unit roundoff of a type.
inline double store_unit(StoreType type) {
  return type == StoreType::kF32 ? 0x1p-24 : type == StoreType::kF16 ? 0x1p-11 : 0x1p-8;
}
inline float rounded(float x, StoreType type) {
  return type == StoreType::kF32   ? x
         : type == StoreType::kF16 ? f16_to_f32(f32_to_f16(x))
                                   : bf16_to_f32(f32_to_bf16(x));
}
inline DType dtype_of(StoreType type) {
  return type == StoreType::kF32 ? DType::kF32 : type == StoreType::kF16 ? DType::kF16 : DType::kBF16;
}
/// Values as they lie in memory.
inline std::vector<unsigned char> stored_bytes(std::span<const float> values, StoreType type) {
  std::vector<unsigned char> bytes(values.size() * static_cast<size_t>(store_bytes(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == StoreType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const uint16_t bits = type == StoreType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

}  // namespace galvani::kernels
