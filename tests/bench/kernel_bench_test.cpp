// What the record of bench --kernels says of an arm that was forced.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/kernel_bench.h"

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

}  // namespace
}  // namespace galvani::bench
