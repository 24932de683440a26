#pragma once
/// Every CUDA arm against f64 from the stored bits, within 1.05·u_out·|y| and what qmatmul_cuda_bound.h says of its
/// sums, with the roundings that the contract names (x; for the many-token arms each weight once) applied to the
/// operands first. The many-token arms' weights pass through f32, so a weight may round the other way at a tie: one
/// unit of the largest product is added for them. Outputs are NaN before each run, with guard bands around them.
#include "kernels/qmatmul/qmatmul_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "kernel_testing.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/qmatmul/qmatmul_cuda_bound.h"
#include "qmatmul_source.h"

namespace galvani::kernels {

using testing::MemoryMatrix;
using testing::round_to;
using testing::Scales;

inline constexpr QmatmulCudaArm kArms[] = {
    QmatmulCudaArm::kFewBulk, QmatmulCudaArm::kFewAsync, QmatmulCudaArm::kFewPlain, QmatmulCudaArm::kStream,
    QmatmulCudaArm::kWgmma,   QmatmulCudaArm::kExpand,   QmatmulCudaArm::kMma};

/// A number of tokens that is many for `arm`.
inline int64_t many_for(QmatmulCudaArm arm) {
  return qmatmul_cuda_is_few(arm) ? 8 : arm == QmatmulCudaArm::kStream ? 50 : 130;
}

inline DType type_of(Arithmetic a) { return a == Arithmetic::kF16 ? DType::kF16 : DType::kBF16; }
inline uint16_t bits_of(Arithmetic a, float v) { return a == Arithmetic::kF16 ? f32_to_f16(v) : f32_to_bf16(v); }

struct Layout {
  int64_t x_pad = 0, y_pad = 0, x_offset = 0;  ///< elements
  bool y_16 = false;
  QmatmulGate gate{};
  int64_t width(int64_t rows) const { return gate.on ? rows / 2 : rows; }  ///< of y
};

inline constexpr QmatmulGate kGates[] = {
    {1, Gate::kSilu, 0, 0}, {1, Gate::kGeluTanh, 0, 0}, {1, Gate::kSwigluClamped, 1.702f, 2.0f}};

inline double gate_ref(const QmatmulGate& gate, double g, double u) {
  switch (gate.kind) {
    case Gate::kSilu: return silu_ref(g) * u;
    case Gate::kGeluTanh: return gelu_tanh_ref(g) * u;
    case Gate::kSwigluClamped: return swiglu_clamped_ref(g, u, gate.alpha, gate.limit);
    default: return NAN;
  }
}

class QmatmulCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto state = cuda::driver_state(); state.kind != cuda::DriverState::Kind::kReady)
      GTEST_SKIP() << state.message;
    auto opened = cuda::CudaDevice::open(0);
    ASSERT_TRUE(opened) << opened.error().message;
    device = *opened;
    stream = std::make_unique<cuda::Stream>(cuda::Stream::create(*device).value());
    QmatmulCuda::Options options;
    options.expand_bytes = int64_t{17408} * 5120 * 2;
    auto created = QmatmulCuda::create(device, options);
    ASSERT_TRUE(created) << created.error().message;
    product = std::move(*created);
    random.seed(fresh_seed());
  }

  std::vector<float> random_x(int64_t n, Arithmetic arithmetic) {
    std::vector<float> x = normal(random, static_cast<size_t>(n));
    for (float& v : x) v = round_to(type_of(arithmetic), v);
    return x;
  }
  MemoryMatrix matrix(int64_t n, int64_t k, int bits, int group, DType scale) {
    return MemoryMatrix::affine_random(n, k, bits, group, scale, Scales::kFree, random());
  }

  /// y of one run, [m, n] without padding; checks the guard bands and that everything was written.
  std::vector<float> run(const CudaMatrix& w, const std::vector<float>& x, int64_t m, Arithmetic arithmetic,
                         const Layout& layout = {}) {
    const int64_t width = layout.width(w.rows);
    const int64_t x_stride = w.cols + layout.x_pad, y_stride = width + layout.y_pad, size = layout.y_16 ? 2 : 4;
    std::vector<uint16_t> hx(static_cast<size_t>(layout.x_offset + m * x_stride), uint16_t{0x7fff});
    for (int64_t t = 0; t < m; ++t)
      for (int64_t c = 0; c < w.cols; ++c)
        hx[static_cast<size_t>(layout.x_offset + t * x_stride + c)] =
            bits_of(arithmetic, x[static_cast<size_t>(t * w.cols + c)]);
    auto dx = cuda::DeviceBuffer::allocate(*device, hx.size() * 2, "x").value();
    const size_t y_bytes = static_cast<size_t>(m * y_stride * size), guard = 512;
    auto dy = cuda::DeviceBuffer::allocate(*device, y_bytes + 2 * guard, "y").value();
    EXPECT_TRUE(stream->to_device(dx.data(), hx.data(), hx.size() * 2));
    EXPECT_TRUE(stream->fill(dy.data(), 0xff, dy.size()));
    const CudaActivations in{dx.as<uint16_t>() + layout.x_offset, m, x_stride};
    const CudaResult out{dy.as<char>() + guard, y_stride, layout.y_16, false, layout.gate};
    last_plan = product->plan(w, in, arithmetic, out);
    ++ran[last_plan.few.one && last_plan.arm == QmatmulCudaArm::kFewBulk ? "one"
                                                                         : qmatmul_cuda_arm_name(last_plan.arm)];
    const Status status = product->run(*stream, w, in, arithmetic, out);
    EXPECT_TRUE(status) << status.error().message;
    std::vector<unsigned char> bytes(dy.size());
    EXPECT_TRUE(stream->to_host(bytes.data(), dy.data(), bytes.size()));
    EXPECT_TRUE(stream->synchronize());
    std::vector<float> y(static_cast<size_t>(m * width));
    size_t touched = 0;
    for (size_t i = 0; i < guard; ++i) touched += bytes[i] != 0xff || bytes[guard + y_bytes + i] != 0xff;
    for (int64_t t = 0; t < m; ++t)
      for (int64_t r = 0; r < y_stride; ++r) {
        const unsigned char* from = bytes.data() + guard + (t * y_stride + r) * size;
        if (r >= width) {
          for (int64_t i = 0; i < size; ++i) touched += from[i] != 0xff;
          continue;
        }
        uint16_t half;
        std::memcpy(&half, from, 2);
        float& to = y[static_cast<size_t>(t * width + r)];
        if (size == 4)
          std::memcpy(&to, from, 4);
        else
          to = arithmetic == Arithmetic::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
      }
    EXPECT_EQ(touched, 0u) << "bytes outside the output were written";
    return y;
  }

  /// Rows to check: all of a small matrix, else the first and last and a random choice.
  std::vector<int64_t> rows_to_check(int64_t n, int64_t most) {
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < n; ++r)
      if (n <= most || r < 17 || r >= n - 17) rows.push_back(r);
    while (n > most && static_cast<int64_t>(rows.size()) < most)
      rows.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(n)));
    return rows;
  }

  /// The sum of a row's products as last_plan adds it. w: its weights as they enter the product.
  BoundedSum bounded(const MemoryMatrix& source, int64_t r, std::span<const double> w, std::span<const float> x,
                     std::span<const std::vector<int>> chains, Arithmetic arithmetic) const {
    const bool floats = source.kind() != quant::MatrixKind::kAffine, few = qmatmul_cuda_is_few(last_plan.arm);
    const TensorCore core = tensor_core(device->caps());
    const A16Format& format = last_plan.format;
    if (floats && (few || last_plan.arm == QmatmulCudaArm::kMma))
      return scaled_sum(w, x, kA16Cols / a16_subgroups(format.group), core);
    if (!few) return chained_sum(w, x, chains, core);
    const auto k = static_cast<size_t>(source.cols()), row = static_cast<size_t>(r),
               groups = k / static_cast<size_t>(source.group());
    const auto first = source.codes_.begin() + static_cast<std::ptrdiff_t>(row * k);
    const std::vector<uint32_t> codes(first, first + static_cast<std::ptrdiff_t>(k));
    return few_affine_sum({codes, std::span(source.scales_).subspan(row * groups, groups),
                           std::span(source.biases_).subspan(row * groups, groups), format.bits,
                           static_cast<int>(source.group()), r % kA16Rows >= kA16Rows / 2},
                          x, arithmetic, core);
  }

  /// any_order: the bound that holds for every order of a sum and all data, K·u·Σ|w·x|.
  void expect_product(const MemoryMatrix& source, const std::vector<float>& x, int64_t m, const std::vector<float>& y,
                      Arithmetic arithmetic, const Layout& layout, int64_t most_rows, bool any_order = false) {
    // Float codes are exact in every arm that takes them.
    const bool floats = source.kind() != quant::MatrixKind::kAffine;
    const bool few = qmatmul_cuda_is_few(last_plan.arm), exact = few || floats;
    const DType type = type_of(arithmetic);
    const int64_t n = source.rows(), k = source.cols();
    const auto chains = qmatmul_cuda_chains(last_plan, static_cast<int>(a16_units(k)));
    const double u = 0x1p-24;
    const double u_weight = arithmetic == Arithmetic::kF16 ? 0x1p-10 : 0x1p-7;
    const double u_out = layout.y_16 ? u_weight / 2 : u;
    std::vector<double> w(static_cast<size_t>(k));
    size_t failures = 0;
    for (int64_t r : rows_to_check(n, most_rows)) {
      for (int64_t c = 0; c < k; ++c) {
        const auto at = static_cast<size_t>(r * k + c), g = at / static_cast<size_t>(source.group());
        // The exact value; f32 arithmetic would already round.
        if (floats)
          w[static_cast<size_t>(c)] = source.values_[at];
        else
          w[static_cast<size_t>(c)] =
              few ? static_cast<double>(source.scales_[g]) * source.codes_[at] + source.biases_[g]
                  : round_to(type, source.weight_fused(r, c));
      }
      for (int64_t t = 0; t < m; ++t) {
        double sum = 0, size = 0, largest = 0;
        for (int64_t c = 0; c < k; ++c) {
          const double p = w[static_cast<size_t>(c)] * x[static_cast<size_t>(t * k + c)];
          sum += p, size += std::fabs(p), largest = std::max(largest, std::fabs(p));
        }
        const double got = y[static_cast<size_t>(t * n + r)];
        const std::span<const float> token(x.data() + t * k, static_cast<size_t>(k));
        const double sums =
            any_order ? static_cast<double>(k) * u * size
                      : bounded(source, r, w, token, chains, arithmetic).error() + (floats ? u * std::fabs(sum) : 0);
        const double bound = 1.05 * u_out * std::fabs(sum) + sums + (exact ? 0 : u_weight * largest) + 1e-30;
        const double error = std::fabs(got - sum) / bound;
        worst = std::max(worst, error);
        ++checked;
        if (!(error <= 1) && ++failures <= 4)
          ADD_FAILURE() << last_plan.kernel() << " m " << m << " row " << r << " token " << t << ": " << got << ", f64 "
                        << sum << ", error over bound " << error;
      }
    }
    ASSERT_EQ(failures, 0u) << last_plan.kernel() << " [" << n << ", " << k << "], m " << m;
  }

  /// Whether `arm` can run this here; says so once a reason.
  bool can(QmatmulCudaArm arm, const CudaMatrix& w, int64_t m, Arithmetic arithmetic, const Layout& layout = {}) {
    product->options().forced = static_cast<int>(arm);
    const CudaActivations in{
        reinterpret_cast<const void*>(uintptr_t{4096} + static_cast<uintptr_t>(layout.x_offset) * 2), m,
        w.cols + layout.x_pad};
    return product->plan(w, in, arithmetic, {nullptr, layout.width(w.rows), layout.y_16, false, layout.gate}).ok;
  }

  /// Arms of this part that ran fewer products than they should: one that always declines would pass every comparison.
  /// The floors are for 9.0, with the kernel of one token apart as "one"; elsewhere each arm the part has must have
  /// run.
  void expect_ran(std::initializer_list<std::pair<const char*, int>> floors) {
    const DeviceCaps& caps = device->caps();
    for (const auto& [arm, count] : ran) std::cout << arm << ": " << count << " products\n";
    for (const auto& [arm, floor] : floors) {
      const std::string name = arm;
      const Features needs = name == "wgmma" || name == "stream"   ? Features(Feature::kWgmma)
                             : name == "few-bulk" || name == "one" ? Feature::kBulkCopy | Feature::kCluster
                             : name == "few-async"                 ? Features(Feature::kCpAsync)
                                                                   : Features(Feature::kLdmatrix);
      if (!caps.has(needs)) continue;
      EXPECT_GE(ran[name], caps.has(Feature::kWgmma) ? floor : 1) << name;
    }
  }

  struct Sum {
    double value = 0, error = 0;
  };
  /// x's row t times row r in f64, weights rounded once, and what f32 sums may make of it (expect_product's terms).
  Sum sum_of(const MemoryMatrix& source, const std::vector<float>& x, int64_t t, int64_t r, Arithmetic arithmetic) {
    const bool floats = source.kind() != quant::MatrixKind::kAffine;
    const int64_t k = source.cols();
    double largest = 0;
    Sum sum;
    std::vector<double> weights(static_cast<size_t>(k));
    for (int64_t c = 0; c < k; ++c) {
      double& w = weights[static_cast<size_t>(c)];
      w = floats ? source.values_[static_cast<size_t>(r * k + c)]
                 : round_to(type_of(arithmetic), source.weight_fused(r, c));
      const double p = w * x[static_cast<size_t>(t * k + c)];
      sum.value += p, largest = std::max(largest, std::fabs(p));
    }
    const double u = 0x1p-24, u_weight = arithmetic == Arithmetic::kF16 ? 0x1p-10 : 0x1p-7;
    const auto chains = qmatmul_cuda_chains(last_plan, static_cast<int>(a16_units(k)));
    const std::span<const float> token(x.data() + t * k, static_cast<size_t>(k));
    sum.error = (floats ? 2.05 : 1.05) * u * std::fabs(sum.value) +
                bounded(source, r, weights, token, chains, arithmetic).error() + (floats ? 0 : u_weight * largest);
    return sum;
  }

  /// A gated result of `source`'s rows. Every gate's slope is below 1.13, so that errors of the sums grow by that; the
  /// gate's own roundings are below 20u + 6u·|z| (elementwise_cuda_test.cpp), |z| at most 90.
  void expect_gated(const MemoryMatrix& source, const std::vector<float>& x, int64_t m, const std::vector<float>& y,
                    Arithmetic arithmetic, const QmatmulGate& gate, int64_t most_rows) {
    const int64_t inner = source.rows() / 2;
    const double u_out = arithmetic == Arithmetic::kF16 ? 0x1p-11 : 0x1p-8;
    size_t failures = 0;
    for (int64_t r : rows_to_check(inner, most_rows))
      for (int64_t t = 0; t < m; ++t) {
        const Sum g = sum_of(source, x, t, r, arithmetic), u = sum_of(source, x, t, inner + r, arithmetic);
        const double exact = gate_ref(gate, g.value, u.value), by_g = std::fabs(gate_ref(gate, g.value, 0));
        const double up = std::fabs(u.value) + u.error + 1, act = std::max(std::fabs(g.value), by_g);
        const double bound = (1.05 * u_out + 560 * 0x1p-24) * std::fabs(exact) + 1.13 * g.error * up +
                             (act + g.error) * u.error + (arithmetic == Arithmetic::kF16 ? 0x1p-25 : 1e-37);
        const double error = std::fabs(y[static_cast<size_t>(t * inner + r)] - exact) / bound;
        worst = std::max(worst, error);
        ++checked;
        if (!(error <= 1) && ++failures <= 4)
          ADD_FAILURE() << last_plan.kernel() << " gate " << int(gate.kind) << " m " << m << " row " << r << " token "
                        << t << ": " << y[static_cast<size_t>(t * inner + r)] << ", f64 " << exact
                        << ", error over bound " << error;
      }
    ASSERT_EQ(failures, 0u) << last_plan.kernel() << " [" << source.rows() << ", " << source.cols() << "], m " << m;
  }

  std::shared_ptr<cuda::CudaDevice> device;
  std::unique_ptr<cuda::Stream> stream;
  std::unique_ptr<QmatmulCuda> product;
  std::mt19937_64 random;
  QmatmulCudaPlan last_plan;
  std::map<std::string, int> ran;  ///< products by arm
  double worst = 0;
  int64_t checked = 0;
};

inline constexpr quant::MatrixKind kFloatKinds[] = {quant::MatrixKind::kMxfp4, quant::MatrixKind::kNvfp4,
                                                    quant::MatrixKind::kMxfp8};
/// Scales about as far apart as models have them.
inline MemoryMatrix float_matrix(int64_t n, int64_t k, quant::MatrixKind kind, uint64_t seed) {
  const int lowest = kind == quant::MatrixKind::kMxfp8 ? -16 : -8;
  return MemoryMatrix::float_random(n, k, kind, lowest, lowest + 3, MemoryMatrix::Codes::kNormal, seed);
}

}  // namespace galvani::kernels
