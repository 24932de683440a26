#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/check_rig.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/op_checks.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul/qmatmul_cuda.h"
#include "kernels/qmatmul/qmatmul_cuda_bound.h"
#include "quant/affine.h"
#include "quant/fp_codec.h"
#include "quant/sources.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kN = 96, kK = 320;  // six row tiles (three pairs of a gated product), five units

struct Weights {
  quant::AffineTensor tensor;  ///< affine codes
  std::vector<float> values;   ///< float codes: the weights, exactly
  CudaMatrix packed;
};

Result<Weights> make_weights(CheckRig& rig, const A16Format& format) {
  Weights w;
  const DType type = format.scale == A16Scale::kBF16  ? DType::kBF16
                     : format.scale == A16Scale::kF16 ? DType::kF16
                                                      : DType::kF32;
  w.tensor = quant::make_affine_tensor(kN, kK, format.bits, format.group, type);
  const quant::AffineView& view = w.tensor.view;
  std::uniform_int_distribution<int> byte(0, 255);
  auto* codes = const_cast<std::byte*>(view.codes);
  for (int64_t i = 0; i < kN * view.row_code_bytes(); ++i) codes[i] = static_cast<std::byte>(byte(rig.random()));
  for (const std::byte* pairs : {view.scales, view.biases})
    for (int64_t i = 0; i < kN * view.groups(); ++i) {
      const float value = rig.normal(1, 0.1f)[0];
      auto* const at = const_cast<std::byte*>(pairs);
      if (type == DType::kF32) {
        std::memcpy(at + 4 * i, &value, 4);
      } else {
        const uint16_t half = type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        std::memcpy(at + 2 * i, &half, 2);
      }
    }
  w.packed.rows = kN, w.packed.cols = kK, w.packed.format = format;
  std::vector<std::byte> bytes(static_cast<size_t>(w.packed.packed_bytes()));
  a16_pack_tiles(view, w.packed.format, 0, a16_row_tiles(kN), bytes.data());
  GALVANI_TRY(const std::byte* data, rig.upload(bytes));
  w.packed.data = reinterpret_cast<const unsigned char*>(data);
  return w;
}

/// The largest E4M3 number that is not above |value|, with its sign. Codes drawn alike would make a sum of its few
/// largest terms, which the bound below is not made for.
std::byte e4m3_code(float value) {
  int code = 0;
  while (code < 126 && quant::e4m3(static_cast<uint8_t>(code + 1)) <= std::fabs(value)) ++code;
  return static_cast<std::byte>(code | (value < 0 ? 128 : 0));
}

/// Random codes and scales about 1 / 64.
Result<Weights> make_float_weights(CheckRig& rig, quant::MatrixKind kind) {
  const bool mxfp8 = kind == quant::MatrixKind::kMxfp8, nvfp4 = kind == quant::MatrixKind::kNvfp4;
  std::vector<std::byte> codes(static_cast<size_t>(kN * kK / (mxfp8 ? 1 : 2)));
  std::vector<std::byte> scales(static_cast<size_t>(kN * kK / (nvfp4 ? 16 : 32)));
  const std::vector<float> normal = rig.normal(codes.size(), 100.0f);
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = mxfp8 ? e4m3_code(normal[i]) : static_cast<std::byte>(rig.random()());
  // E4M3 with exponents 2^-6 to 2^-4, E8M0 2^-8 to 2^-6.
  for (std::byte& scale : scales)
    scale = static_cast<std::byte>(nvfp4 ? 8 + rig.random()() % 24 : 119 + rig.random()() % 3);
  Weights w;
  GALVANI_TRY(const auto source, quant::make_fp_source("check", kind, {codes, nullptr}, {scales, nullptr}, kN, kK));
  w.values.resize(kN * kK);
  GALVANI_TRY_VOID(source->dequant_rows(0, kN, w.values.data()));
  GALVANI_TRY(w.packed, qmatmul_cuda_upload(rig.stream(), *source, 0, kN));
  return w;
}

