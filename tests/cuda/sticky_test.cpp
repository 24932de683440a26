// A device that dies mid-run: the first error stays the answer, with the kernels launched last. Alone in its process,
// since CUDA answers nothing else in it afterwards.
#include <gmock/gmock.h>

#include "cuda/fixtures.h"

namespace galvani::cuda {
namespace {

using testing::HasSubstr;

TEST(CudaSticky, TheFirstErrorStaysAndNamesItsKernels) {
  GALVANI_NEEDS_HOPPER();
  const Build build = full_build();
  Rig rig(build.options());
  int* y = rig.y.as<int>();
  ASSERT_TRUE(rig.device->alive());
  ASSERT_TRUE(launch(rig.stream, rig.kernel("count_sm90"), {.grid = {1}, .block = {32}}, y));
  ASSERT_TRUE(launch(rig.stream, rig.kernel("trap_sm75"), {.grid = {1}, .block = {32}}, y)) << "asynchronous";
  const Status step = rig.stream.synchronize();
  ASSERT_FALSE(step);
  EXPECT_THAT(step.error().message, HasSubstr("GPU 0"));
  EXPECT_THAT(step.error().message, HasSubstr("stopped working in this step"));
  EXPECT_THAT(step.error().message, HasSubstr("kernels launched last: count_sm90, trap_sm75"));
  EXPECT_THAT(step.error().message, HasSubstr("restart"));
  // Everything afterwards gives that same error: launches, copies, allocations, waiting.
  const std::string first = step.error().message;
  EXPECT_EQ(rig.device->alive().error().message, first);
  EXPECT_EQ(launch(rig.stream, rig.kernel("count_sm90"), {.grid = {1}, .block = {32}}, y).error().message, first);
  EXPECT_EQ(rig.stream.to_device(y, &first, 4).error().message, first);
  EXPECT_EQ(DeviceBuffer::allocate(*rig.device, 16, "more").error().message, first);
  EXPECT_EQ(rig.stream.synchronize().error().message, first);
  EXPECT_EQ(rig.device->synchronize().error().message, first);
}

}  // namespace
}  // namespace galvani::cuda
