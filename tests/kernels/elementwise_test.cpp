#include "kernels/elementwise/elementwise.h"

#include "core/parallel.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {
namespace {

/// |got − exact| in units in the last place of the exact f32 value; results below 1e-36 may be 0.
double ulps(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : INFINITY;
  if (std::fabs(exact) > std::numeric_limits<float>::max()) return std::isinf(got) && got * exact > 0 ? 0 : INFINITY;
  if (std::fabs(got - exact) <= 1e-36) return 0;
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::fabs(got - exact) / std::ldexp(1.0, exponent - 23);
}

/// Values over all magnitudes, dense where activations live, with the special ones first.
std::vector<float> arguments(std::mt19937_64& random) {
  std::vector<float> x = {0.0f,   -0.0f,  INFINITY, NAN,    1e30f,  -1e30f, 88.7f,
                          -88.7f, 104.0f, -104.0f,  1e-40f, 0.625f, 20.0f};
  const std::vector<float> common = normal(random, 100000, 3.0f), wide = normal(random, 20000, 40.0f);
  x.insert(x.end(), common.begin(), common.end());
  x.insert(x.end(), wide.begin(), wide.end());
  for (int e = -30; e < 8; ++e)
    for (float f : normal(random, 500)) x.push_back(std::ldexp(f, e));
  return x;
}

using Gated = void (*)(const float*, const float*, int64_t, int64_t, int64_t, int64_t, float*, int64_t);

template <typename Ref>
void check_gated(const char* name, Gated run, Ref ref, double limit) {
  std::mt19937_64 random(fresh_seed());
  const std::vector<float> gate = arguments(random);
  const std::vector<float> up(gate.size(), 1.0f);  // the product with u is one more rounding, exact for 1
  for_each_target([&] {
    double worst = 0;
    float at = 0;
    GuardedBuffer out(gate.size());
    const int64_t n = static_cast<int64_t>(gate.size());
    run(gate.data(), up.data(), 1, n, n, n, out.data(), n);
    EXPECT_TRUE(out.guards_intact());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double error = ulps(out[i], ref(gate[i]));
      if (error > worst) worst = error, at = gate[i];
      ASSERT_LE(error, limit) << name << '(' << gate[i] << ") = " << out[i] << ", exactly " << ref(gate[i]);
    }
    std::cout << name << ": at most " << worst << " ulp, at " << at << '\n';
  });
}

TEST(Elementwise, SwiGlu) {
  check_gated(
      "silu", swiglu, [](float g) { return silu_ref(g); }, 4);
}
// The argument of the exponential, up to 88 in size, is rounded: 88·2u relative in the tail, hence the larger bound.
TEST(Elementwise, GeGluTanh) {
  check_gated(
      "gelu_tanh", geglu_tanh, [](float g) { return gelu_tanh_ref(g); }, 300);
}
TEST(Elementwise, SigmoidMul) {
  check_gated(
      "sigmoid", sigmoid_mul, [](float g) { return 1.0 / (1.0 + std::exp(-double{g})); }, 4);
}

TEST(Elementwise, GeGluTanhIsTightWhereItMatters) {
  std::mt19937_64 random(fresh_seed());
  const std::vector<float> g = normal(random, 50000), u(g.size(), 1.0f);
  for_each_target([&] {
    std::vector<float> y(g.size());
    const int64_t n = static_cast<int64_t>(g.size());
    geglu_tanh(g.data(), u.data(), 1, n, n, n, y.data(), n);
    for (size_t i = 0; i < g.size(); ++i)
      ASSERT_LE(std::fabs(y[i] - gelu_tanh_ref(g[i])), 4 * kUnit * std::max(std::fabs(double{g[i]}), 1e-3)) << g[i];
  });
}

TEST(Elementwise, SwiGluClamped) {
  std::mt19937_64 random(fresh_seed());
  const std::vector<float> g = normal(random, 20011, 5.0f), u = normal(random, 20011, 5.0f);
  const int64_t n = static_cast<int64_t>(g.size());
  for_each_target([&] {
    GuardedBuffer out(g.size());
    swiglu_clamped(g.data(), u.data(), 1, n, n, n, 1.702f, 7.0f, out.data(), n);
    EXPECT_TRUE(out.guards_intact());
    for (size_t i = 0; i < g.size(); ++i) {
      const double exact = swiglu_clamped_ref(g[i], u[i], double{1.702f}, 7.0);
      // exp's argument is rounded once: |1.702·g|·u relative.
      const double limit = kUnit * (10 + 2 * std::fabs(1.702 * g[i])) * std::fabs(exact);
      ASSERT_LE(std::fabs(out[i] - exact), limit + 1e-36) << g[i] << ' ' << u[i];
    }
    const float bad[2] = {NAN, 1.0f};
    float y[2];
    swiglu_clamped(bad, bad + 1, 1, 1, 1, 1, 1.702f, 7.0f, y, 1);
    swiglu_clamped(bad + 1, bad, 1, 1, 1, 1, 1.702f, 7.0f, y + 1, 1);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  });
}