/// A group's scale or bias.
float group_value(const quant::AffineView& view, const std::byte* values, size_t i) {
  uint32_t bits = 0;
  const size_t bytes = view.scale_dtype == DType::kF32 ? 4 : 2;
  std::memcpy(&bits, values + bytes * i, bytes);
  if (view.scale_dtype == DType::kF32) return std::bit_cast<float>(bits);
  const auto half = static_cast<uint16_t>(bits);
  return view.scale_dtype == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

/// What a weight may be off by where it is rounded to 16 bits: kernels form scale · code + bias in one rounding, the
/// reference in two, so that within two units of f32 of a tie the two may round apart. All columns of a group with one
/// code share a value, hence a tie too.
double weight_slack(const Weights& w, int64_t row, int64_t column, float weight, StoreType type) {
  const quant::AffineView& view = w.tensor.view;
  const float bias = group_value(view, view.biases, static_cast<size_t>(row * view.groups() + column / view.group));
  const float off = 0x1p-23f * (std::fabs(weight - bias) + std::fabs(bias));
  return std::fabs(double{round_as(weight + off, type)} - round_as(weight - off, type));
}

struct Sum {
  double value = 0, bound = 0;
};

/// A matrix as the reference multiplies it.
struct Exact {
  std::vector<double> weights, slacks;  ///< [kN, kK]; slacks: where weights are rounded
  std::vector<float> scales, biases;    ///< of groups, for the arms for few tokens
  std::vector<uint32_t> codes;
};

/// few: no arm for few tokens rounds a weight, and none any float code.
Exact exact_of(const Weights& w, bool few, StoreType type) {
  Exact e;
  e.slacks.resize(kN * kK);
  if (!w.values.empty()) {
    e.weights.assign(w.values.begin(), w.values.end());
    return e;
  }
  const quant::AffineView& view = w.tensor.view;
  if (few) {
    for (size_t g = 0; g < static_cast<size_t>(kN * view.groups()); ++g) {
      e.scales.push_back(group_value(view, view.scales, g));
      e.biases.push_back(group_value(view, view.biases, g));
    }
    for (int64_t i = 0; i < kN * kK; ++i)
      e.codes.push_back(quant::affine_code(view.codes + i / kK * view.row_code_bytes(), view.bits, i % kK));
    return e;
  }
  std::vector<float> values(kN * kK);
  quant::affine_dequant_rows(view, 0, kN, values.data());
  for (int64_t i = 0; i < kN * kK; ++i) {
    const float value = values[static_cast<size_t>(i)];
    e.weights.push_back(round_as(value, type));
    e.slacks[static_cast<size_t>(i)] = weight_slack(w, i / kK, i % kK, value, type);
  }
  return e;
}

/// What rounding each weight apart may do to a row's product: what weight_slack says of each, or if that is more one
/// unit of the largest product.
double rounding_slack(std::span<const double> weights, std::span<const double> slacks, std::span<const float> x,
                      StoreType type) {
  double slack = 0, largest = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    slack += slacks[c] * std::fabs(x[c]);
    largest = std::max(largest, std::fabs(weights[c] * x[c]));
  }
  return std::max(slack, 2 * store_roundoff(type) * largest);
}

/// [m, kN] in f64, and what a result may be off by: what qmatmul_cuda_bound.h says of the arm's sums, 1.05·u·|y| twice
/// (the result, and before it the factor of float codes), and for arms that round each weight rounding_slack.
std::vector<Sum> exact_sums(const Weights& w, const std::vector<float>& x, int64_t m, const QmatmulCudaPlan& plan,
                            const DeviceCaps& caps, StoreType type) {
  const TensorCore core = tensor_core(caps);
  const bool few = qmatmul_cuda_is_few(plan.arm), floats = !w.values.empty();
  const Exact e = exact_of(w, few, type);
  const A16Format& format = w.packed.format;
  const auto groups = static_cast<size_t>(w.tensor.view.codes == nullptr ? 0 : w.tensor.view.groups());
  const auto chains = qmatmul_cuda_chains(plan, static_cast<int>(a16_units(kK)));
  std::vector<Sum> sums;
  for (int64_t t = 0; t < m; ++t) {
    const std::span<const float> in(x.data() + t * kK, kK);
    for (int64_t row = 0; row < kN; ++row) {
      const auto r = static_cast<size_t>(row);
      const auto weights = [&] { return std::span(e.weights).subspan(r * kK, kK); };
      BoundedSum sum;
      if (few && !floats)
        sum =
            few_affine_sum({std::span(e.codes).subspan(r * kK, kK), std::span(e.scales).subspan(r * groups, groups),
                            std::span(e.biases).subspan(r * groups, groups), format.bits, format.group, row % 16 >= 8},
                           in, plan.arithmetic, core);
      else if (few || (floats && plan.arm == QmatmulCudaArm::kMma))
        sum = scaled_sum(weights(), in, kA16Cols / a16_subgroups(format.group), core);
      else
        sum = chained_sum(weights(), in, chains, core);
      const double slack =
          few || floats ? 0 : rounding_slack(weights(), std::span(e.slacks).subspan(r * kK, kK), in, type);
      sums.push_back({sum.value, (floats ? 2.1 : 1.05) * 0x1p-24 * std::fabs(sum.value) + sum.error() + slack + 1e-30});
    }
  }
  return sums;
}

