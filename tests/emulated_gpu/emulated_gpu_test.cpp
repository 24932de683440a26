// The emulated GPU itself: what it must find in a kernel that is wrong, and that a right one computes what it says.
#include "emulated_gpu/prelude.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "cuda/memory.h"
#include "emulated_gpu/environment.h"
#include "emulated_gpu/fiber.h"
#include "emulated_gpu/grid.h"
#include "emulated_gpu/tensor_sum.h"

namespace galvani::emulated {
namespace {

std::string run_block(unsigned threads, std::function<void()> body, size_t shared = 4096) {
  return run({.grid = {1, 1, 1}, .block = {threads, 1, 1}, .cluster = {}, .dynamic_shared = shared, .body = body});
}

TEST(EmulatedGpu, ThreadsOfAllBlocksRunOnceUnderTheirOwnIndex) {
  std::vector<int> seen(3 * 2 * 70);
  const std::string error = run({.grid = {3, 2, 1}, .block = {35, 2, 1}, .cluster = {}, .body = [&] {
                                   const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
                                   const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
                                   ++seen[block * 70 + thread];
                                 }});
  EXPECT_EQ(error, "");
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST(EmulatedGpu, ShufflesAndVotesAreThoseOfAWarp) {
  std::vector<int> sums(64), up(64);
  std::vector<unsigned> votes(64);
  EXPECT_EQ(run_block(64,
                      [&] {
                        const int t = static_cast<int>(threadIdx.x);
                        int sum = t;
                        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
                        sums[static_cast<size_t>(t)] = sum;
                        up[static_cast<size_t>(t)] = __shfl_up_sync(~0u, t, 3);
                        votes[static_cast<size_t>(t)] = __ballot_sync(~0u, t % 3 == 0);
                      }),
            "");
  for (int t = 0; t < 64; ++t) {
    const auto i = static_cast<size_t>(t);
    EXPECT_EQ(sums[i], t < 32 ? 496 : 1520);
    EXPECT_EQ(up[i], t % 32 < 3 ? t : t - 3);
    EXPECT_EQ(votes[i], t < 32 ? 0x49249249u : 0x92492492u);
  }
}

TEST(EmulatedGpu, BarriersOrderSharedMemoryAndEndedThreadsAreNotWaitedFor) {
  std::vector<int> out(96, -1);
  EXPECT_EQ(run_block(96,
                      [&] {
                        auto* shared = static_cast<int*>(dynamic_shared());
                        const unsigned t = threadIdx.x;
                        if (t >= 90) return;
                        shared[t] = static_cast<int>(t);
                        __syncthreads();
                        out[t] = shared[89 - t];
                      }),
            "");
  for (int t = 0; t < 90; ++t) EXPECT_EQ(out[static_cast<size_t>(t)], 89 - t);
}

TEST(EmulatedGpu, SharedMemoryBeginsPoisoned) {
  unsigned first = 0, last = 0;
  EXPECT_EQ(run_block(1,
                      [&] {
                        const auto* words = static_cast<const unsigned*>(dynamic_shared());
                        first = words[0], last = words[1023];
                      }),
            "");
  EXPECT_EQ(first, ~0u);
  EXPECT_EQ(last, ~0u);
}

TEST(EmulatedGpu, ThreadsThatWaitForEachOtherAreAnErrorWithWhatTheyWaitFor) {
  const std::string barrier_error = run_block(64, [] {
    if (threadIdx.x < 32)
      barrier(1, 64);
    else
      barrier(2, 64);
  });
  EXPECT_NE(barrier_error.find("64 at a barrier"), std::string::npos) << barrier_error;
  const std::string mixed = run_block(32, [] {
    if (threadIdx.x == 0)
      __syncwarp();
    else
      (void)__shfl_sync(~0u, 1, 0);
  });
  EXPECT_NE(mixed.find("31 at shfl"), std::string::npos) << mixed;
  EXPECT_NE(mixed.find("1 at __syncwarp"), std::string::npos) << mixed;
  const std::string phase = run_block(1, [] {
    mbarrier_init(1024, 1);
    mbarrier_wait(1024, 0);
  });
  EXPECT_NE(phase.find("1 at an mbarrier"), std::string::npos) << phase;
}

TEST(EmulatedGpu, AddressesOutsideTheBlockAreAnErrorWithTheThread) {
  const std::string error = run_block(
      33, [] { *static_cast<int*>(shared_pointer(1024 + 4 * threadIdx.x, 4)) = 1; }, 128);
  EXPECT_NE(error.find("thread (32, 0, 0): shared address 0x480 (4 bytes) is outside the block's 128 bytes"),
            std::string::npos)
      << error;
}

// What arrives asynchronously is not there before its wait, and is there after it.
TEST(EmulatedGpu, CopiesArriveAtTheirWait) {
  if (options().eager) GTEST_SKIP() << "GALVANI_EMULATED_COPIES=early asks for the opposite";
  alignas(16) unsigned source[4] = {1, 2, 3, 4};
  unsigned before = 0, between = 0, after = 0;
  EXPECT_EQ(run_block(1,
                      [&] {
                        auto* shared = static_cast<unsigned*>(dynamic_shared());
                        async_copy(1024, source, 16);
                        async_commit();
                        async_copy(1040, source, 8);
                        async_commit();
                        before = shared[0];
                        async_wait(1);
                        between = shared[4];
                        EXPECT_EQ(shared[3], 4u);
                        async_wait(0);
                        after = shared[5];
                        EXPECT_EQ(shared[6], 0u);  // the rest of the 16 bytes as zeros
                      }),
            "");
  EXPECT_EQ(before, ~0u);
  EXPECT_EQ(between, ~0u);
  EXPECT_EQ(after, 2u);
}

TEST(EmulatedGpu, MbarriersCountArrivalsAndBytes) {
  if (options().eager) GTEST_SKIP() << "GALVANI_EMULATED_COPIES=early asks for the opposite";
  std::vector<int> order;
  int copied = 0;
  EXPECT_EQ(run_block(64,
                      [&] {
                        if (threadIdx.x == 0) mbarrier_init(1024, 2), mbarrier_init(1032, 1);
                        __syncthreads();
                        if (threadIdx.x == 0) {
                          mbarrier_copy(1024, 32, [&] { copied = 7; });
                          EXPECT_EQ(copied, 0);
                          mbarrier_arrive(1024, 32);
                        } else if (threadIdx.x == 1) {
                          order.push_back(1);
                          mbarrier_arrive(1024, 0);
                        } else if (threadIdx.x == 40) {
                          mbarrier_wait(1024, 0);
                          order.push_back(40);
                          EXPECT_EQ(copied, 7);
                          mbarrier_wait(1032, 1);  // the phase before the first counts as complete
                        }
                      }),
            "");
  EXPECT_EQ(order, (std::vector<int>{1, 40}));
  const std::string error = run_block(3, [] {
    if (threadIdx.x == 0) mbarrier_init(1024, 1);
    __syncthreads();
    if (threadIdx.x > 0) mbarrier_arrive(1024, 8);
  });
  EXPECT_NE(error.find("more arrivals than the phase has"), std::string::npos) << error;
}

TEST(EmulatedGpu, ClustersSeeEachOthersSharedMemory) {
  std::vector<unsigned> got(8);
  EXPECT_EQ(run({.grid = {8, 1, 1},
                 .block = {1, 1, 1},
                 .cluster = {4, 1, 1},
                 .dynamic_shared = 16,
                 .body =
                     [&] {
                       *static_cast<unsigned*>(dynamic_shared()) = 100 + blockIdx.x;
                       cluster_barrier();
                       const unsigned from = (cluster_rank() + 1) % cluster_blocks();
                       got[blockIdx.x] = *static_cast<unsigned*>(cluster_pointer(1024, from, 4));
                       cluster_barrier();
                     }}),
            "");
  EXPECT_EQ(got, (std::vector<unsigned>{101, 102, 103, 100, 105, 106, 107, 104}));
}

// A barrier over the grid as kernels/common/grid_barrier.cuh builds it (grid_barrier_test runs that one).
void grid_sync(unsigned* counter, unsigned& target) {
  target += gridDim.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    grid_arrive_add(counter);
    while (static_cast<int>(grid_poll(counter) - target) < 0) {
    }
  }
  __syncthreads();
}

// How many values of other blocks a block found that were not of the round before.
int stale_values(bool with_barrier) {
  constexpr unsigned kBlocks = 4, kThreads = 64;
  constexpr int kRounds = 5;
  std::vector<int> values(2 * kBlocks * kThreads, -1);
  unsigned counter = 0;
  std::atomic<int> stale = 0;
  const std::string error =
      run_cooperative({.grid = {kBlocks, 1, 1}, .block = {kThreads, 1, 1}, .cluster = {}, .body = [&] {
                         unsigned target = 0;
                         for (int round = 0; round < kRounds; ++round) {
                           int* const now = &values[static_cast<size_t>(round) % 2 * kBlocks * kThreads];
                           // Whoever does not wait for the last block is long past it.
                           if (blockIdx.x == kBlocks - 1 && threadIdx.x == 0)
                             std::this_thread::sleep_for(std::chrono::milliseconds(20));
                           now[blockIdx.x * kThreads + threadIdx.x] = round;
                           if (with_barrier)
                             grid_sync(&counter, target);
                           else
                             __syncthreads();
                           for (unsigned other = 0; other < kBlocks; ++other)
                             stale += now[other * kThreads + (threadIdx.x + 1) % kThreads] != round;
                         }
                       }});
  EXPECT_EQ(error, "");
  EXPECT_EQ(counter, with_barrier ? kRounds * kBlocks : 0);
  return stale;
}

TEST(EmulatedGpu, BlocksOfACooperativeLaunchWaitForEachOther) {
  EXPECT_EQ(stale_values(true), 0);
  EXPECT_GT(stale_values(false), 0);
}

// Polls that are no loop, and a value that nobody announces, are no dead end.
TEST(EmulatedGpu, APollMaySeeTheSameValueTwice) {
  unsigned flag = 0, quiet = 0;
  const std::string error = run_cooperative({.grid = {2, 1, 1}, .block = {2, 1, 1}, .cluster = {}, .body = [&] {
                                               if (blockIdx.x == 0) {
                                                 if (threadIdx.x == 0) grid_arrive_add(&flag);
                                                 while (grid_poll(&quiet) == 0) {
                                                 }
                                                 return;
                                               }
                                               for (int i = 0; i < 3; ++i)
                                                 while (grid_poll(&flag) == 0) {
                                                 }
                                               atomicAdd(&quiet, 1u);
                                             }});
  EXPECT_EQ(error, "");
  EXPECT_EQ(quiet, 2u);
}

// All multiprocessors of an H200, with the blocks of a decode step.
TEST(EmulatedGpu, ACooperativeLaunchHoldsAWholeGpu) {
  unsigned counter = 0;
  std::vector<unsigned> seen(132);
  const std::string error = run_cooperative({.grid = {132, 1, 1}, .block = {512, 1, 1}, .cluster = {}, .body = [&] {
                                               unsigned target = 0;
                                               grid_sync(&counter, target);
                                               if (threadIdx.x == 511) seen[blockIdx.x] = counter;
                                             }});
  EXPECT_EQ(error, "");
  EXPECT_EQ(seen, std::vector<unsigned>(132, 132));
}

TEST(EmulatedGpu, AStackThatOverflowsIsAnError) {
  const std::string error = run_block(64, [] {
    if (threadIdx.x != 7) return __syncthreads();
    // Down to below the stack's end, as frames that are too large would go; the neighbour's frames are not used.
    volatile char* const here = static_cast<volatile char*>(__builtin_frame_address(0));
    for (size_t i = FiberStacks::kBytes - 4096; i <= FiberStacks::kBytes; i += 8)
      here[-static_cast<std::ptrdiff_t>(i)] = 0;
    __syncthreads();
  });
  EXPECT_NE(error.find("larger than 64 KiB"), std::string::npos) << error;
}

TEST(EmulatedGpu, AGridThatWaitsForEverIsAnError) {
  unsigned counter = 0;
  const std::string missing = run_cooperative({.grid = {3, 1, 1}, .block = {64, 1, 1}, .cluster = {}, .body = [&] {
                                                 unsigned target = 0;
                                                 grid_sync(&counter, target);
                                                 if (blockIdx.x == 1) return;
                                                 grid_sync(&counter, target);
                                               }});
  EXPECT_NE(missing.find("wait for each other (block (0, 0, 0))"), std::string::npos) << missing;
  EXPECT_NE(missing.find("1 at a poll of a counter"), std::string::npos) << missing;
  EXPECT_NE(missing.find("63 at a barrier"), std::string::npos) << missing;
  EXPECT_EQ(counter, 5u);

  // A block that fails ends the others, and its error is the launch's.
  counter = 0;
  const std::string trap = run_cooperative({.grid = {3, 1, 1}, .block = {64, 1, 1}, .cluster = {}, .body = [&] {
                                              if (blockIdx.x == 2 && threadIdx.x == 5) __trap();
                                              unsigned target = 0;
                                              grid_sync(&counter, target);
                                            }});
  EXPECT_EQ(trap, "block (2, 0, 0), thread (5, 0, 0): trap");

  const std::string alone = run_block(1, [&] { (void)grid_poll(&counter); });
  EXPECT_NE(alone.find("not cooperative"), std::string::npos) << alone;
  const std::string many = run_cooperative({.grid = {200, 1, 1}, .block = {1024, 1, 1}, .cluster = {}, .body = [] {}});
  EXPECT_NE(many.find("204800 threads"), std::string::npos) << many;
}

// What a stream is given runs when somebody waits for it; what is not page-locked was copied on the way.
TEST(EmulatedGpu, StreamsRunWhenTheyAreWaitedFor) {
  if (options().eager) GTEST_SKIP() << "GALVANI_EMULATED_COPIES=early asks for the opposite";
  cuda::CudaOptions any;
  any.kernels = {};
  any.images = *parse_cuda_images("50-virtual");
  const auto device = cuda::CudaDevice::open(0, any).value();
  auto first = cuda::Stream::create(*device).value(), second = cuda::Stream::create(*device).value();
  auto there = cuda::DeviceBuffer::allocate(*device, 16, "test").value();
  auto pinned = cuda::PinnedBuffer::allocate(*device, 16, "test").value();
  auto reached = cuda::Event::create(*device).value();
  int* from = pinned.as<int>();
  int plain = 5, back = 0;
  from[0] = 1, from[1] = 0;
  ASSERT_TRUE(first.to_device(there.data(), from, 4));
  ASSERT_TRUE(first.to_device(there.as<int>() + 1, &plain, 4));
  ASSERT_TRUE(first.record(reached));
  from[0] = 2, plain = 6;  // the first is too early
  ASSERT_TRUE(second.wait(reached));
  ASSERT_TRUE(second.to_host(from + 1, there.data(), 8));
  EXPECT_EQ(from[1], 0);
  ASSERT_TRUE(second.synchronize());
  EXPECT_EQ(from[1], 2);
  EXPECT_EQ(from[2], 5);
  // To memory that is not page-locked a copy waits by itself.
  from[0] = 7;
  ASSERT_TRUE(first.to_device(there.data(), from, 4));
  ASSERT_TRUE(first.to_host(&back, there.data(), 4));
  EXPECT_EQ(back, 7);
}

TEST(EmulatedGpu, RoundingToOddLosesNothing) {
  // 1 + 2^-24 + 2^-50 lies above the middle of two bf16-to-be neighbours only by its last bit.
  const double x = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(static_cast<float>(x), 1.0f + 0x1p-8f);  // rounding twice would now see a tie
  EXPECT_GT(round_to_odd(x), 1.0f + 0x1p-8f);
  EXPECT_LT(round_to_odd(-x), -1.0f - 0x1p-8f);
  EXPECT_EQ(round_to_odd(0.5), 0.5f);
}

TEST(EmulatedGpu, IntrinsicsAreThoseOfTheManual) {
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7531), 0x77553311u);
  EXPECT_EQ(__byte_perm(0x00008000u, 0, 0x9999), 0xffffffffu);
  EXPECT_EQ(__funnelshift_r(0x80000001u, 0x00000003u, 1), 0xc0000000u);
  EXPECT_EQ(__float2ull_rn(2.5f), 2ull);
  EXPECT_EQ(__float2ull_rn(-1.0f), 0ull);
  EXPECT_EQ(__umulhi(0x80000000u, 6), 3u);
  EXPECT_EQ(__fdividef(1.0f, 0x1p127f), 0.0f);
}

