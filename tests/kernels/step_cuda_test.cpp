// Doctor's comparison of the kernel that runs a whole decode step, in a test: all phases against f64. The emulated GPU
// gets as many multiprocessors as make the segments of a kv head two, unless GALVANI_EMULATED_SMS says how many; all of
// them take six times as long.
#include <cstdlib>

#include "kernels/cuda_testing.h"
#include "kernels/op_checks.h"

namespace galvani::kernels {
namespace {

class CudaSmallStep : public OnGpu {
 protected:
  void SetUp() override {
    setenv("GALVANI_EMULATED_SMS", "5", 0);  // before anybody looks
    OnGpu::SetUp();
  }
};

TEST_F(CudaSmallStep, AgreesWithF64AndWithItself) {
  if (!device->caps().has(Feature::kBulkCopy)) GTEST_SKIP() << "no bulk copies here (from 9.0 on)";
  const uint64_t seed = fresh_seed();
  const auto verdicts = check_step(*device, seed);
  ASSERT_TRUE(verdicts.has_value()) << verdicts.error().message;
  EXPECT_GE(verdicts->size(), 4u);
  for (const KernelVerdict& verdict : *verdicts)
    EXPECT_TRUE(verdict.ok()) << verdict.kernel << ": " << verdict.worst << " times its bound; " << verdict.note
                              << "; seed " << seed;
}

}  // namespace
}  // namespace galvani::kernels
