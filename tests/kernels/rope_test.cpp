#include "kernels/rope/rope.h"

#include "core/parallel.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {
namespace {

std::vector<float> frequencies(int64_t rotary_dim, double base) {
  std::vector<float> inverse(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < inverse.size(); ++i)
    inverse[i] = static_cast<float>(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim)));
  return inverse;
}

// The f32 angle is off by u·angle up to position 2^17 and by nothing above; then come cos, sin, attention_scale, two
// products and a sum.
double bound(double angle, int32_t position, double a, double b, double scale) {
  const double angle_error = position > (1 << 17) ? 0 : kUnit * std::fabs(angle);
  return (std::fabs(a) + std::fabs(b)) * scale * (angle_error + 6 * kUnit);
}

void check(RopePairing pairing, int64_t heads, int64_t head_dim, int64_t rotary_dim, float scale,
           std::mt19937_64& random, double& worst) {
  const std::vector<int32_t> positions = {0, 1, 7, 4095, 131072, 131073, 1000000, 262143};
  const int64_t rows = static_cast<int64_t>(positions.size()), half = rotary_dim / 2;
  const int64_t stride = heads * head_dim + 5;
  const std::vector<float> inverse = frequencies(rotary_dim, 10000.0);
  const std::vector<float> x = normal(random, static_cast<size_t>(rows * stride));
  std::vector<double> exact(static_cast<size_t>(rows * heads * head_dim));
  rope_ref(pairing, x.data(), rows, heads, head_dim, stride, positions.data(), inverse.data(), rotary_dim, scale,
           exact.data());
  GuardedBuffer y(x.size());
  std::copy(x.begin(), x.end(), y.data());
  const auto apply = pairing == RopePairing::kHalfSplit ? rope_half_split : rope_interleaved;
  apply(y.data(), rows, heads, head_dim, stride, positions.data(), inverse.data(), rotary_dim, scale);
  EXPECT_TRUE(y.guards_intact());
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x.data() + r * stride;
    const float* out = y.data() + r * stride;
    for (int64_t i = heads * head_dim; i < stride; ++i) ASSERT_EQ(in[i], out[i]) << "between rows";
    for (int64_t h = 0; h < heads; ++h, in += head_dim, out += head_dim) {
      for (int64_t i = rotary_dim; i < head_dim; ++i) ASSERT_EQ(in[i], out[i]) << "beyond rotary_dim";
      for (int64_t i = 0; i < half; ++i) {
        const bool split = pairing == RopePairing::kHalfSplit;
        const int64_t a = split ? i : 2 * i, b = split ? i + half : 2 * i + 1;
        const int32_t p = positions[static_cast<size_t>(r)];
        const double limit = bound(double{inverse[static_cast<size_t>(i)]} * p, p, in[a], in[b], scale);
        for (int64_t at : {a, b}) {
          const double error = std::fabs(out[at] - exact[static_cast<size_t>((r * heads + h) * head_dim + at)]);
          worst = std::max(worst, error / limit);
          ASSERT_LE(error, limit) << "row " << r << " head " << h << " dim " << at;
        }
      }
    }
  }
}

TEST(Rope, MatchesF64) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    double worst = 0;
    for (RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
      check(pairing, 9, 64, 64, 1.0f, random, worst);
      check(pairing, 4, 256, 256, 1.3466f, random, worst);
      check(pairing, 2, 256, 64, 1.0f, random, worst);  // partial
      check(pairing, 3, 80, 80, 1.0f, random, worst);
      check(pairing, 1, 7, 6, 2.0f, random, worst);
      check(pairing, 2, 2, 2, 1.0f, random, worst);
      check(pairing, 2, 5, 0, 1.0f, random, worst);
    }
    std::cout << "largest error " << worst << " of the bound\n";
  });
}

TEST(Rope, ATableServesPartsOfABatchBitForBit) {
  std::mt19937_64 random(fresh_seed());
  const std::vector<int32_t> positions = {5, 6, 7, 100, 0};
  const std::vector<float> inverse = frequencies(48, 500000.0), x = normal(random, 5 * 3 * 48);
  RopeTable table;
  rope_build(table, positions.data(), 5, inverse.data(), 48, 1.0f);
  for_each_target([&] {
    std::vector<float> whole = x, parts = x;
    rope_apply(table, RopePairing::kHalfSplit, whole.data(), 0, 5, 3, 48, 3 * 48);
    rope_apply(table, RopePairing::kHalfSplit, parts.data(), 0, 2, 3, 48, 3 * 48);
    rope_apply(table, RopePairing::kHalfSplit, parts.data() + 2 * 3 * 48, 2, 3, 3, 48, 3 * 48);
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0);
    EXPECT_NE(whole, x);
  });
}

TEST(Rope, ATableGrowsAndShrinks) {
  RopeTable table;
  const std::vector<float> inverse = frequencies(8, 100.0);
  const std::vector<int32_t> many(1000, 3), one = {9};
  rope_build(table, many.data(), 1000, inverse.data(), 8, 2.0f);
  EXPECT_EQ(table.cosine.size(), 4000u);
  rope_build(table, one.data(), 1, inverse.data(), 8, 2.0f);
  ASSERT_EQ(table.rows, 1);
  EXPECT_NEAR(table.cosine[0], 2 * std::cos(9.0), 1e-6);
  EXPECT_NEAR(table.sine[0], 2 * std::sin(9.0), 1e-6);
}

}  // namespace
}  // namespace galvani::kernels
