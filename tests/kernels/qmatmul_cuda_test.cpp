// Every CUDA arm against f64 (qmatmul_cuda_testing.h).
#include "qmatmul_cuda_testing.h"

namespace galvani::kernels {
namespace {

TEST_F(QmatmulCudaTest, EveryFormatOnEveryArm) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {16, 32, 64, 128})
      for (DType scale : {DType::kBF16, DType::kF16, DType::kF32}) {
        const int64_t n = 136, k = 640;
        const MemoryMatrix source = matrix(n, k, bits, group, scale);
        const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
        for (Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
          for (QmatmulCudaArm arm : kArms)
            for (int64_t m : {1, 8, 40, 65}) {
              if (!can(arm, w, m, arithmetic)) continue;
              const std::vector<float> x = random_x(m * k, arithmetic);
              expect_product(source, x, m, run(w, x, m, arithmetic), arithmetic, {}, 48);
              if (HasFailure()) return;
            }
      }
  std::cout << checked << " elements, worst error over bound " << worst << "\n";
  expect_ran({{"few-bulk", 170},
              {"one", 80},
              {"few-async", 250},
              {"few-plain", 100},
              {"stream", 432},
              {"wgmma", 576},
              {"expand", 576},
              {"mma", 576}});
}

TEST_F(QmatmulCudaTest, RealShapesAtEveryTokenCount) {
  const std::pair<int64_t, int64_t> shapes[] = {{704, 2112},  {2112, 704},   {2816, 2880}, {2880, 2816},
                                                {5120, 2560}, {1024, 17408}, {48, 2048},   {248320, 128}};
  for (const auto& [n, k] : shapes) {
    const int group = k % 64 == 0 ? 64 : 32;
    const MemoryMatrix source = matrix(n, k, 4, group, DType::kBF16);
    const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
    for (int64_t m : {1, 2, 7, 8, 9, 16, 63, 64, 65, 128, 300}) {
      if (m > 16 && n > 200000) continue;
      const std::vector<float> x = random_x(m * k, Arithmetic::kBF16);
      product->options().forced = -1;
      expect_product(source, x, m, run(w, x, m, Arithmetic::kBF16), Arithmetic::kBF16, {}, m > 16 ? 40 : 80);
      if (m == 8 || m == 65)
        for (QmatmulCudaArm arm : kArms) {
          if (!can(arm, w, m, Arithmetic::kBF16)) continue;
          expect_product(source, x, m, run(w, x, m, Arithmetic::kBF16), Arithmetic::kBF16, {}, 40);
        }
      if (HasFailure()) return;
    }
  }
  expect_ran(
      {{"few-bulk", 20}, {"one", 4}, {"few-async", 4}, {"stream", 8}, {"wgmma", 15}, {"expand", 15}, {"mma", 15}});
  std::cout << checked << " elements, worst error over bound " << worst << "\n";
}

/// The widths and the type of scales that the shapes above lack: one token, few and many, the first two on every arm.
TEST_F(QmatmulCudaTest, RealShapesOfOtherWidthsWithF32Scales) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{2880, 2880}, {704, 2816}})
    for (const int bits : {8, 3, 2}) {
      const MemoryMatrix source = matrix(n, k, bits, 64, DType::kF32);
      const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
      for (const int64_t m : {1, 16, 128}) {
        const std::vector<float> x = random_x(m * k, Arithmetic::kBF16);
        product->options().forced = -1;
        expect_product(source, x, m, run(w, x, m, Arithmetic::kBF16), Arithmetic::kBF16, {}, 40);
        for (QmatmulCudaArm arm : kArms) {
          if (m > 16 || !can(arm, w, m, Arithmetic::kBF16)) continue;
          expect_product(source, x, m, run(w, x, m, Arithmetic::kBF16), Arithmetic::kBF16, {}, 40);
        }
        if (HasFailure()) return;
      }
    }
  expect_ran({{"few-bulk", 2}, {"one", 4}, {"few-async", 4}, {"stream", 6}, {"wgmma", 6}, {"expand", 6}, {"mma", 6}});
  std::cout << checked << " elements, worst error over bound " << worst << "\n";
}

TEST_F(QmatmulCudaTest, StridesOffsetsAndShortOutputs) {
  const int64_t n = 100, k = 1000 - 1000 % 32;
  const MemoryMatrix source = matrix(n, k, 5, 32, DType::kF16);
  const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
  for (const Layout& layout :
       {Layout{3, 5, 0, false}, Layout{0, 0, 1, false}, Layout{8, 1, 8, false}, Layout{0, 4, 0, true}})
    for (QmatmulCudaArm arm : kArms)
      for (int64_t m : {2, 70}) {
        if (!can(arm, w, m, Arithmetic::kF16, layout)) continue;
        const std::vector<float> x = random_x(m * k, Arithmetic::kF16);
        expect_product(source, x, m, run(w, x, m, Arithmetic::kF16, layout), Arithmetic::kF16, layout, n);
        if (HasFailure()) return;
      }
  EXPECT_GT(checked, 0);
}

