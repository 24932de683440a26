// Products that finish to a gated activation, against f64 (qmatmul_cuda_testing.h).
#include "qmatmul_cuda_testing.h"

namespace galvani::kernels {
namespace {

/// Gate and up of one product, finished by it: the three gates, every tile, clusters that share K, tokens and row tiles
/// that end inside a block (three pairs, nine), strides, f16.
TEST_F(QmatmulCudaTest, SmallGatedProducts) {
  std::set<std::string> kernels;
  for (const auto& [inner, bits, scale] :
       {std::tuple{48, 4, DType::kBF16}, {144, 4, DType::kF16}, {64, 3, DType::kBF16}, {16, 8, DType::kF32}}) {
    const int64_t n = 2 * inner, k = 1056;
    const MemoryMatrix source = matrix(n, k, bits, 32, scale);
    const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
    for (const QmatmulGate& gate : kGates)
      for (Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
        for (const auto& [tokens, m, splits] : {std::tuple{64, 40, -1},
                                                {64, 65, -1},
                                                {128, 130, -1},
                                                {256, 5, -1},
                                                {256, 300, -1},
                                                {256, 200, 2},
                                                {64, 70, 3}}) {
          if (bits != 4 && gate.kind != Gate::kSilu) continue;
          product->options().tuning = {.tokens = tokens, .wgmma_splits = splits};
          const Layout layout{.x_pad = 8, .y_pad = m == 65 ? 8 : 0, .y_16 = true, .gate = gate};
          if (!can(QmatmulCudaArm::kWgmma, w, m, arithmetic, layout)) continue;
          const std::vector<float> x = random_x(m * k, arithmetic);
          const std::vector<float> y = run(w, x, m, arithmetic, layout);
          expect_gated(source, x, m, y, arithmetic, gate, 24);
          EXPECT_EQ(last_plan.wgmma.splits, 1) << "a gate needs whole sums, whatever was asked for";
          kernels.insert(last_plan.kernel());
          EXPECT_EQ(y, run(w, x, m, arithmetic, layout)) << "two runs differ";
          if (HasFailure()) return;
        }
  }
  product->options().tuning = {};
  for (const std::string& kernel : kernels) std::cout << kernel << "\n";
  std::cout << checked << " elements, worst error over bound " << worst << "\n";
  if (device->caps().has(Feature::kWgmma)) {
    EXPECT_GE(kernels.size(), 12u);
  }
}

/// What a gated product is refused for, and by whom.
TEST_F(QmatmulCudaTest, GatedProductsAreRefusedByName) {
  const int64_t n = 96, k = 256, m = 70;
  const MemoryMatrix source = matrix(n, k, 4, 64, DType::kBF16);
  const CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
  CudaMatrix odd = qmatmul_cuda_upload(*stream, source, 0, 80).value();
  const void* const x = reinterpret_cast<const void*>(uintptr_t{4096});
  void* const y = reinterpret_cast<void*>(uintptr_t{8192});
  const auto refusal = [&](const CudaMatrix& matrix, int64_t tokens, const CudaResult& out) {
    const Arithmetic arithmetic = device->caps().has(Feature::kBf16) ? Arithmetic::kBF16 : Arithmetic::kF16;
    const Status status = product->run(*stream, matrix, {x, tokens, k}, arithmetic, out);
    EXPECT_FALSE(status);
    return status ? "" : status.error().message;
  };
  const QmatmulGate silu = kGates[0];
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refusal(w, m, {y, n / 2, false, false, silu}), "has the type of x"));
  EXPECT_TRUE(has(refusal(odd, m, {y, 40, true, false, silu}), "whole tiles of 16 rows"));
  EXPECT_TRUE(has(refusal(w, m, {static_cast<char*>(y) + 2, n / 2, true, false, silu}), "multiples of 16 bytes"));
  EXPECT_TRUE(has(refusal(w, m, {y, n / 2 + 1, true, false, silu}), "multiples of 16 bytes"));
  EXPECT_TRUE(has(refusal(w, 3, {y, n / 2, true, false, silu}), "run the product, then the gate"));
  if (!device->caps().has(Feature::kWgmma)) return;
  EXPECT_TRUE(has(refusal(w, m, {y, n / 2, true, false, {1, Gate::kSigmoid, 0, 0}}), "sigmoid"));
}

TEST_F(QmatmulCudaTest, SmallGatedFloatCodes) {
  for (quant::MatrixKind kind : kFloatKinds) {
    const int64_t n = 96, k = kind == quant::MatrixKind::kNvfp4 ? 336 : 352;
    MemoryMatrix source = float_matrix(n, k, kind, random());
    CudaMatrix w = qmatmul_cuda_upload(*stream, source, 0, n).value();
    w.form.factor *= 0.5f;
    for (float& v : source.values_) v *= 0.5f;
    for (const QmatmulGate& gate : kGates)
      for (Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
        for (int64_t m : {70, 130}) {
          const Layout layout{.y_16 = true, .gate = gate};
          if (!can(QmatmulCudaArm::kWgmma, w, m, arithmetic, layout)) continue;
          const std::vector<float> x = random_x(m * k, arithmetic);
          expect_gated(source, x, m, run(w, x, m, arithmetic, layout), arithmetic, gate, 24);
          if (HasFailure()) return;
        }
  }
  if (device->caps().has(Feature::kWgmma)) {
    EXPECT_GT(checked, 0);
  }
}

}  // namespace
}  // namespace galvani::kernels
