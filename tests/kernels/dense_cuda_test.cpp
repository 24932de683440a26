// Dense products through cuBLASLt (cuda/blas.h) against f64: types, strides, adding, the factor; what lies between the
// rows of y stays as it was.
#include "cuda/blas.h"

#include <fmt/format.h>

#include "kernels/cuda_testing.h"

namespace galvani::kernels {
namespace {

struct DenseCase {
  int64_t m, n, k;
  StoreType in, out;
  bool add;
  float factor;
  int64_t pad;  ///< elements between rows, of all three
};

class CudaSmallDense : public OnGpu {
 protected:
  void check(const DenseCase& c, std::mt19937_64& random) {
    SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k << ", in " << int(c.in) << ", out "
                                    << int(c.out) << ", add " << c.add << ", factor " << c.factor << ", pad " << c.pad);
    const int64_t stride = c.k + c.pad, y_stride = c.n + c.pad;
    std::vector<float> x = normal(random, static_cast<size_t>(c.m * stride)),
                       w = normal(random, static_cast<size_t>(c.n * stride)),
                       before = normal(random, static_cast<size_t>(c.m * y_stride), 10.0f);
    for (float& v : x) v = rounded(v, c.in);
    for (float& v : w) v = rounded(v, c.in);
    for (float& v : before) v = rounded(v, c.out);
    const auto dx = upload(stored_bytes(x, c.in)), dw = upload(stored_bytes(w, c.in));
    const std::vector<unsigned char> held = stored_bytes(before, c.out);
    Poisoned y = poisoned(before.size(), c.out);
    if (c.add) ok(stream->to_device(y.data(), held.data(), held.size()));
    cuda::DenseProduct product{.m = c.m, .n = c.n, .k = c.k};
    product.x = dx.data(), product.x_stride = stride, product.w = dw.data(), product.w_stride = stride;
    product.y = y.data(), product.y_stride = y_stride, product.in = dtype_of(c.in), product.out = dtype_of(c.out);
    product.add = c.add, product.factor = c.factor;
    ok(blas->multiply(*stream, product, workspace.data()));
    const std::vector<float> got = read(y, c.out);
    // Every case is counted to its end: a GPU is not always at hand to ask again.
    int64_t outside = 0, disturbed = 0;
    double worst = 0;
    std::string first;
    for (int64_t t = 0; t < c.m; ++t)
      for (int64_t r = 0; r < y_stride; ++r) {
        const auto at = static_cast<size_t>(t * y_stride + r);
        if (r >= c.n) {
          disturbed += c.add ? got[at] != before[at] : !std::isnan(got[at]);
          continue;
        }
        double sum = 0, size = 0;
        for (int64_t i = 0; i < c.k; ++i) {
          const double p = double{x[static_cast<size_t>(t * stride + i)]} * w[static_cast<size_t>(r * stride + i)];
          sum += p, size += std::fabs(p);
        }
        sum *= c.factor, size *= std::fabs(c.factor);
        if (c.add) sum += before[at], size += std::fabs(before[at]);
        // Partial sums may be added in any grouping, and truncated (eight products at a time at worst).
        const double bound = 1.05 * store_unit(c.out) * std::fabs(sum) +
                             4 * std::max(1.5, std::sqrt(static_cast<double>(c.k)) / 8) * kUnit * size + 1e-30;
        const double error = std::fabs(got[at] - sum);
        if (!(error <= bound) && ++outside == 1)
          first = fmt::format("token {}, row {}: {} instead of {}, allowed {}", t, r, got[at], sum, bound);
        worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error / bound);
        ++compared;
      }
    EXPECT_EQ(outside, 0) << "worst " << worst << " of its bound; " << first;
    EXPECT_EQ(disturbed, 0) << "between the rows";
  }
  void SetUp() override {
    OnGpu::SetUp();
    if (!device) return;
    auto made = cuda::Blas::create(*device);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    blas = std::move(*made);
    auto memory = cuda::DeviceBuffer::allocate(*device, cuda::Blas::kWorkspaceBytes, "test");
    ASSERT_TRUE(memory.has_value()) << memory.error().message;
    workspace = std::move(*memory);
  }
  std::unique_ptr<cuda::Blas> blas;
  cuda::DeviceBuffer workspace;
  int64_t compared = 0;
};

TEST_F(CudaSmallDense, MultipliesLikeF64) {
  std::mt19937_64 random(fresh_seed());
  const std::tuple<int64_t, int64_t, int64_t> shapes[] = {{1, 16, 64}, {5, 72, 136}, {33, 704, 2112}, {65, 48, 1000}};
  for (const StoreType in : {StoreType::kBF16, StoreType::kF16, StoreType::kF32}) {
    if (in == StoreType::kBF16 && !device->caps().has(Feature::kBf16)) continue;
    for (const auto& [m, n, k] : shapes)
      for (const StoreType out : {StoreType::kF32, in})
        for (const bool add : {false, true})
          for (const int64_t pad : {0, 8}) {
            if (add && out != StoreType::kF32) continue;  // refused, below
            check({m, n, k, in, out, add, add ? 0.375f : 1.0f, pad}, random);
            if (HasFatalFailure()) return;
          }
  }
  EXPECT_GT(compared, 100000);
}

TEST_F(CudaSmallDense, TwoRunsAgreeAndWhatItCannotDoIsRefused) {
  std::mt19937_64 random(fresh_seed());
  const StoreType type = StoreType::kF16;
  const auto x = upload(stored_bytes(normal(random, 7 * 512), type)),
             w = upload(stored_bytes(normal(random, 96 * 512), type));
  cuda::DenseProduct product{.m = 7, .n = 96, .k = 512};
  product.x = x.data(), product.x_stride = 512, product.w = w.data(), product.w_stride = 512;
  product.y_stride = 96, product.in = DType::kF16;
  std::vector<std::vector<float>> runs;
  for (int i = 0; i < 2; ++i) {
    Poisoned y = poisoned(7 * 96, StoreType::kF32);
    product.y = y.data();
    ok(blas->multiply(*stream, product, workspace.data()));
    runs.push_back(read(y, StoreType::kF32));
  }
  EXPECT_EQ(runs[0], runs[1]);
  const auto refused = [&](const std::string& part) {
    const Status status = blas->multiply(*stream, product, workspace.data());
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  product.out = DType::kF16, product.add = true;
  refused("added onto f16");
  product.out = DType::kF32, product.add = false, product.m = 0;
  refused("0 × 96 × 512");
}

}  // namespace
}  // namespace galvani::kernels
