#include "exec/activation_counter.h"

#include <gtest/gtest.h>

#include <limits>

namespace galvani::exec {
namespace {

TEST(ActivationCounter, CountsWhatTheArithmeticCannotHold) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // Two rows of three with one column of padding, which must not count.
  const float x[] = {1.0f, 65504.0f, 65505.0f, kInf, -70000.0f, std::numeric_limits<float>::quiet_NaN(), -kInf, kInf};
  ActivationCounters f16, bf16;
  count_activation(x, 2, 3, 4, kernels::Arithmetic::kF16, f16);
  count_activation(x, 2, 3, 4, kernels::Arithmetic::kBF16, bf16);
  EXPECT_EQ(f16.values, 6u);
  EXPECT_EQ(f16.saturated, 2u);
  EXPECT_EQ(f16.non_finite, 2u);
  EXPECT_EQ(bf16.saturated, 0u);
  EXPECT_EQ(bf16.non_finite, 2u);
}

}  // namespace
}  // namespace galvani::exec
