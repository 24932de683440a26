// Checked launches on a real device; each test says so when there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/launch.h"
#include "cuda/memory.h"

namespace galvani::cuda {
#ifdef GALVANI_CUDA_TESTS
namespace sm90a {
KernelObject axpy_sm75_table();
}
namespace sm90 {
KernelObject axpy_sm75_table();
}
namespace ptx80 {
KernelObject axpy_sm75_table();
}
namespace sm120f {
KernelObject axpy_sm75_table();
}
#endif

namespace {

TEST(CudaDriver, SaysWhyThereIsNoGpu) {
  const DriverState state = driver_state();
  if (state.kind == DriverState::Kind::kReady) {
    EXPECT_GT(state.devices, 0);
    EXPECT_EQ(state.message, "");
    EXPECT_TRUE(CudaDevice::open(state.devices).error().message.find("was asked for") != std::string::npos);
    return;
  }
  EXPECT_THAT(state.message, testing::AnyOf(testing::HasSubstr("GALVANI_CUDA=ON"), testing::HasSubstr("--device cpu")));
  const auto device = CudaDevice::open(0);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(device.error().message, state.message);
}

#ifdef GALVANI_CUDA_TESTS
TEST(CudaLaunch, RunsAndChecks) {
  if (const DriverState state = driver_state(); state.kind != DriverState::Kind::kReady) GTEST_SKIP() << state.message;
  const KernelObject objects[] = {sm90a::axpy_sm75_table(), sm90::axpy_sm75_table(), ptx80::axpy_sm75_table(),
                                  sm120f::axpy_sm75_table()};
  CudaOptions options;
  options.kernels = objects;
  options.images = *parse_cuda_images("80-virtual;90;90a;120f");
  auto device = CudaDevice::open(0, options);
  ASSERT_TRUE(device) << device.error().message;
  auto stream = Stream::create(**device);
  ASSERT_TRUE(stream);
  auto kernel = (*device)->kernel("axpy_sm75");
  ASSERT_TRUE(kernel) << kernel.error().message;

  constexpr int n = 1000;
  std::vector<float> x(n), y(n), result(n);
  for (int i = 0; i < n; ++i) x[i] = 0.25f * i, y[i] = 1.0f - i;
  auto dx = DeviceBuffer::allocate(**device, n * 4, "x"), dy = DeviceBuffer::allocate(**device, n * 4, "y");
  ASSERT_TRUE(dx && dy);
  ASSERT_TRUE(stream->to_device(dx->data(), x.data(), n * 4) && stream->to_device(dy->data(), y.data(), n * 4));
  const LaunchConfig config{.grid = {4}, .block = {256}};
  const Status ok =
      launch(*stream, **kernel, config, static_cast<const float*>(dx->as<float>()), dy->as<float>(), 2.0f, n);
  ASSERT_TRUE(ok) << ok.error().message;
  ASSERT_TRUE(stream->to_host(result.data(), dy->data(), n * 4));
  ASSERT_TRUE(stream->synchronize());
  for (int i = 0; i < n; ++i) ASSERT_EQ(result[i], 2.0f * x[i] + y[i]) << i;
  EXPECT_EQ((*kernel)->launches(), 1u);
}
#endif

}  // namespace
}  // namespace galvani::cuda