/// c + the products of `a` with ones, by the tensor core of such an architecture.
float truncated(float c, std::vector<float> a, int cuda_arch) {
  a.resize(16);
  const std::vector<float> ones(16, 1.0f);
  std::vector<int> a_log2, ones_log2(16, 0);
  for (const float x : a) a_log2.push_back(exponent_of(x, -14));
  return truncated_sum(c, a.data(), a_log2.data(), ones.data(), ones_log2.data(), 1, 16, tensor_core(cuda_arch));
}

// What tells the generations apart: how far below the largest addend others are cut off, and how many are added at
// once. Results are cut off too, towards zero.
TEST(EmulatedGpu, TruncatedSumsAreThoseOfEachGeneration) {
  const float unit = 0x1p-23f;  // last place of 1
  for (const int arch : {700, 750, 800, 890, 900, 1000}) {
    EXPECT_EQ(truncated(1, {unit}, arch), 1 + unit) << arch;
    EXPECT_EQ(truncated(1, {unit / 2}, arch), 1.0f) << arch;
    EXPECT_EQ(truncated(1, {-unit / 2}, arch), arch < 800 ? 1.0f : 1 - unit / 2) << arch;
    EXPECT_EQ(truncated(-1, {-1.9f * unit}, arch), -1 - unit) << arch;
    EXPECT_EQ(truncated(0, {3, 5, -7.5f}, arch), 0.5f) << arch;
    EXPECT_EQ(truncated(0, {}, arch), 0.0f) << arch;
  }
  // Quarters of the last place add up where they are kept, halves where halves are.
  const std::vector<float> quarters(4, unit / 4), halves(4, unit / 2);
  EXPECT_EQ(truncated(1, quarters, 700), 1.0f);
  EXPECT_EQ(truncated(1, quarters, 800), 1.0f);
  EXPECT_EQ(truncated(1, quarters, 900), 1 + unit);
  EXPECT_EQ(truncated(1, halves, 700), 1.0f);
  EXPECT_EQ(truncated(1, halves, 800), 1 + 2 * unit);
  EXPECT_EQ(truncated(1, halves, 900), 1 + 2 * unit);
  // A half that stands apart meets the other half in the same group of 4, 8 or 16, or is cut off twice.
  for (const size_t apart : {3, 5, 12}) {
    std::vector<float> a(16);
    a[0] = a[apart] = unit / 2;
    EXPECT_EQ(truncated(1, a, 800), apart < 8 ? 1 + unit : 1.0f);
    EXPECT_EQ(truncated(1, a, 900), 1 + unit);
  }
  // A product counts with its operands' exponents: 1.5 · 1.5 is aligned as a number below 2.
  const float a[16] = {1.5f}, b[16] = {1.5f};
  int a_log2[16], b_log2[16];
  for (int k = 0; k < 16; ++k) a_log2[k] = exponent_of(a[k], -14), b_log2[k] = exponent_of(b[k], -14);
  EXPECT_EQ(truncated_sum(unit, a, a_log2, b, b_log2, 1, 16, tensor_core(700)), 2.25f);
  EXPECT_EQ(truncated_sum(-unit, a, a_log2, b, b_log2, 1, 16, tensor_core(700)), 2.25f - 2 * unit);
}

// Nothing that was asked for is left out in silence.
TEST(EmulatedGpu, AValueThatIsNotUnderstoodEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr const char* kName = "GALVANI_EMULATED_NOTHING";
  const auto set = [&](const char* value) { setenv(kName, value, 1); };
  unsetenv(kName);
  EXPECT_EQ(environment_number(kName, 132, 7), 7);
  EXPECT_FALSE(environment_is(kName, "early"));
  set("132");
  EXPECT_EQ(environment_number(kName, 132, 7), 132);
  set("early");
  EXPECT_TRUE(environment_is(kName, "early"));
  for (const char* wrong : {"0", "-1", "133", "5x", "five", " 5", "99999999999999999999"}) {
    set(wrong);
    EXPECT_EXIT(environment_number(kName, 132, 7), testing::ExitedWithCode(2), "NOTHING is '.*'; allowed: a number");
  }
  for (const char* wrong : {"Early", "1", "earl"}) {
    set(wrong);
    EXPECT_EXIT(environment_is(kName, "early"), testing::ExitedWithCode(2), "NOTHING is '.*'; allowed: early, or not");
  }
  unsetenv(kName);
}

}  // namespace
}  // namespace galvani::emulated
