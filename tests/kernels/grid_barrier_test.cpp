// Cooperative launches: every block sees what every other wrote in the round before, also in a graph; the same without
// the barrier does not; a grid that does not fit at once is refused. On a GPU of 9.0, or an emulated one.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "cuda/launch.h"
#include "cuda/memory.h"

namespace galvani::cuda::sm90a {
KernelObject grid_barrier_sm70_table();
}

namespace galvani::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaSmallGridBarrier : public testing::Test {
 protected:
  static constexpr unsigned kThreads = 512;

  void SetUp() override {
    if (const DriverState state = driver_state(); state.kind != DriverState::Kind::kReady)
      GTEST_SKIP() << state.message;
    static const KernelObject objects[] = {sm90a::grid_barrier_sm70_table()};
    CudaOptions options;
    options.kernels = objects;
    options.images = *parse_cuda_images("90a");
    auto opened = CudaDevice::open(0, options);
    if (!opened) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
    stream_ = Stream::create(*device_).value();
    counter_ = DeviceBuffer::allocate(*device_, 4, "counter").value();
  }

  Status enqueue(const char* kernel_name, unsigned blocks, int rounds) {
    const size_t bytes = size_t{2} * blocks * kThreads * sizeof(int);
    if (values_.size() != bytes) {
      GALVANI_TRY(values_, DeviceBuffer::allocate(*device_, bytes, "values"));
      GALVANI_TRY(wrong_, DeviceBuffer::allocate(*device_, blocks * sizeof(int), "wrong"));
    }
    GALVANI_TRY(const Kernel* kernel, device_->kernel(kernel_name));
    GALVANI_TRY_VOID(stream_.fill(counter_.data(), 0, 4));
    GALVANI_TRY_VOID(stream_.fill(values_.data(), 0xff, bytes));
    GALVANI_TRY_VOID(stream_.fill(wrong_.data(), 0, wrong_.size()));
    return launch(stream_, *kernel, {.grid = {blocks}, .block = {kThreads}, .cooperative = true},
                  counter_.as<unsigned>(), values_.as<int>(), wrong_.as<int>(), rounds);
  }

  /// What was wrong in all blocks together, and the counter.
  std::pair<int, unsigned> read() {
    std::vector<int> wrong(wrong_.size() / sizeof(int));
    unsigned counter = 0;
    EXPECT_TRUE(stream_.to_host(wrong.data(), wrong_.data(), wrong_.size()));
    EXPECT_TRUE(stream_.to_host(&counter, counter_.data(), 4));
    EXPECT_TRUE(stream_.synchronize());
    int sum = 0;
    for (const int count : wrong) sum += count;
    return {sum, counter};
  }

  /// One block a multiprocessor; fewer where each costs an operating system thread.
  unsigned most_blocks() const {
    return device_->name().find("emulated") == std::string::npos ? static_cast<unsigned>(device_->caps().sms) : 8;
  }

  std::shared_ptr<CudaDevice> device_;
  Stream stream_;
  DeviceBuffer counter_, values_, wrong_;
};

TEST_F(CudaSmallGridBarrier, AllBlocksSeeTheRoundOfAllOthers) {
  constexpr int kRounds = 40;
  for (const unsigned blocks : {1u, 2u, 3u, most_blocks()}) {
    const Status done = enqueue("grid_rounds_sm70", blocks, kRounds);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(read(), std::pair(0, kRounds * blocks)) << blocks << " blocks";
  }
}

TEST_F(CudaSmallGridBarrier, WithoutItTheyDoNot) {
  const Status done = enqueue("grid_rounds_without_barrier_sm70", most_blocks(), 40);
  ASSERT_TRUE(done) << done.error().message;
  const auto [wrong, counter] = read();
  EXPECT_GT(wrong, 0);
  EXPECT_EQ(counter, 0u);
}

TEST_F(CudaSmallGridBarrier, InAGraphToo) {
  constexpr int kRounds = 10;
  const unsigned blocks = most_blocks();
  ASSERT_TRUE(enqueue("grid_rounds_sm70", blocks, 1));  // allocates, and loads the kernel
  ASSERT_TRUE(stream_.begin_capture());
  const Status captured = enqueue("grid_rounds_sm70", blocks, kRounds);
  auto graph = stream_.end_capture();
  ASSERT_TRUE(captured) << captured.error().message;
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(*graph->node_count(), 4u);
  auto exec = graph->instantiate();
  ASSERT_TRUE(exec) << exec.error().message;
  for (int replay = 0; replay < 3; ++replay) {
    const Status done = exec->launch(stream_);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(read(), std::pair(0, kRounds * blocks)) << replay;
  }
}

TEST_F(CudaSmallGridBarrier, WhatDoesNotFitAtOnceIsRefused) {
  const Kernel* kernel = *device_->kernel("grid_rounds_sm70");
  const auto message = [&](const LaunchConfig& config) {
    int* none = nullptr;
    const Status status = launch(stream_, *kernel, config, counter_.as<unsigned>(), none, none, 0);
    return status ? std::string("launched") : status.error().message;
  };
  const auto sms = static_cast<unsigned>(device_->caps().sms);
  const int smem = device_->caps().smem_optin;  // one block a multiprocessor
  EXPECT_THAT(message({.grid = {sms + 1}, .block = {kThreads}, .dynamic_smem = smem, .cooperative = true}),
              AllOf(HasSubstr(fmt::format("launch of grid_rounds_sm70: a cooperative grid of {} blocks", sms + 1)),
                    HasSubstr(fmt::format("holds {} at once", sms))));
  EXPECT_THAT(message({.grid = {4}, .block = {kThreads}, .cluster = {2}, .cooperative = true}),
              HasSubstr("a cooperative launch in clusters"));
  EXPECT_TRUE(device_->alive());
  EXPECT_EQ(kernel->launches(), 0u);
}

}  // namespace
}  // namespace galvani::cuda
