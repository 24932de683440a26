// RMS norm on the GPU against f64.
#include "kernels/norm/norm_cuda.h"

#include "kernels/cuda_testing.h"
#include "kernels/norm/norm.h"

namespace galvani::kernels {
namespace {

class CudaSmallNorm : public OnGpu {};

/// x += post_norm(add + bias), y = norm(x): bounds from 1.05·u_out·|y| and f32 sums of squares (relative 2^-20).
TEST_F(CudaSmallNorm, EveryFormMatchesTheReference) {
  std::mt19937_64 random(fresh_seed());
  for (const int dim : {1, 31, 64, 576, 640, 704, 2112, 2880, 4095, 4096, 5120, 8193, 14336, 17408}) {
    for (const StoreType type : {StoreType::kF32, StoreType::kF16, StoreType::kBF16}) {
      for (const int form : {0, 1, 2, 3}) {  // plain; add; add with bias and post norm; no weight, gathered rows
        SCOPED_TRACE(testing::Message() << "dim " << dim << " type " << int(type) << " form " << form);
        const int rows = 5;
        const auto n = static_cast<size_t>(dim);
        const auto x = normal(random, rows * n, 3.0f), add = normal(random, rows * n), w = normal(random, n),
                   w2 = normal(random, n), bias = normal(random, n);
        const std::vector<int> gather = {4, 0, 2};
        auto dx = upload(x), dadd = upload(add), dw = upload(w), dw2 = upload(w2), dbias = upload(bias);
        auto dgather = upload(gather);
        NormArgs args{.x = dx.as<float>(), .x_stride = dim, .rows = rows, .dim = dim};
        args.norm = {form == 3 ? nullptr : dw.as<float>(), 1e-6f, dim % 2 == 0};
        if (form == 1 || form == 2) args.add = dadd.as<float>(), args.add_stride = dim;
        if (form == 2)
          args.bias = dbias.as<float>(), args.post = true, args.post_norm = {dw2.as<float>(), 1e-5f, false};
        if (form == 3) args.gather = dgather.as<int>(), args.rows = 3;
        auto out = poisoned(static_cast<size_t>(args.rows) * n, type);
        args.out = out.data(), args.out_stride = dim, args.out_type = type;
        if (dim * 4 > device->caps().smem_optin) {  // a row waits in shared memory: 7.5 has 64 KiB
          const Status refused = rms_norm_cuda(*stream, args);
          ASSERT_FALSE(refused.has_value());
          ASSERT_NE(refused.error().message.find("bytes of dynamic"), std::string::npos) << refused.error().message;
          continue;
        }
        ok(rms_norm_cuda(*stream, args));
        const auto got = read(out, type);

        std::vector<float> sum = x;
        if (form == 1 || form == 2) {
          std::vector<float> z = add;
          if (form == 2)
            for (size_t i = 0; i < z.size(); ++i) z[i] += bias[i % n];
          std::vector<double> post(z.begin(), z.end());
          if (form == 2) rms_norm_ref(z.data(), rows, dim, dim, w2.data(), {1e-5f, false}, post.data());
          const auto residual = download<float>(dx.data(), x.size());
          for (size_t i = 0; i < x.size(); ++i) {
            ASSERT_NEAR(residual[i], x[i] + post[i], 0x1p-20 * (std::fabs(post[i]) + std::fabs(x[i]))) << i;
            sum[i] = residual[i];
          }
        }
        std::vector<double> exact(x.size());
        rms_norm_ref(sum.data(), rows, dim, dim, form == 3 ? nullptr : w.data(), {1e-6f, dim % 2 == 0}, exact.data());
        for (int r = 0; r < args.rows; ++r) {
          const size_t from = static_cast<size_t>(form == 3 ? gather[static_cast<size_t>(r)] : r) * n;
          for (size_t i = 0; i < n; ++i) {
            const double y = exact[from + i], scale = std::fabs(w[i]) + 1;  // 1 + w may cancel
            ASSERT_NEAR(got[static_cast<size_t>(r) * n + i], y,
                        1.05 * store_unit(type) * std::fabs(y) + 0x1p-20 * std::fabs(y) +
                            0x1p-23 * scale * std::fabs(sum[from + i]) / (1e-3 + std::fabs(sum[from + i])) +
                            (type == StoreType::kF16 ? 0x1p-25 : 0))
                << "row " << r << " column " << i;
          }
        }
      }
    }
  }
}

/// A row's bits depend on the row alone: not on how many there are, nor on whether its address allows vectors.
TEST_F(CudaSmallNorm, ARowIsTheSameInEveryBatch) {
  std::mt19937_64 random(fresh_seed());
  for (const int dim : {31, 4096, 5120, 14336}) {
    const auto n = static_cast<size_t>(dim);
    const int rows = 7;
    const auto x = normal(random, rows * n, 3.0f), add = normal(random, rows * n), w = normal(random, n),
               post = normal(random, n), bias = normal(random, n);
    std::vector<std::vector<float>> results;
    for (const auto& [count, stride, first] : {std::tuple{rows, dim, 0}, {1, dim, 0}, {rows, dim + 3, 1}}) {
      const auto spread = [&](const std::vector<float>& values) {
        std::vector<float> wide(static_cast<size_t>(rows * stride + first), 1e30f);
        for (int r = 0; r < rows; ++r) std::copy_n(values.begin() + r * dim, dim, wide.begin() + first + r * stride);
        return wide;
      };
      std::vector<float> shifted(static_cast<size_t>(first), 1e30f);
      shifted.insert(shifted.end(), w.begin(), w.end());
      auto dx = upload(spread(x));
      const auto dadd = upload(spread(add)), dw = upload(shifted), dpost = upload(post), dbias = upload(bias);
      auto out = poisoned(static_cast<size_t>(rows * stride), StoreType::kBF16);
      NormArgs args{.x = dx.as<float>() + first, .x_stride = stride, .rows = count, .dim = dim};
      args.add = dadd.as<float>() + first, args.add_stride = stride;
      args.bias = dbias.as<float>(), args.post = true, args.post_norm = {dpost.as<float>(), 1e-6f, true};
      args.norm = {dw.as<float>() + first, 1e-6f, false};
      args.out = out.data(), args.out_stride = stride, args.out_type = StoreType::kBF16;
      ok(rms_norm_cuda(*this->stream, args));
      const auto got = read(out, StoreType::kBF16),
                 sum = download<float>(dx.data(), static_cast<size_t>(rows * stride));
      std::vector<float> first_row(got.begin(), got.begin() + dim);
      first_row.insert(first_row.end(), sum.begin() + first, sum.begin() + first + dim);
      for (int c = dim; c < stride; ++c) ASSERT_TRUE(std::isnan(got[static_cast<size_t>(c)])) << "between rows";
      results.push_back(std::move(first_row));
    }
    EXPECT_EQ(results[0], results[1]) << "dim " << dim << ": alone and in a batch of " << rows;
    EXPECT_EQ(results[0], results[2]) << "dim " << dim << ": from addresses without vectors";
  }
}

/// The form for many rows: the same bits, whatever a block's share of the rows is; and what it refuses.
TEST_F(CudaSmallNorm, ManyRowsHaveTheBitsOfFew) {
  std::mt19937_64 random(fresh_seed());
  for (const auto& [dim, rows] : {std::pair{4, 7}, {576, 4500}, {4096, 300}, {8192, 600}}) {
    const auto n = static_cast<size_t>(dim);
    const auto x = normal(random, static_cast<size_t>(rows) * n, 3.0f), w = normal(random, n);
    const auto dx = upload(x), dw = upload(w);
    for (const StoreType type : {StoreType::kF32, StoreType::kBF16}) {
      auto few = poisoned(x.size(), type), many = poisoned(x.size(), type);
      NormArgs args{.x = dx.as<float>(), .x_stride = dim, .rows = rows, .dim = dim};
      args.norm = {dim == 576 ? nullptr : dw.as<float>(), 1e-6f, dim == 8192};
      args.out_stride = dim, args.out_type = type;
      args.out = few.data();
      ok(rms_norm_cuda(*this->stream, args, RowsForm::kFew));
      args.out = many.data();
      ok(rms_norm_cuda(*this->stream, args, RowsForm::kMany));
      ASSERT_EQ(read(few, type), read(many, type)) << "dim " << dim << " type " << int(type);
      args.dim = dim - 1;
      const Status refused = rms_norm_cuda(*this->stream, args, RowsForm::kMany);
      ASSERT_FALSE(refused.has_value());
      EXPECT_NE(refused.error().message.find("vectors of four"), std::string::npos) << refused.error().message;
    }
  }
}

/// Columns of a wider matrix, in place (a norm over all heads of q): nothing beside them is touched.
TEST_F(CudaSmallNorm, NormsColumnsInPlace) {
  std::mt19937_64 random(fresh_seed());
  for (const auto& [dim, width, first] : {std::tuple{64, 192, 0},
                                          {2048, 4096, 2048},
                                          {31, 100, 7},
                                          {4096, 6144, 1024},
                                          {5120, 5130, 3},
                                          {14336, 14340, 4}}) {
    const int rows = 3;
    const auto x = normal(random, static_cast<size_t>(rows * width), 3.0f),
               w = normal(random, static_cast<size_t>(dim));
    auto dx = upload(x);
    const auto dw = upload(w);
    NormArgs args{.x = dx.as<float>() + first, .x_stride = width, .rows = rows, .dim = dim};
    args.norm = {dw.as<float>(), 1e-6f, false};
    args.out = args.x, args.out_stride = width;
    ok(rms_norm_cuda(*this->stream, args));
    const auto got = download<float>(dx.data(), x.size());
    std::vector<double> exact(static_cast<size_t>(rows * dim));
    rms_norm_ref(x.data() + first, rows, dim, width, w.data(), {1e-6f, false}, exact.data());
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(r * width + c);
        if (c < first || c >= first + dim) {
          ASSERT_EQ(got[at], x[at]) << "column " << c << " is not the norm's";
          continue;
        }
        const double y = exact[static_cast<size_t>(r * dim + c - first)];
        ASSERT_NEAR(got[at], y, 0x1p-20 * std::fabs(y) + 1e-30) << "row " << r << " column " << c;
      }
  }
}

}  // namespace
}  // namespace galvani::kernels