/// Largest error over its bound.
double compare(const std::vector<Sum>& sums, const std::vector<float>& y) {
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double share = std::fabs(y[i] - sums[i].value) / sums[i].bound;
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return worst;
}

/// The same of silu(gate)·up in `type`: silu's slope is below 1.13; 20u for the gate's own roundings. What f16 cannot
/// hold (8-bit codes give sums of some thousands) must be infinite, with its sign.
double compare_gated(const std::vector<Sum>& sums, const std::vector<float>& y, StoreType type) {
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t gate_at = i / (kN / 2) * kN + i % (kN / 2);
    const Sum &g = sums[gate_at], &u = sums[gate_at + kN / 2];
    const double act = silu_ref(g.value), exact = act * u.value;
    const double bound = (1.05 * store_roundoff(type) + 20 * 0x1p-24) * std::fabs(exact) +
                         1.13 * g.bound * (std::fabs(u.value) + u.bound) + std::fabs(act) * u.bound +
                         (type == StoreType::kF16 ? 0x1p-25 : 1e-37);
    constexpr double kF16Infinite = 65520;  // half-way beyond the largest number
    if (type == StoreType::kF16 && std::isinf(y[i]) && std::fabs(exact) + bound >= kF16Infinite &&
        std::signbit(y[i]) == std::signbit(exact))
      continue;
    const double share = std::fabs(y[i] - exact) / bound;
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return worst;
}

struct Case {
  size_t format = 0;  ///< of kFormats
  Arithmetic arithmetic = Arithmetic::kBF16;
  QmatmulCudaArm arm = QmatmulCudaArm::kMma;
  int64_t m = 1;
  QmatmulCudaTuning tuning;
  bool gated = false;
  QmatmulCudaPlan plan;
};

constexpr int64_t kWorkspace = kN * kK * 2;

/// Those with scales of another type, and in groups of 32, are for the kernels that have them in their name.
constexpr A16Format kFormats[] = {{2, 32},
                                  {3, 32},
                                  {4, 32},
                                  {5, 32},
                                  {6, 32},
                                  {8, 32},
                                  {2},
                                  {3},
                                  {4},
                                  {5},
                                  {6},
                                  {8},
                                  kA16Mxfp4,
                                  kA16Nvfp4,
                                  kA16Mxfp8,
                                  {2, 64, A16Scale::kF16},
                                  {3, 64, A16Scale::kF16},
                                  {4, 64, A16Scale::kF16},
                                  {5, 64, A16Scale::kF16},
                                  {6, 64, A16Scale::kF16},
                                  {8, 64, A16Scale::kF16},
                                  {2, 64, A16Scale::kF32},
                                  {3, 64, A16Scale::kF32},
                                  {4, 64, A16Scale::kF32},
                                  {5, 64, A16Scale::kF32},
                                  {6, 64, A16Scale::kF32},
                                  {8, 64, A16Scale::kF32}};

/// Numbers of tokens, and what a plan would not choose by itself.
std::vector<std::pair<int64_t, QmatmulCudaTuning>> launches_of(QmatmulCudaArm arm) {
  switch (arm) {
    case QmatmulCudaArm::kFewBulk: return {{1, {.chunk = 4, .one = 1}}, {1, {.chunk = 8, .one = 1}}, {3, {}}};
    case QmatmulCudaArm::kStream: return {{12, {.tokens = 16}}, {30, {.tokens = 32}}, {40, {.tokens = 64}}};
    case QmatmulCudaArm::kWgmma:
      return {{40, {.tokens = 64, .wgmma_splits = 1}},
              {130, {.tokens = 128, .wgmma_splits = 1}},
              {130, {.tokens = 128, .wgmma_splits = 2}},
              {300, {.tokens = 256, .wgmma_splits = 1}}};
    default: return {{3, {}}, {130, {}}};
  }
}

Result<Weights> make_weights_of(CheckRig& rig, const A16Format& format) {
  switch (weight_kind_of(format)) {
    case WeightKind::kMxfp4: return make_float_weights(rig, quant::MatrixKind::kMxfp4);
    case WeightKind::kNvfp4: return make_float_weights(rig, quant::MatrixKind::kNvfp4);
    case WeightKind::kMxfp8: return make_float_weights(rig, quant::MatrixKind::kMxfp8);
    default: return make_weights(rig, format);
  }
}

