#include "core/shape.h"

#include <gtest/gtest.h>

namespace galvani {
namespace {

TEST(Shape, CountsElementsAndRefusesOverflow) {
  EXPECT_EQ(Shape({3, 4, 5}).elements().value(), 60);
  EXPECT_EQ(Shape({}).elements().value(), 1);
  EXPECT_EQ(Shape({0, 7}).elements().value(), 0);
  EXPECT_EQ(Shape({int64_t{1} << 62, 4}).elements().error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(Shape({-1}).elements().error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(Shape({2, 3}).str(), "[2, 3]");
}

}  // namespace
}  // namespace galvani
