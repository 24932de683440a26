// What is said of a mixture's use, on counts that can be added up by hand.
#include "engine/expert_use.h"

#include <gtest/gtest.h>

namespace galvani::engine {
namespace {

// Layer 0 has no experts; layer 1 is used evenly, layer 2 is not.
const ExpertCounts kCounts = {{}, {2, 2, 2, 2}, {6, 0, 1, 1}};

TEST(ExpertUse, CountsLayersWithExperts) {
  const auto layers = expert_use(kCounts);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].layer, 1);
  EXPECT_EQ(layers[0].unused, 0);
  EXPECT_DOUBLE_EQ(layers[0].busiest_share(), 0.25);
  EXPECT_EQ(layers[1].layer, 2);
  EXPECT_EQ(layers[1].experts, 4);
  EXPECT_EQ(layers[1].least, 0u);
  EXPECT_EQ(layers[1].most, 6u);
  EXPECT_EQ(layers[1].mean(), 2u);
  EXPECT_EQ(layers[1].unused, 1);
  EXPECT_DOUBLE_EQ(layers[1].busiest_share(), 0.75);
  EXPECT_EQ(experts_read(kCounts), 7);
  EXPECT_DOUBLE_EQ(busiest_share(kCounts), 0.75);
}

TEST(ExpertUse, CountsWhatAStepAdded) {
  // The first step makes the rows; a later one adds to them.
  EXPECT_EQ(counted_since({}, kCounts), kCounts);
  ExpertCounts after = kCounts;
  after[1][3] += 1, after[2][1] += 2;
  const ExpertCounts step = counted_since(kCounts, after);
  EXPECT_EQ(step, (ExpertCounts{{}, {0, 0, 0, 1}, {0, 2, 0, 0}}));
  EXPECT_EQ(experts_read(step), 2);
  EXPECT_EQ(experts_read(counted_since(kCounts, kCounts)), 0);
  EXPECT_EQ(busiest_share(counted_since(kCounts, kCounts)), 0);
}

TEST(ExpertUse, TheTableHasALineALayer) {
  EXPECT_EQ(expert_use_table({}), "");
  EXPECT_EQ(expert_use_table({{}, {}}), "");
  EXPECT_EQ(expert_use_table(kCounts),
            "tokens by expert\n"
            "     layer  experts      least       mean       most  busiest   unused\n"
            "         1        4          2          2          2   25.0 %        0\n"
            "         2        4          0          2          6   75.0 %        1\n");
}

}  // namespace
}  // namespace galvani::engine