TEST(Elementwise, SoftCap) {
  std::mt19937_64 random(fresh_seed());
  std::vector<float> x = arguments(random);
  x.push_back(-INFINITY);
  for_each_target([&] {
    for (float cap : {1.0f, 30.0f, 50.0f}) {
      GuardedBuffer y(x.size());
      std::copy(x.begin(), x.end(), y.data());
      softcap(y.data(), static_cast<int64_t>(x.size()), cap);
      EXPECT_TRUE(y.guards_intact());
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = ulps(y[i], softcap_ref(x[i], cap));
        worst = std::max(worst, error);
        ASSERT_LE(error, 4) << x[i] << " capped at " << cap;
      }
      std::cout << "softcap " << cap << ": at most " << worst << " ulp\n";
    }
  });
}

TEST(Elementwise, PlacesDoNotMatter) {
  // Any split into rows, strides, tails and threads gives the same bits.
  std::mt19937_64 random(fresh_seed());
  const int64_t rows = 7, dim = 5003;
  const std::vector<float> g = normal(random, rows * dim), u = normal(random, rows * dim);
  for_each_target([&] {
    for (Gated run : {Gated{swiglu}, Gated{geglu_tanh}, Gated{sigmoid_mul}}) {
      set_threads(1);
      std::vector<float> flat(rows * dim);
      run(g.data(), u.data(), 1, rows * dim, rows * dim, rows * dim, flat.data(), rows * dim);
      set_threads(3);
      GuardedBuffer strided(rows * (dim + 9));
      run(g.data(), u.data(), rows, dim, dim, dim, strided.data(), dim + 9);
      EXPECT_TRUE(strided.guards_intact());
      std::vector<float> in_place = g;
      run(in_place.data(), u.data(), rows, dim, dim, dim, in_place.data(), dim);
      set_threads(0);
      for (int64_t r = 0; r < rows; ++r) {
        ASSERT_EQ(std::memcmp(strided.data() + r * (dim + 9), flat.data() + r * dim, dim * 4), 0);
        ASSERT_EQ(std::memcmp(in_place.data() + r * dim, flat.data() + r * dim, dim * 4), 0);
        for (int64_t i = dim; i < dim + 9; ++i) ASSERT_TRUE(strided.untouched(static_cast<size_t>(r * (dim + 9) + i)));
      }
    }
  });
}

TEST(Elementwise, ExactOnes) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    for (int64_t n : {1, 7, 16, 17, 80, 20000}) {
      const std::vector<float> x = normal(random, static_cast<size_t>(n)), y = normal(random, static_cast<size_t>(n));
      std::vector<float> sum = x, bias = x, scaled = x, clamped = x;
      add(sum.data(), y.data(), n);
      add_bias(bias.data(), 1, n, n, y.data());
      scale(scaled.data(), n, 25.25f);
      clamp(clamped.data(), n, -0.5f, 0.75f);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(sum[i], x[i] + y[i]);
        ASSERT_EQ(bias[i], x[i] + y[i]);
        ASSERT_EQ(scaled[i], x[i] * 25.25f);
        ASSERT_EQ(clamped[i], std::min(std::max(x[i], -0.5f), 0.75f));
      }
    }
    float nan = NAN;
    clamp(&nan, 1, 0.0f, 1.0f);
    EXPECT_TRUE(std::isnan(nan));
    std::vector<float> rows(3 * 10, 1.0f);
    const std::vector<float> bias = {1, 2, 3, 4};
    add_bias(rows.data(), 3, 4, 10, bias.data());
    for (size_t i = 0; i < 30; ++i) EXPECT_EQ(rows[i], i % 10 < 4 ? 1.0f + bias[i % 10] : 1.0f);
  });
}

TEST(Argmax, FirstOfTheLargest) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    for (int64_t n : {1, 2, 15, 16, 17, 63, 64, 65, 1000, 262144}) {
      std::vector<float> x = normal(random, static_cast<size_t>(n));
      const int64_t a = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
      const int64_t b = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
      x[static_cast<size_t>(a)] = x[static_cast<size_t>(b)] = 100.0f;
      ASSERT_EQ(argmax(x.data(), n), std::min(a, b));
      x[static_cast<size_t>(a)] = NAN;
      ASSERT_EQ(argmax(x.data(), n), -1);
      std::fill(x.begin(), x.end(), -INFINITY);
      ASSERT_EQ(argmax(x.data(), n), 0);
      x[static_cast<size_t>(a)] = -1e30f;
      ASSERT_EQ(argmax(x.data(), n), a);
    }
    const float zeros[2] = {-0.0f, 0.0f};
    EXPECT_EQ(argmax(zeros, 2), 0);
    EXPECT_EQ(argmax(zeros, 0), -1);
  });
}

}  // namespace
}  // namespace galvani::kernels