TEST_F(QmatmulCudaTest, OneHotInputsGiveTheWeightsThemselves) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    const int64_t n = 32, k = 128;
    const MemoryMatrix source = matrix(n, k, bits, 64, DType::kBF16);
    const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
    for (QmatmulCudaArm arm : kArms) {
      const int64_t step = qmatmul_cuda_is_few(arm) ? 8 : arm == QmatmulCudaArm::kStream ? 64 : k;
      if (!can(arm, w, step, Arithmetic::kBF16)) continue;
      for (int64_t first = 0; first < k; first += step) {
        std::vector<float> x(static_cast<size_t>(step * k));
        for (int64_t t = 0; t < step; ++t) x[static_cast<size_t>(t * k + first + t)] = 1;
        const std::vector<float> y = run(w, x, step, Arithmetic::kBF16);
        for (int64_t t = 0; t < step; ++t)
          for (int64_t r = 0; r < n; ++r) {
            const float got = y[static_cast<size_t>(t * n + r)], exact = source.weight_fused(r, first + t);
            if (qmatmul_cuda_is_few(arm))
              ASSERT_NEAR(got, exact, 0x1p-20 * (1 << bits) * 0.03)
                  << bits << " bits, row " << r << " column " << first + t;
            else
              ASSERT_EQ(got, round_to(DType::kBF16, exact)) << bits << " bits, row " << r << " column " << first + t;
          }
      }
    }
  }
}

