#include <string>

#include "device/cpu_caps.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {
namespace {

/// What run-time dispatch chooses here, of the instruction sets that our kernels are compiled for.
int64_t best_target() {
  for (int64_t target : {HWY_AVX3, HWY_AVX2, HWY_NEON})
    if (hwy::SupportedTargets() & target) return target;
  return HWY_SCALAR;
}

// Highway's detection and ours (device/cpu_caps.h) choose kernels side by side.
TEST(Targets, BothDetectionsAgree) {
  const CpuCaps& caps = cpu_caps();
  const int64_t best = best_target();
  EXPECT_EQ(caps.avx512, best == HWY_AVX3) << cpu_caps_str(caps) << ", Highway says " << hwy::TargetName(best);
  EXPECT_EQ(caps.avx2, best == HWY_AVX3 || best == HWY_AVX2) << cpu_caps_str(caps);
  EXPECT_EQ(caps.neon, best == HWY_NEON) << cpu_caps_str(caps);
}

TEST(Targets, IsTheOneThatTheEmulatorWasAskedFor) {
  const char* wanted = std::getenv("GALVANI_EXPECT_TARGET");
  if (!wanted) GTEST_SKIP() << "GALVANI_EXPECT_TARGET is not set; scripts/test-targets sets it";
  EXPECT_EQ(std::string(hwy::TargetName(best_target())), wanted);
}

}  // namespace
}  // namespace galvani::kernels