/// Every format, arithmetic, arm and tile that this part runs. The scales above leave float codes exact in both types.
std::vector<Case> cases_of(const DeviceCaps& caps) {
  std::vector<Case> cases;
  for (size_t format = 0; format < std::size(kFormats); ++format)
    for (const Arithmetic arithmetic : {Arithmetic::kF16, Arithmetic::kBF16})
      for (int arm = 0; arm < kQmatmulCudaArms; ++arm)
        for (const auto& [m, tuning] : launches_of(static_cast<QmatmulCudaArm>(arm))) {
          Case c{format, arithmetic, static_cast<QmatmulCudaArm>(arm), m, tuning, false, {}};
          const bool named = c.arm == QmatmulCudaArm::kStream || kFormats[format].code != A16Code::kAffine;
          if ((kFormats[format].scale != A16Scale::kBF16 || kFormats[format].group < 64) && !named) continue;
          QmatmulCudaProblem p;
          p.m = m, p.n = kN, p.k = kK, p.format = kFormats[format], p.kind = weight_kind_of(p.format);
          p.arithmetic = arithmetic;
          p.workspace_bytes = kWorkspace, p.forced = arm, p.tuning = tuning;
          c.plan = qmatmul_cuda_plan(caps, p);
          if (c.plan.ok) cases.push_back(c);
          p.gated = p.y_16 = c.gated = true;
          c.plan = qmatmul_cuda_plan(caps, p);
          if (c.plan.ok) cases.push_back(c);
        }
  return cases;
}

/// The kernel that a case is about: of two, the second.
std::string name_of(const QmatmulCudaPlan& plan) {
  return plan.arm == QmatmulCudaArm::kWgmma && plan.wgmma.splits > 1 ? plan.parts_kernel() : plan.kernel();
}

/// By its name in the plan that run() makes; a launch under another one would be a kernel without a verdict.
Result<KernelVerdict> check_one(CheckRig& rig, QmatmulCuda& product, const Weights& w, const Case& c) {
  const StoreType type = c.arithmetic == Arithmetic::kF16 ? StoreType::kF16 : StoreType::kBF16;
  product.options().forced = static_cast<int>(c.arm);
  product.options().tuning = c.tuning;
  std::vector<float> x = rig.normal(static_cast<size_t>(c.m * kK));
  CudaActivations in{.m = c.m, .stride = kK};
  GALVANI_TRY(in.data, rig.upload_as(x, type));
  const int64_t width = c.gated ? kN / 2 : kN;
  const StoreType out_type = c.gated ? type : StoreType::kF32;
  GALVANI_TRY(void* y, rig.output(static_cast<size_t>(c.m * width), out_type));
  CudaResult out{.data = y, .stride = width, .as_x = c.gated};
  if (c.gated) out.gate = {1, Gate::kSilu, 0, 0};
  const QmatmulCudaPlan plan = product.plan(w.packed, in, c.arithmetic, out);
  GALVANI_TRY_VOID(product.run(rig.stream(), w.packed, in, c.arithmetic, out));
  GALVANI_TRY(const auto got, rig.read(y, static_cast<size_t>(c.m * width), out_type));
  const std::vector<Sum> sums = exact_sums(w, x, c.m, plan, rig.device().caps(), type);
  return KernelVerdict{name_of(plan), c.gated ? compare_gated(sums, got, type) : compare(sums, got),
                       fmt::format("96 x 320, {} tokens{}", c.m, c.gated ? ", silu(gate)·up" : "")};
}

}  // namespace

std::vector<std::string> checked_qmatmul(const DeviceCaps& caps) {
  std::vector<std::string> names;
  for (const Case& c : cases_of(caps)) names.push_back(name_of(c.plan));
  return names;
}

Result<std::vector<KernelVerdict>> check_qmatmul(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  QmatmulCuda::Options options;
  options.expand_bytes = kWorkspace;
  GALVANI_TRY(const auto product, QmatmulCuda::create(device.shared_from_this(), options));
  std::map<size_t, Weights> weights;  // by index of kFormats
  std::vector<KernelVerdict> verdicts;
  for (const Case& c : cases_of(device.caps())) {
    auto& w = weights[c.format];
    if (w.packed.data == nullptr) {
      GALVANI_TRY(w, make_weights_of(rig, kFormats[c.format]));
    }
    GALVANI_TRY(verdicts.emplace_back(), check_one(rig, *product, w, c));
  }
  return verdicts;
}

}  // namespace galvani::kernels
