// Doctor's comparisons: every kernel that a plan can take or a table holds is compared, or said to compute nothing.
#include "kernels/cuda_checks.h"

#include "cuda/kernel_table.h"
#include "kernels/plan_golden.h"
#include "kernels/plan_tables.h"

namespace galvani::kernels {
namespace {

std::set<std::string> checked_on(const DeviceCaps& caps) {
  std::set<std::string> names;
  for (const KernelCheck& check : kernel_checks())
    for (std::string& name : check.kernels(caps)) names.insert(std::move(name));
  return names;
}

TEST(CudaKernelChecks, EveryPlannedKernelOfAPartIsComparedThere) {
  size_t planned = 0;
  for (const PlanPart& part : plan_parts()) {
    const std::set<std::string> checked = checked_on(part.caps);
    for (const PlanTable& table : plan_tables())
      for (const std::string& name : planned_kernels(table, {part})) {
        EXPECT_EQ(checked.count(name), 1u) << name << " runs on " << part.label << " and doctor does not compare it";
        ++planned;
      }
  }
  EXPECT_GT(planned, 500u);
}

TEST(CudaKernelChecks, KernelsWithoutAChoiceAreComparedOrComputeNothing) {
  const std::set<std::string> checked = checked_on(find_part("h200")->caps);
  for (const std::string& name : kernels_without_a_choice())
    EXPECT_NE(checked.count(name) == 1, computes_nothing(name)) << name;
}

TEST(CudaKernelChecks, EveryRegisteredKernelIsComparedOrComputesNothing) {
  if (cuda::builtin_kernels().empty()) GTEST_SKIP() << "this build holds no GPU kernels";
  std::set<std::string> checked;
  for (const PlanPart& part : plan_parts()) checked.merge(checked_on(part.caps));
  for (const cuda::KernelObject& object : cuda::builtin_kernels())
    for (const cuda::KernelEntry& entry : object.entries)
      EXPECT_TRUE(checked.count(entry.name) == 1 || computes_nothing(entry.name))
          << entry.name << " (" << object.arch << ")";
}

}  // namespace
}  // namespace galvani::kernels
