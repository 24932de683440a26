#include "kernels/norm/norm.h"

#include "core/parallel.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {
namespace {

// Every term of Σ x² is positive, so 16 accumulators or one, the sum is within dim·u relative; random signs of the
// roundings make it √dim in practice. Half of it enters through the square root; 4 more roundings follow.
double bound(int64_t dim) { return (6 + 2 * std::sqrt(static_cast<double>(dim))) * kUnit; }

TEST(RmsNorm, MatchesF64) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    double worst = 0;
    for (int64_t dim : {1, 2, 7, 15, 16, 17, 63, 64, 65, 80, 96, 576, 640, 2880, 5376}) {
      for (int weights = 0; weights < 3; ++weights) {
        const int64_t rows = 5, stride = dim + 3;
        std::vector<float> x = normal(random, static_cast<size_t>(rows * stride));
        x[static_cast<size_t>(stride)] *= 1000.0f;  // an outlier in row 1
        x[static_cast<size_t>(2 * stride)] = 0.0f;  // what is exactly 0 has no relative error
        const std::vector<float> w = normal(random, static_cast<size_t>(dim));
        const float* weight = weights == 0 ? nullptr : w.data();
        const NormParams params{1e-6f, weights == 2};
        std::vector<double> exact(static_cast<size_t>(rows * dim));
        rms_norm_ref(x.data(), rows, dim, stride, weight, params, exact.data());
        GuardedBuffer y(static_cast<size_t>(rows * (dim + 2)));
        rms_norm(x.data(), rows, dim, stride, weight, params, y.data(), dim + 2);
        EXPECT_TRUE(y.guards_intact());
        std::vector<float> in_place = x;
        rms_norm(in_place.data(), rows, dim, stride, weight, params, in_place.data(), stride);
        std::vector<float> residual = normal(random, static_cast<size_t>(rows * dim)), before = residual;
        rms_norm_add(x.data(), rows, dim, stride, weight, params, residual.data(), dim);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < dim; ++i) {
            const size_t at = static_cast<size_t>(r * dim + i);
            const double got = y[static_cast<size_t>(r * (dim + 2) + i)];
            // 1 + w is rounded once, relative to its own size.
            const double off = std::fabs(got - exact[at]);
            const double error = off == 0 ? 0 : off / (std::fabs(exact[at]) * bound(dim));
            worst = std::max(worst, error);
            ASSERT_LT(error, 1.0) << "dim " << dim << " row " << r << " i " << i << " weights " << weights;
            ASSERT_EQ(in_place[static_cast<size_t>(r * stride + i)], y[static_cast<size_t>(r * (dim + 2) + i)]);
            ASSERT_EQ(residual[at], before[at] + y[static_cast<size_t>(r * (dim + 2) + i)]);
          }
          ASSERT_TRUE(y.untouched(static_cast<size_t>(r * (dim + 2) + dim)));
        }
      }
    }
    std::cout << "largest error " << worst << " of the bound\n";
  });
}

TEST(RmsNorm, RowsAreIndependentOfBatchAndThreads) {
  std::mt19937_64 random(fresh_seed());
  const int64_t rows = 200, dim = 333;
  const std::vector<float> x = normal(random, rows * dim), w = normal(random, dim);
  for_each_target([&] {
    GuardedBuffer alone(dim);
    for (int count : {1, 2, 3}) {
      set_threads(count);
      std::vector<float> all(rows * dim);
      rms_norm(x.data(), rows, dim, dim, w.data(), {}, all.data(), dim);
      for (int64_t r : {0, 1, 99, 199}) {
        rms_norm(x.data() + r * dim, 1, dim, dim, w.data(), {}, alone.data(), dim);
        ASSERT_EQ(std::memcmp(alone.data(), all.data() + r * dim, dim * sizeof(float)), 0) << r;
      }
    }
    set_threads(0);
  });
}

TEST(RmsNorm, NaNReachesItsRowOnlyAndZerosStayZero) {
  for_each_target([&] {
    std::vector<float> x(3 * 40, 0.0f), y(3 * 40, 1.0f);
    x[40 + 39] = NAN;
    rms_norm(x.data(), 3, 40, 40, nullptr, {}, y.data(), 40);
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(y[i], 0.0f);
      EXPECT_TRUE(std::isnan(y[40 + i]));
      EXPECT_EQ(y[80 + i], 0.0f);
    }
  });
}

}  // namespace
}  // namespace galvani::kernels
