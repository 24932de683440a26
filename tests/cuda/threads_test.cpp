// First use of a kernel from many threads, and while another thread captures a graph.
#include <atomic>
#include <thread>

#include "cuda/fixtures.h"

namespace galvani::cuda {
namespace {

constexpr int kThreads = 8;
constexpr const char* kNames[] = {"axpy_sm75",     "half_written_sm75", "shared_sm75", "product_sm80",
                                  "product_sm90a", "cluster_sm90",      "count_sm90"};

/// Each thread asks every kernel and launches one; says how many answers were not yes.
int ask_from_many_threads(Rig& rig) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (const char* name : kNames)
        if (rig.kernel(name).self_test().answer != Answer::kYes) ++wrong;
      auto stream = Stream::create(*rig.device);
      float* y = rig.y.as<float>() + 64 * t;
      if (!stream || !launch(*stream, rig.kernel("half_written_sm75"), {.grid = {1}, .block = {64}}, y, 64) ||
          !stream->synchronize())
        ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

TEST(CudaThreads, FirstCallFromEightThreads) {
  GALVANI_NEEDS_HOPPER();
  const Build build = full_build();
  Rig rig(build.options(), 4096);
  EXPECT_EQ(ask_from_many_threads(rig), 0);
  const std::vector<float> result = rig.read<float>(64 * kThreads);
  for (size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i], i % 2 == 0 ? 1.0f : 0.0f);
}

TEST(CudaThreads, FirstCallWhileAnotherThreadCaptures) {
  GALVANI_NEEDS_HOPPER();
  // Kernels of a fresh device object have not been asked; a global capture forbids other threads most calls.
  for (const CaptureMode mode : {CaptureMode::kThreadLocal, CaptureMode::kGlobal}) {
    const Build build = full_build();
    Rig rig(build.options(), 4096), capturing(build.options());
    int* y = capturing.y.as<int>();
    ASSERT_TRUE(capturing.stream.begin_capture(mode));
    ASSERT_TRUE(launch(capturing.stream, capturing.kernel("count_sm90"), {.grid = {1}, .block = {32}}, y));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (const char* name : kNames)
          if (rig.kernel(name).self_test().answer != Answer::kYes) ++wrong;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    // The capturing thread's own first use of a kernel, shared-memory opt-in included, inside the capture.
    const int bytes = capturing.device->caps().smem_optin;
    ASSERT_TRUE(launch(capturing.stream, capturing.kernel("shared_sm75"),
                       {.grid = {1}, .block = {128}, .dynamic_smem = bytes}, y + 64, bytes / 4));
    auto graph = capturing.stream.end_capture();
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_EQ(*graph->node_count(), 2u);
    auto exec = graph->instantiate();
    ASSERT_TRUE(exec && exec->launch(capturing.stream));
    const std::vector<int> result = capturing.read<int>(64 + 128);
    EXPECT_EQ(result[0], 1);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(result[static_cast<size_t>(64 + i)], i);
  }
}

}  // namespace
}  // namespace galvani::cuda
