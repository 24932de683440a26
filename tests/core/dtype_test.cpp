#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace galvani {
namespace {

TEST(DType, EveryF16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      EXPECT_EQ(f32_to_f16(value), half) << bits;
    }
  }
}

TEST(DType, EveryBf16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
    } else {
      EXPECT_EQ(f32_to_bf16(value), bits);
    }
  }
}

// Between two neighbours the conversion takes the nearer one, and the even one in the middle.
TEST(DType, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = f16_to_f32(static_cast<uint16_t>(bits)), high = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(f32_to_f16(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits) << bits;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), bits + 1) << bits;
  }
  EXPECT_EQ(f32_to_f16(65519.9f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_bf16(1.00390625f), 0x3f80);  // halfway between 1 and 1 + 2^-7: even
  EXPECT_EQ(f32_to_bf16(1.01171875f), 0x3f82);
}

}  // namespace
}  // namespace galvani
