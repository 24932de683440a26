// The machinery of the golden plans, on an operation made up for it; then every operation's own table.
#include "kernels/plan_golden.h"

#include "cuda/kernel_table.h"
#include "kernels/plan_tables.h"

namespace galvani::kernels {
namespace {

PlanTable made_up(int threshold = 9) {
  return {.operation = "made-up",
          .rows = {"bits=4 n=4096", "bits=4 n=704", "bits=8 n=4096"},
          .ms = {1, 2, 8, 9, 64},
          .plan = [threshold](const DeviceCaps& caps, size_t row, int64_t m) -> std::string {
            if (!caps.has(Feature::kLdmatrix)) return "refused: no ldmatrix";
            if (m >= threshold && caps.has(Feature::kWgmma)) return "kernel=many_sm90a tile=128";
            return row == 2 ? "kernel=few8_sm75" : "kernel=few_sm75";
          }};
}

TEST(PlanGolden, FoldsPartsSizesAndRows) {
  const std::string text = plan_golden::fold(made_up(), plan_parts());
  EXPECT_EQ(text,
            "== 5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2\n"
            "bits=4 n=4096; bits=4 n=704; bits=8 n=4096\n"
            "  1..64 | refused: no ldmatrix\n"
            "== 7.5 8.0 8.6 8.7 8.8 8.9 9.0/built-for-90 9.0/built-for-80-virtual 10.0 10.1 10.3 11.0 12.0 12.1 13.9\n"
            "bits=4 n=4096; bits=4 n=704\n"
            "  1..64 | kernel=few_sm75\n"
            "bits=8 n=4096\n"
            "  1..64 | kernel=few8_sm75\n"
            "== 9.0\n"
            "bits=4 n=4096; bits=4 n=704\n"
            "  1..8 | kernel=few_sm75\n"
            "  9..64 | kernel=many_sm90a tile=128\n"
            "bits=8 n=4096\n"
            "  1..8 | kernel=few8_sm75\n"
            "  9..64 | kernel=many_sm90a tile=128\n");
  EXPECT_EQ(plan_differences(made_up(), plan_parts(), text), std::vector<std::string>{});
  EXPECT_EQ(planned_kernels(made_up(), plan_parts()), (std::set<std::string>{"few8_sm75", "few_sm75", "many_sm90a"}));
}

TEST(PlanGolden, FindsAChangedCellAMissingRowAndAnExtraOne) {
  const std::vector<PlanPart> parts = plan_parts();
  std::string text = plan_golden::fold(made_up(), parts);
  // A crossover that moved by one: three rows at m = 8 on one part.
  const auto moved = plan_differences(made_up(8), parts, text);
  ASSERT_EQ(moved.size(), 3u);
  EXPECT_EQ(moved[0], "bits=4 n=4096 on 9.0 m 8: now \"kernel=many_sm90a tile=128\", in the file \"kernel=few_sm75\"");
  PlanTable fewer = made_up();
  fewer.rows.pop_back();
  EXPECT_EQ(plan_differences(fewer, parts, text).back(), "... 120 in all") << "24 parts, 5 sizes, only in the file";
  PlanTable more = made_up();
  more.rows.push_back("bits=2");
  EXPECT_EQ(plan_differences(more, parts, text).back(), "... 120 in all");
  EXPECT_NE(plan_differences(more, parts, text)[0].find("not in the file"), std::string::npos);
}

TEST(PlanGolden, EveryOperationsPlansAreThoseOfTheFile) {
  const std::vector<PlanTable> tables = plan_tables();
  if (tables.empty()) GTEST_SKIP() << "no operation has a GPU plan yet";
  for (const PlanTable& table : tables) {
    SCOPED_TRACE(table.operation);
    expect_golden_plans(table);
  }
}

// An exemption that is not needed would hide the kernel's last plan going away.
TEST(PlanGolden, WhatIsExemptHasNoPlan) {
  const std::set<std::string> exempt = kernels_without_a_choice();
  for (const PlanTable& table : plan_tables())
    for (const std::string& name : planned_kernels(table, plan_parts())) EXPECT_EQ(exempt.count(name), 0u) << name;
}

TEST(PlanGolden, EveryRegisteredKernelIsSelectedSomewhere) {
  if (cuda::builtin_kernels().empty()) GTEST_SKIP() << "this build holds no GPU kernels";
  std::set<std::string> planned = kernels_without_a_choice();
  for (const PlanTable& table : plan_tables()) planned.merge(planned_kernels(table, plan_parts()));
  for (const cuda::KernelObject& object : cuda::builtin_kernels())
    for (const cuda::KernelEntry& entry : object.entries)
      EXPECT_EQ(planned.count(entry.name), 1u)
          << entry.name << " (" << object.arch << ") is compiled and no plan selects it";
}

}  // namespace
}  // namespace galvani::kernels
