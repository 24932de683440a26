// What the record of bench --kernels says of an arm that was forced.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "bench/kernel_tune.h"
#include "cuda/device.h"
#include "device/parts.h"

namespace galvani::bench {
namespace {

nlohmann::json arms_of(const KernelRecord& record) {
  return nlohmann::json::parse(kernel_record_json(record)).at("arms");
}

TEST(KernelReport, ForcedArmsArePrintedAndRecorded) {
  KernelRecord record;
  EXPECT_EQ(arms_of(record), nlohmann::json::object());
  EXPECT_EQ(kernel_record_markdown(record).find(", arms"), std::string::npos);
  record.arms = {{"qmatmul", "mma"}};
  EXPECT_EQ(arms_of(record), nlohmann::json({{"qmatmul", "mma"}}));
  const std::string text = kernel_record_markdown(record);
  EXPECT_NE(text.find("programmatic dependent launch, arms qmatmul=mma.\n"), std::string::npos) << text;
}

TEST(KernelReport, AClockThatWasReadIsPrintedAndRecorded) {
  KernelRecord record;
  KernelRow row;
  row.what = {64, 128, 1, {4, 64, kernels::A16Scale::kBF16}};
  row.time.median = 2, row.time.sm_mhz = 1755;
  record.rows = {row};
  EXPECT_EQ(nlohmann::json::parse(kernel_record_json(record)).at("rows").at(0).at("time").at("sm_mhz"), 1755);
  EXPECT_NE(kernel_record_markdown(record).find("| 1755 |\n"), std::string::npos) << kernel_record_markdown(record);
}

TEST(CudaSmallKernelBench, TheForcedArmRunsAndIsRecorded) {
  const cuda::DriverState state = cuda::driver_state();
  if (state.kind != cuda::DriverState::Kind::kReady) GTEST_SKIP() << state.message;
  KernelBenchOptions options;
  options.cases = {{64, 128, 4, {4, 64, kernels::A16Scale::kF16}}};
  options.arithmetic = kernels::Arithmetic::kF16;
  options.cublas = false;
  options.replays = 3, options.launches = 2, options.most_copies = 2, options.read_ceiling_bytes = 1 << 20;
  const auto free = bench_kernels(options);
  ASSERT_TRUE(free.has_value()) << free.error().message;
  EXPECT_EQ(arms_of(*free), nlohmann::json::object());
  options.forced = static_cast<int>(kernels::QmatmulCudaArm::kMma);
  const auto forced = bench_kernels(options);
  ASSERT_TRUE(forced.has_value()) << forced.error().message;
  EXPECT_EQ(arms_of(*forced), nlohmann::json({{"qmatmul", "mma"}}));
  ASSERT_EQ(forced->rows.size(), 1u);
  EXPECT_EQ(forced->rows[0].failure, "");
  EXPECT_GT(forced->rows[0].time.sm_mhz, 0);
  EXPECT_EQ(forced->rows[0].kernel.rfind("qmatmul_mma", 0), 0u) << forced->rows[0].kernel;
}

/// Arms that --tune would time, with how many launches of them the plan itself would take.
std::map<std::string, int> arms_timed(const char* part, int64_t m, kernels::Arithmetic arithmetic) {
  std::map<std::string, int> arms;
  for (const TuneRow& row :
       tune_candidates(find_part(part)->caps, {4096, 4096, m, {4, 64, kernels::A16Scale::kF16}}, arithmetic))
    arms[kernels::qmatmul_cuda_arm_name(row.arm)] += row.chosen ? 1 : 0;
  return arms;
}

TEST(KernelTune, EveryArmThatAPartHasIsTimedBesideTheOthers) {
  using Arms = std::map<std::string, int>;
  const auto bf16 = kernels::Arithmetic::kBF16, f16 = kernels::Arithmetic::kF16;
  EXPECT_EQ(arms_timed("h200", 1, bf16), (Arms{{"few-async", 0}, {"few-bulk", 1}}));
  EXPECT_EQ(arms_timed("h200", 16, bf16), (Arms{{"mma", 0}, {"stream", 1}, {"wgmma", 0}}));
  EXPECT_EQ(arms_timed("h200", 512, bf16), (Arms{{"expand", 0}, {"mma", 0}, {"wgmma", 1}}));
  EXPECT_EQ(arms_timed("a100", 64, bf16), (Arms{{"expand", 0}, {"mma", 1}}));
  EXPECT_EQ(arms_timed("t4", 1, f16), (Arms{{"few-plain", 1}}));
  EXPECT_EQ(arms_timed("t4", 2048, f16), (Arms{{"expand", 1}, {"mma", 0}}));
}

}  // namespace
}  // namespace galvani::bench