TEST_F(QmatmulCudaTest, RowsAreIndependentAndRunsRepeatBitForBit) {
  const int64_t n = 2112, k = 2816;
  const MemoryMatrix source = matrix(n, k, 4, 64, DType::kBF16);
  const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
  for (QmatmulCudaArm arm : kArms) {
    const int64_t m = many_for(arm);
    if (!can(arm, w, m, Arithmetic::kBF16)) continue;
    const std::vector<float> x = random_x(m * k, Arithmetic::kBF16);
    const std::vector<float> first = run(w, x, m, Arithmetic::kBF16), second = run(w, x, m, Arithmetic::kBF16);
    EXPECT_EQ(first, second) << qmatmul_cuda_arm_name(arm) << ": two runs differ";
    // The rows in another order, and one of them replaced by what breaks sums that mix.
    std::vector<float> turned(x.size());
    for (int64_t t = 0; t < m; ++t) std::copy_n(x.begin() + t * k, k, turned.begin() + (t + 1) % m * k);
    std::fill_n(turned.begin() + 3 * k, k, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> y = run(w, turned, m, Arithmetic::kBF16);
    for (int64_t t = 0; t < m; ++t) {
      if ((t + 1) % m == 3) continue;
      ASSERT_TRUE(std::equal(first.begin() + t * n, first.begin() + (t + 1) * n, y.begin() + (t + 1) % m * n))
          << qmatmul_cuda_arm_name(arm) << ": row " << t << " depends on its place or its neighbours";
    }
  }
}

TEST_F(QmatmulCudaTest, AddsToWhatIsThere) {
  for (const auto& [n, k, parts] :
       {std::tuple<int64_t, int64_t, int>{96, 256, -1}, {196, 64, -1}, {198, 64, -1}, {198, 1088, 2}, {96, 1088, 3}}) {
    const MemoryMatrix source = matrix(n, k, 4, 64, DType::kBF16);
    const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
    for (QmatmulCudaArm arm : kArms) {
      const int64_t m = qmatmul_cuda_is_few(arm) ? 5 : 33;
      product->options().tuning = {};
      if (arm == QmatmulCudaArm::kWgmma) product->options().tuning.wgmma_splits = parts;
      if (!can(arm, w, m, Arithmetic::kBF16)) continue;
      const std::vector<float> x = random_x(m * k, Arithmetic::kBF16), plain = run(w, x, m, Arithmetic::kBF16);
      std::vector<uint16_t> hx;
      for (float v : x) hx.push_back(f32_to_bf16(v));
      auto dx = cuda::DeviceBuffer::allocate(*device, hx.size() * 2, "x").value();
      auto dy = cuda::DeviceBuffer::allocate(*device, plain.size() * 4, "y").value();
      ASSERT_TRUE(stream->to_device(dx.data(), hx.data(), hx.size() * 2));
      const std::vector<float> before = normal(random, plain.size());
      ASSERT_TRUE(stream->to_device(dy.data(), before.data(), before.size() * 4));
      const Status status = product->run(*stream, w, {dx.data(), m, k}, Arithmetic::kBF16, {dy.data(), n, false, true});
      ASSERT_TRUE(status) << status.error().message;
      std::vector<float> after(plain.size());
      ASSERT_TRUE(stream->to_host(after.data(), dy.data(), after.size() * 4));
      ASSERT_TRUE(stream->synchronize());
      for (size_t i = 0; i < plain.size(); ++i)
        ASSERT_NEAR(after[i], before[i] + plain[i], 1e-6 * (1 + std::fabs(after[i]))) << qmatmul_cuda_arm_name(arm);
      if (arm == QmatmulCudaArm::kWgmma && parts > 0) {
        EXPECT_EQ(last_plan.wgmma.splits, parts);
      }
    }
  }
  product->options().tuning = {};
}

TEST_F(QmatmulCudaTest, FloatCodesAtRealShapes) {
  const std::pair<int64_t, int64_t> shapes[] = {{2880, 2880}, {704, 2112}, {48, 2048}};
  for (quant::MatrixKind kind : kFloatKinds)
    for (const auto& [n, k] : shapes) {
      const MemoryMatrix source = float_matrix(n, k, kind, random());
      const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
      for (int64_t m : {1, 7, 8, 9, 65, 130}) {
        const std::vector<float> x = random_x(m * k, Arithmetic::kBF16);
        product->options().forced = -1;
        expect_product(source, x, m, run(w, x, m, Arithmetic::kBF16), Arithmetic::kBF16, {}, 40);
        if (m == 8 || m == 65)
          for (QmatmulCudaArm arm : kArms) {
            if (!can(arm, w, m, Arithmetic::kBF16)) continue;
            expect_product(source, x, m, run(w, x, m, Arithmetic::kBF16), Arithmetic::kBF16, {}, 40);
          }
        if (HasFailure()) return;
      }
    }
  std::cout << checked << " elements, worst error over bound " << worst << "\n";
}

TEST_F(QmatmulCudaTest, OneHotInputsGiveFloatWeightsExactly) {
  for (quant::MatrixKind kind : kFloatKinds) {
    const int64_t n = 32, k = 192;
    // All that an E4M3 scale can be, and E8M0 scales as far apart as f16 allows.
    const bool nvfp4 = kind == quant::MatrixKind::kNvfp4, mxfp8 = kind == quant::MatrixKind::kMxfp8;
    const int lowest = nvfp4 ? -9 : -23, highest = nvfp4 ? 8 : mxfp8 ? -1 : 1;
    const MemoryMatrix source =
        MemoryMatrix::float_random(n, k, kind, lowest, highest, MemoryMatrix::Codes::kUniform, random());
    const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
    for (Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
      for (QmatmulCudaArm arm : kArms) {
        const int64_t step = qmatmul_cuda_is_few(arm) ? 8 : k;
        if (!can(arm, w, step, arithmetic)) continue;
        for (int64_t first = 0; first < k; first += step) {
          std::vector<float> x(static_cast<size_t>(step * k));
          for (int64_t t = 0; t < step; ++t) x[static_cast<size_t>(t * k + first + t)] = 1;
          const std::vector<float> y = run(w, x, step, arithmetic);
          for (int64_t t = 0; t < step; ++t)
            for (int64_t r = 0; r < n; ++r)
              ASSERT_EQ(y[static_cast<size_t>(t * n + r)], source.weight(r, first + t))
                  << last_plan.kernel() << " row " << r << " column " << first + t;
        }
      }
  }
}

/// Scales further apart than f16 reaches, and a factor that is no power of two.
TEST_F(QmatmulCudaTest, FloatScalesFarApartAndAFactor) {
  const int64_t n = 48, k = 256;
  for (quant::MatrixKind kind : {quant::MatrixKind::kMxfp4, quant::MatrixKind::kMxfp8}) {
    const MemoryMatrix wide = MemoryMatrix::float_random(n, k, kind, -50, -4, MemoryMatrix::Codes::kUniform, random());
    const CudaMatrix w = qmatmul_cuda_upload(*stream, wide, 0, n).value();
    for (QmatmulCudaArm arm : {QmatmulCudaArm::kWgmma, QmatmulCudaArm::kExpand})
      EXPECT_FALSE(can(arm, w, 65, Arithmetic::kF16)) << qmatmul_cuda_arm_name(arm);
    for (Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
      for (QmatmulCudaArm arm : kArms)
        for (int64_t m : {5, 65}) {
          if (!can(arm, w, m, arithmetic)) continue;
          const std::vector<float> x = random_x(m * k, arithmetic);
          expect_product(wide, x, m, run(w, x, m, arithmetic), arithmetic, {}, n, true);
          if (HasFailure()) return;
        }
  }
  MemoryMatrix source = float_matrix(n, k, quant::MatrixKind::kNvfp4, random());
  CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
  const float factor = 0x1.7p-5f;  // few bits, so that the products below are exact in f32
  w.form.factor *= factor;
  for (float& v : source.values_) v *= factor;
  for (QmatmulCudaArm arm : kArms)
    for (int64_t m : {5, 65}) {
      if (!can(arm, w, m, Arithmetic::kBF16)) continue;
      const std::vector<float> x = random_x(m * k, Arithmetic::kBF16);
      expect_product(source, x, m, run(w, x, m, Arithmetic::kBF16), Arithmetic::kBF16, {}, n);
    }
  EXPECT_GT(checked, 0);
}

/// Launches that no plan chooses by itself: what `galvani bench --kernels --tune` would run must be right as well.
TEST_F(QmatmulCudaTest, TunedLaunches) {
  std::set<std::string> kernels;
  const Arithmetic arithmetic = device->caps().has(Feature::kBf16) ? Arithmetic::kBF16 : Arithmetic::kF16;
  for (const auto& [bits, group, scale] :
       {std::tuple{4, 64, DType::kBF16}, {2, 32, DType::kF16}, {3, 16, DType::kBF16}, {8, 128, DType::kF32}}) {
    const int64_t n = 200, k = 1056;
    const MemoryMatrix source = matrix(n, k, bits, group == 128 || group == 64 ? 32 : group, scale);
    const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
    for (QmatmulCudaArm arm :
         {QmatmulCudaArm::kFewBulk, QmatmulCudaArm::kFewAsync, QmatmulCudaArm::kFewPlain, QmatmulCudaArm::kStream})
      for (int64_t m : {1, 6, 30})
        for (int split : {0, 1, 2})
          for (int variant : {0, 1, 2}) {
            QmatmulCudaTuning tuning;
            tuning.split_log2 = split;
            tuning.ahead = variant + 1;
            if (variant > 0) tuning.stages = variant + 1, tuning.step = 3 * variant;
            tuning.chunk = variant == 1 ? 8 : 4;
            tuning.one = variant == 2 ? 0 : 1;
            tuning.tokens = variant == 1 ? 32 : variant == 2 ? 64 : -1;
            product->options().tuning = tuning;
            if (!can(arm, w, m, arithmetic)) continue;
            const std::vector<float> x = random_x(m * k, arithmetic);
            expect_product(source, x, m, run(w, x, m, arithmetic), arithmetic, {}, 60);
            kernels.insert(last_plan.kernel());
            if (HasFailure()) return;
          }
  }
  // Tiles of 128 rows whose K several blocks share.
  const MemoryMatrix source = matrix(300, 1056, 4, 32, DType::kBF16);
  const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, 300).value();
  for (int tokens : {64, 128, 256})
    for (int splits : {2, 3, 4}) {
      product->options().tuning = {.tokens = tokens, .wgmma_splits = splits};
      if (!can(QmatmulCudaArm::kWgmma, w, 200, Arithmetic::kBF16)) continue;
      const std::vector<float> x = random_x(200 * 1056, Arithmetic::kBF16);
      const std::vector<float> y = run(w, x, 200, Arithmetic::kBF16);
      expect_product(source, x, 200, y, Arithmetic::kBF16, {}, 60);
      // Seventeen units in whole stages: where a part would be left empty, nothing is shared.
      if (tokens == 256 || (tokens == 128 && splits < 4)) {
        EXPECT_EQ(last_plan.wgmma.splits, splits) << tokens;
      }
      EXPECT_EQ(y, run(w, x, 200, Arithmetic::kBF16)) << "two runs differ";
      const Layout layout{0, 4, 0, true};
      expect_product(source, x, 200, run(w, x, 200, Arithmetic::kBF16, layout), Arithmetic::kBF16, layout, 60);
    }
  product->options().tuning = {};
  // Before 9.0 there is one arm for few tokens: all four widths from 8.0 on, 8 bits not on 7.5.
  EXPECT_GE(kernels.size(), device->caps().has(Feature::kWgmma) ? 16u : 3u);
}

}  // namespace
}  // namespace galvani::kernels
