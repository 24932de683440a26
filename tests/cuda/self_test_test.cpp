// The decision whether a kernel can be trusted here, without a device.
#include "cuda/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace galvani::cuda {
namespace {

using testing::HasSubstr;

DeviceCaps h200(const char* images) {
  DeviceCaps caps;
  caps.cc = 90, caps.smem_optin = 232448;
  return with_images(caps, *parse_cuda_images(images));
}

TEST(SelfTestJudge, Yes) {
  const KernelEntry entry{.name = "mm_sm90a", .needs = Feature::kWgmma, .threads = 384};
  const KernelAttributes loaded{.binary_version = 90, .ptx_version = 90, .registers = 168, .max_threads = 384};
  EXPECT_EQ(judge_kernel(entry, "sm_90a", h200("90a"), loaded).answer, Answer::kYes);
  const KernelEntry old{.name = "mm_sm80"};
  const KernelAttributes jitted{.binary_version = 90, .ptx_version = 80, .max_threads = 1024};
  EXPECT_EQ(judge_kernel(old, "compute_80", h200("80-virtual"), jitted).answer, Answer::kYes);
}

TEST(SelfTestJudge, ArmCompiledForLessThanItsName) {
  const KernelEntry entry{.name = "mm_sm90a"};
  for (const char* arch : {"sm_90", "compute_80", "sm_100f"}) {
    const SelfTest test = judge_registration(entry, arch, h200("90"));
    EXPECT_EQ(test.answer, Answer::kNo) << arch;
    EXPECT_THAT(test.reason, HasSubstr("mm_sm90a needs an object compiled for sm_90a"));
    EXPECT_THAT(test.reason, HasSubstr(std::string("compiled for ") + arch));
  }
}

// A binary for several parts holds kernels that this one never runs.
TEST(SelfTestJudge, OtherPartsKernelsAreNoFault) {
  DeviceCaps t4, a100, b200;
  t4.cc = 75, a100.cc = 80, b200.cc = 100;
  for (const auto& [name, on_t4, on_a100, on_h200, on_b200] : {std::tuple{"mm_sm70", false, false, false, false},
                                                               {"mm_sm75", false, false, false, false},
                                                               {"mm_sm80", true, false, false, false},
                                                               {"mm_sm90", true, true, false, false},
                                                               {"mm_sm90a", true, true, false, true},
                                                               {"mm_sm100f", true, true, true, false},
                                                               {"mm", false, false, false, false}}) {
    EXPECT_EQ(is_for_other_parts(name, t4), on_t4) << name;
    EXPECT_EQ(is_for_other_parts(name, a100), on_a100) << name;
    EXPECT_EQ(is_for_other_parts(name, h200("90a")), on_h200) << name;
    EXPECT_EQ(is_for_other_parts(name, b200), on_b200) << name;
  }
}

TEST(SelfTestJudge, NeedsMoreThanItsNameSays) {
  const KernelEntry entry{.name = "mm_sm80", .needs = Feature::kBulkCopy};
  const SelfTest test = judge_registration(entry, "compute_80", h200("80-virtual"));
  EXPECT_EQ(test.answer, Answer::kNo);
  EXPECT_THAT(test.reason, HasSubstr("bulk_copy"));
}

TEST(SelfTestJudge, WhatTheDriverLoadedIsSomethingElse) {
  const KernelEntry entry{.name = "mm_sm80", .threads = 256};
  const KernelAttributes jitted{.binary_version = 90, .ptx_version = 80, .max_threads = 1024};
  const SelfTest test = judge_kernel(entry, "sm_90", h200("90"), jitted);
  EXPECT_EQ(test.answer, Answer::kNo);
  EXPECT_THAT(test.reason, HasSubstr("binary 90, PTX 80"));
}

TEST(SelfTestJudge, TooManyThreadsOrBytes) {
  const KernelAttributes loaded{
      .binary_version = 90, .ptx_version = 90, .registers = 200, .max_threads = 256, .static_smem = 1024};
  const KernelEntry wide{.name = "mm_sm80", .threads = 512};
  EXPECT_THAT(judge_kernel(wide, "sm_90", h200("90"), loaded).reason, HasSubstr("512 threads"));
  const KernelEntry big{.name = "mm_sm80", .threads = 256, .dynamic_smem = 232448};
  EXPECT_THAT(judge_kernel(big, "sm_90", h200("90"), loaded).reason, HasSubstr("233472 bytes"));
}

TEST(SelfTestJudge, NamesWithoutAnArm) {
  EXPECT_FALSE(arm_of_name("axpy"));
  EXPECT_FALSE(arm_of_name("axpy_sm"));
  EXPECT_FALSE(arm_of_name("axpy_smart"));
  EXPECT_EQ(arm_of_name("a_sm_b_sm120f")->suffix, 'f');
}

}  // namespace
}  // namespace galvani::cuda
