// Checked launches on a device: results, refusals, poison, shared memory, launch fields, graphs, memory.
#include <gmock/gmock.h>

#include <cmath>

#include "cuda/fixtures.h"

namespace galvani::cuda {
namespace {

using testing::HasSubstr;

class CudaLaunch : public testing::Test {
 protected:
  void SetUp() override { GALVANI_NEEDS_HOPPER(); }
};

TEST_F(CudaLaunch, ComputesAndCounts) {
  const Build build = full_build();
  Rig rig(build.options());
  constexpr int n = 1000;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i)
    x[static_cast<size_t>(i)] = 0.25f * static_cast<float>(i), y[static_cast<size_t>(i)] = 1.0f - static_cast<float>(i);
  auto dx = DeviceBuffer::allocate(*rig.device, n * 4, "x");
  ASSERT_TRUE(dx && rig.stream.to_device(dx->data(), x.data(), n * 4));
  ASSERT_TRUE(rig.stream.to_device(rig.y.data(), y.data(), n * 4));
  const Kernel& kernel = rig.kernel("axpy_sm75");
  const float* input = dx->as<float>();
  const Status done = launch(rig.stream, kernel, {.grid = {4}, .block = {256}}, input, rig.y.as<float>(), 2.0f, n);
  ASSERT_TRUE(done) << done.error().message;
  const std::vector<float> result = rig.read<float>(n);
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(result[i], 2.0f * x[i] + y[i]) << i;
  EXPECT_EQ(kernel.launches(), 1u);
  const KernelAttributes loaded = kernel.attributes();
  EXPECT_EQ(loaded.binary_version, 90);
  EXPECT_EQ(loaded.ptx_version, 90);
}

TEST_F(CudaLaunch, RefusesWhatCannotBeRight) {
  const Build build = full_build();
  Rig rig(build.options());
  const Kernel& kernel = rig.kernel("half_written_sm75");
  float* y = rig.y.as<float>();
  const auto message = [&](const LaunchConfig& config) {
    const Status status = launch(rig.stream, kernel, config, y, 8);
    return status ? std::string("launched") : status.error().message;
  };
  EXPECT_THAT(message({.grid = {0}, .block = {32}}), HasSubstr("half_written_sm75: the grid is 0x1x1"));
  EXPECT_THAT(message({.grid = {1, 70000}, .block = {32}}), HasSubstr("the grid is 1x70000x1"));
  EXPECT_THAT(message({.grid = {1}, .block = {0}}), HasSubstr("0 threads"));
  EXPECT_THAT(message({.grid = {1}, .block = {512}}), HasSubstr("512 threads; 1 to 256"));
  EXPECT_THAT(message({.grid = {3}, .block = {32}, .cluster = {2}}), HasSubstr("must divide the grid"));
  EXPECT_THAT(message({.grid = {1}, .block = {32}, .dynamic_smem = 1 << 20}), HasSubstr("allows 232448"));
  EXPECT_THAT(message({.grid = {1}, .block = {32}, .smem_carveout_percent = 101}), HasSubstr("carve-out of 101"));
  const Status types = launch(rig.stream, kernel, {.grid = {1}, .block = {32}}, y, 8u);
  ASSERT_FALSE(types);
  EXPECT_THAT(types.error().message,
              HasSubstr("void (*)(float*, unsigned int), the kernel takes void (*)(float*, int)"));
  EXPECT_EQ(kernel.launches(), 0u);
}

TEST_F(CudaLaunch, PoisonShowsWhatAKernelForgets) {
  const Build build = full_build();
  for (const bool poison : {false, true}) {
    CudaOptions options = build.options();
    options.poison = poison;
    Rig rig(options);
    float* y = rig.y.as<float>();
    const LaunchConfig config{.grid = {1}, .block = {64}, .outputs = {{{y, 64 * 4}}}};
    ASSERT_TRUE(launch(rig.stream, rig.kernel("half_written_sm75"), config, y, 64));
    const std::vector<float> result = rig.read<float>(64);
    for (size_t i = 0; i < 64; ++i) {
      if (i % 2 == 0)
        EXPECT_EQ(result[i], 1.0f);
      else
        EXPECT_EQ(std::isnan(result[i]), poison);
    }
  }
}

TEST_F(CudaLaunch, OptsInToLargeSharedMemory) {
  const Build build = full_build();
  Rig rig(build.options());
  const int bytes = rig.device->caps().smem_optin;
  int* y = rig.y.as<int>();
  const LaunchConfig config{.grid = {1}, .block = {256}, .dynamic_smem = bytes};
  const Status done = launch(rig.stream, rig.kernel("shared_sm75"), config, y, bytes / 4);
  ASSERT_TRUE(done) << done.error().message;
  const std::vector<int> result = rig.read<int>(256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(result[static_cast<size_t>(i)], i);
}

TEST_F(CudaLaunch, ClusterDependentLaunchAndCarveOut) {
  const Build build = full_build();
  Rig rig(build.options());
  int* y = rig.y.as<int>();
  const LaunchConfig clusters{.grid = {16}, .block = {32}, .cluster = {4}, .smem_carveout_percent = 50};
  const Status done = launch(rig.stream, rig.kernel("cluster_sm90"), clusters, y);
  ASSERT_TRUE(done) << done.error().message;
  const std::vector<int> ranks = rig.read<int>(16);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(ranks[i], static_cast<int>(i % 4) + 400);

  ASSERT_TRUE(rig.stream.fill(y, 0, 4));
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(
        launch(rig.stream, rig.kernel("count_sm90"), {.grid = {1}, .block = {32}, .dependent_launch = true}, y));
  EXPECT_EQ(rig.read<int>(1)[0], 20);
}

TEST_F(CudaLaunch, GraphsReplayAndTheirLaunchesCount) {
  const Build build = full_build();
  Rig rig(build.options());
  int* y = rig.y.as<int>();
  const Kernel& kernel = rig.kernel("count_sm90");
  ASSERT_TRUE(rig.stream.begin_capture());
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(launch(rig.stream, kernel, {.grid = {1}, .block = {32}, .dependent_launch = i > 0}, y));
  auto graph = rig.stream.end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(kernel.launches(), 0u);
  EXPECT_EQ(*graph->node_count(), 3u);
  EXPECT_EQ(graph->launches().at(&kernel), 3u);
  auto exec = graph->instantiate();
  ASSERT_TRUE(exec);
  ASSERT_TRUE(exec->launch(rig.stream) && exec->launch(rig.stream));
  EXPECT_EQ(rig.read<int>(1)[0], 6);
  EXPECT_EQ(kernel.launches(), 6u);
}

TEST_F(CudaLaunch, EventsTimeAndPoolsGiveMemoryBack) {
  const Build build = full_build();
  Rig rig(build.options());
  auto start = Event::create(*rig.device, true), end = Event::create(*rig.device, true);
  ASSERT_TRUE(start && end && rig.stream.record(*start));
  auto pool = MemoryPool::create(*rig.device, "work");
  ASSERT_TRUE(pool) << pool.error().message;
  auto memory = pool->allocate(rig.stream, 1 << 20);
  ASSERT_TRUE(memory && rig.stream.fill(*memory, 1, 1 << 20) && pool->free(rig.stream, *memory));
  ASSERT_TRUE(rig.stream.record(*end) && end->synchronize());
  const auto time = end->milliseconds_since(*start);
  ASSERT_TRUE(time);
  EXPECT_GT(*time, 0.0f);
}

TEST_F(CudaLaunch, OutOfMemorySaysHowMuchAndWhatToLower) {
  const Build build = full_build();
  Rig rig(build.options());
  const auto buffer = DeviceBuffer::allocate(*rig.device, size_t{10} << 40, "keys and values");
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(buffer.error().message, HasSubstr("'keys and values' needs 10240.00 GiB on GPU 0"));
  EXPECT_THAT(buffer.error().message, HasSubstr("are free (this process holds: test 0.00 GiB)"));
  EXPECT_THAT(buffer.error().message, HasSubstr("lower the context (-c)"));
  EXPECT_TRUE(rig.device->alive()) << "an allocation that failed ends nothing";
  EXPECT_EQ(rig.device->memory_by_tag().at("test"), 4096);
}

}  // namespace
}  // namespace galvani::cuda
