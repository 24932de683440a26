#include "bench/kernel_tune.h"

#include <fmt/format.h>

#include <set>

#include "bench/kernel_session.h"
#include "kernels/probe/probe.h"
#include "kernels/qmatmul/qmatmul_cuda.h"

namespace galvani::bench {
namespace {

constexpr int64_t kExpandFrom = 64, kMmaFrom = 9;  // tokens

using kernels::QmatmulCudaArm;
using kernels::QmatmulCudaPlan;
using kernels::QmatmulCudaProblem;
using kernels::QmatmulCudaTuning;

/// What the expand arm may hold: nothing where nobody would expand.
int64_t expand_bytes(const KernelCase& c) { return c.m >= kExpandFrom ? c.n * c.k * 2 : 0; }

QmatmulCudaProblem problem_of(const KernelCase& c, kernels::Arithmetic arithmetic) {
  QmatmulCudaProblem p;
  p.m = c.m, p.n = c.n, p.k = c.k, p.format = c.format, p.arithmetic = arithmetic;
  p.x_aligned = c.k % 8 == 0;
  p.workspace_bytes = expand_bytes(c);
  return p;
}

std::string launch_of(const QmatmulCudaPlan& plan) {
  std::string text = plan.kernel();
  if (plan.cluster > 1) text += fmt::format(" ×{}", plan.cluster);
  if (plan.arm == QmatmulCudaArm::kStream) {
    const kernels::QmatmulStreamArgs& a = plan.stream.args;
    return text + fmt::format(" {}×{} of {} tiles, step {}, {} stages, {} ahead", a.columns, a.parts, a.pass_tiles,
                              a.step, a.stages, a.ahead);
  }
  if (kernels::qmatmul_cuda_is_few(plan.arm))
    return text + fmt::format(" {} slots, {} ahead", plan.few.args.stages, plan.few.args.ahead);
  if (plan.wgmma.splits > 1) text += fmt::format(" {} parts", plan.wgmma.splits);
  return text + fmt::format(" {} stages", plan.wgmma.stages);
}

std::vector<QmatmulCudaTuning> tunings_of(QmatmulCudaArm arm, const KernelCase& c) {
  std::vector<QmatmulCudaTuning> all{{}};
  const auto vary = [&](int QmatmulCudaTuning::*field, std::initializer_list<int> values) {
    std::vector<QmatmulCudaTuning> more;
    for (const QmatmulCudaTuning& t : all)
      for (int value : values) more.push_back(t), more.back().*field = value;
    all = std::move(more);
  };
  if (arm == QmatmulCudaArm::kWgmma) {
    vary(&QmatmulCudaTuning::tokens, {64, 128, 256});
    vary(&QmatmulCudaTuning::wgmma_splits, {1, 2, 3, 4});
  } else if (arm == QmatmulCudaArm::kFewBulk) {
    vary(&QmatmulCudaTuning::split_log2, {0, 1, 2});
    vary(&QmatmulCudaTuning::stages, {4, 3, 2});
    vary(&QmatmulCudaTuning::ahead, {1, 2, 4});
    if (c.m == 1) vary(&QmatmulCudaTuning::one, {1, 0}), vary(&QmatmulCudaTuning::chunk, {4, 8});
  } else if (arm == QmatmulCudaArm::kStream) {
    vary(&QmatmulCudaTuning::tokens, {16, 32, 64});
    vary(&QmatmulCudaTuning::split_log2, {0, 1, 2});
    vary(&QmatmulCudaTuning::step, {2, 4, 8});
    vary(&QmatmulCudaTuning::ahead, {1, 3});
  }
  return all;
}

/// The code and the pair of (row, column) out of A16 units, by the layout's own tables.
struct A16Reader {
  const std::byte* units;
  A16Format format;

  double weight(int64_t unit, int row, int col, bool exact, kernels::Arithmetic arithmetic) const {
    const std::byte* const at = units + unit * kernels::a16_unit_bytes(format);
    const kernels::A16Place place = kernels::a16_place(row, col);
    unsigned code = 0;
    for (int bit = 0; bit < format.bits; ++bit) {
      const kernels::A16Bit from = kernels::a16_bit(format.bits, place.pair, place.half, bit);
      uint32_t word;
      std::memcpy(&word, at + kernels::a16_word_at(format.bits, from.word, place.lane), 4);
      code |= (word >> from.at & 1u) << bit;
    }
    float pair[2];
    const std::byte* const pairs = at + kernels::a16_scale_at(format, row, col);
    for (int i = 0; i < 2; ++i) {
      uint16_t half;
      std::memcpy(&half, pairs + 2 * i, 2);
      pair[i] = format.scale == A16Scale::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
      if (format.scale == A16Scale::kF32) std::memcpy(&pair[i], pairs + 4 * i, 4);
    }
    const double value = static_cast<double>(pair[0]) * code + pair[1];
    if (exact) return value;
    const auto rounded = static_cast<float>(value);
    return arithmetic == kernels::Arithmetic::kF16 ? f16_to_f32(f32_to_f16(rounded))
                                                   : bf16_to_f32(f32_to_bf16(rounded));
  }
};

/// Elements of y in f64, with their bounds, for arms that keep weights and for arms that round them.
struct SpotCheck {
  struct Element {
    int64_t at;                ///< in y
    double want[2], bound[2];  ///< [exact, rounded]
  };
  std::vector<Element> elements;

  double worst(const std::vector<float>& y, bool exact) const {
    double worst = 0;
    for (const Element& e : elements) {
      const int i = exact ? 0 : 1;
      const double share = std::fabs(y[static_cast<size_t>(e.at)] - e.want[i]) / e.bound[i];
      if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
    }
    return worst;
  }
};

/// One shape and format: weights, and what products of it are compared with.
class TuneMatrix {
 public:
  static Result<TuneMatrix> make(KernelSession& session, const KernelCase& c) {
    TuneMatrix m;
    m.units_ = kernels::a16_row_tiles(c.n) * kernels::a16_units(c.k);
    m.packed = kernels::a16_bytes(c.format, c.n, c.k), m.copies = session.copies_for(m.packed);
    m.pattern_ = session.random_units(c.format, std::min<int64_t>(m.units_, 16384));
    GALVANI_TRY(m.weights, session.random_bytes(m.packed * m.copies, m.pattern_, "tune weights"));
    GALVANI_TRY(m.read, session.time_read(m.weights, m.packed, m.copies));
    return m;
  }

  /// x as it lies on the device, [m, k].
  SpotCheck spot_check(KernelSession& session, const KernelCase& c, const std::vector<std::byte>& x) const {
    SpotCheck check;
    const bool f16 = session.options().arithmetic == kernels::Arithmetic::kF16;
    const int64_t pattern_units = std::min<int64_t>(units_, 16384), row_units = kernels::a16_units(c.k);
    const A16Reader reader{pattern_.data(), c.format};
    const double factor = 4 * std::max(1.0, std::sqrt(static_cast<double>(c.k)) / 16) * 0x1p-24;
    for (int draw = 0; draw < 24; ++draw) {
      // The ends always, the rest anywhere.
      const auto any = [&](int64_t n) { return static_cast<int64_t>(session.random()() % static_cast<uint64_t>(n)); };
      const int64_t row = draw == 0 ? 0 : draw == 1 ? c.n - 1 : any(c.n), token = draw == 2 ? c.m - 1 : any(c.m);
      SpotCheck::Element e{token * c.n + row, {0, 0}, {0, 0}};
      double size[2] = {}, largest = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const int64_t unit = (row / 16 * row_units + k / 64) % pattern_units;
        uint16_t bits;
        std::memcpy(&bits, x.data() + (token * c.k + k) * 2 % static_cast<int64_t>(x.size()), 2);
        const double value = f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
        for (int i = 0; i < 2; ++i) {
          const double product = value * reader.weight(unit, static_cast<int>(row % 16), static_cast<int>(k % 64),
                                                       i == 0, session.options().arithmetic);
          e.want[i] += product, size[i] += std::fabs(product), largest = std::max(largest, std::fabs(product));
        }
      }
      for (int i = 0; i < 2; ++i)
        e.bound[i] = 1.05 * 0x1p-24 * std::fabs(e.want[i]) + factor * size[i] + 1e-30 +
                     (i == 0 ? 0 : largest * (f16 ? 0x1p-10 : 0x1p-7));  // a tie may round the other way
      check.elements.push_back(e);
    }
    return check;
  }

  int64_t packed = 0, copies = 0;
  DeviceBuffer weights;
  Timing read;

 private:
  int64_t units_ = 0;
  std::vector<std::byte> pattern_;
};

Status tune_row(KernelSession& session, kernels::QmatmulCuda& product, const KernelCase& c, const TuneMatrix& matrix,
                const DeviceBuffer& x, DeviceBuffer& y, const SpotCheck& check, TuneRow& row) {
  product.options().forced = static_cast<int>(row.arm);
  product.options().tuning = row.tuning;
  const auto count = static_cast<size_t>(c.m * c.n);
  const auto launch = [&](int64_t copy) -> Status {
    return product.run(session.stream(),
                       {c.n, c.k, c.format, matrix.weights.as<unsigned char>() + copy * matrix.packed},
                       {x.data(), c.m, c.k}, session.options().arithmetic, {y.data(), c.n, false, false});
  };
  std::vector<float> got[2];
  for (auto& values : got) {
    values.resize(count);
    GALVANI_TRY_VOID(session.stream().fill(y.data(), 0xff, count * 4));
    GALVANI_TRY_VOID(launch(0));
    GALVANI_TRY_VOID(session.stream().to_host(values.data(), y.data(), count * 4));
    GALVANI_TRY_VOID(session.stream().synchronize());
  }
  row.worst = check.worst(got[0], kernels::qmatmul_cuda_is_few(row.arm));
  if (!(row.worst <= 1)) return fail(ErrorCode::kInternal, "wrong: {:.3g} of the error bound", row.worst);
  if (!std::all_of(got[0].begin(), got[0].end(), [](float v) { return std::isfinite(v); }))
    return fail(ErrorCode::kInternal, "wrong: elements of the output were left unwritten");
  if (std::memcmp(got[0].data(), got[1].data(), count * 4) != 0)
    return fail(ErrorCode::kInternal, "wrong: two runs differ");
  GALVANI_TRY(row.time, session.time(matrix.copies, launch));
  return {};
}

Status tune_case(KernelSession& session, kernels::QmatmulCuda& product, const TuneMatrix& matrix, TuneCase& result) {
  const KernelCase& c = result.what;
  result.bytes = matrix.packed + c.m * c.k * 2 + c.m * c.n * 4;
  result.read = matrix.read;
  const std::vector<std::byte> values = session.normal16(std::min<int64_t>(c.m * c.k, 1 << 20), 1);
  GALVANI_TRY(DeviceBuffer x, session.random_bytes(c.m * c.k * 2, values, "tune x"));
  GALVANI_TRY(DeviceBuffer y, DeviceBuffer::allocate(session.device(), static_cast<size_t>(c.m * c.n * 4), "tune y"));
  const SpotCheck check = matrix.spot_check(session, c, values);
  result.rows = tune_candidates(session.device().caps(), c, session.options().arithmetic);
  for (TuneRow& row : result.rows) {
    if (const Status status = tune_row(session, product, c, matrix, x, y, check, row); !status) {
      row.failure = status.error().message;
      GALVANI_TRY_VOID(session.device().alive());
    }
  }
  if (session.options().cublas && c.m >= 64) {
    KernelRow dense;
    dense.what = c;
    GALVANI_TRY_VOID(session.time_cublas(dense, x));
    result.cublas = dense.cublas;
  }
  return {};
}

}  // namespace

std::vector<KernelCase> tune_cases() {
  const A16Format q4{4, 64, A16Scale::kBF16};
  std::vector<KernelCase> cases;
  for (int64_t m : {1, 8, 16, 32, 64, 128, 256, 512, 2048}) cases.push_back({28672, 8192, m, q4});
  for (int bits : {2, 3, 5, 6, 8}) cases.push_back({28672, 8192, 1, {bits, 64, A16Scale::kBF16}});
  cases.push_back({28672, 8192, 1, {4, 32, A16Scale::kF16}});
  for (int64_t m : {1, 8, 16, 64, 256}) cases.push_back({5120, 17408, m, q4});
  for (int64_t m : {1, 8, 16, 64, 256}) cases.push_back({4096, 4096, m, q4});
  return cases;
}

std::vector<TuneRow> tune_candidates(const DeviceCaps& caps, const KernelCase& c, kernels::Arithmetic arithmetic) {
  std::vector<TuneRow> rows;
  std::set<std::string> seen;
  const auto add = [&](QmatmulCudaProblem p, bool chosen) {
    const QmatmulCudaPlan plan = kernels::qmatmul_cuda_plan(caps, p);
    if (!plan.ok) return;
    TuneRow row;
    row.arm = plan.arm, row.tuning = p.tuning, row.launch = launch_of(plan), row.chosen = chosen;
    if (seen.insert(row.launch).second) rows.push_back(std::move(row));
  };
  const QmatmulCudaProblem own = problem_of(c, arithmetic);
  add(own, true);
  for (const QmatmulCudaArm arm :
       {QmatmulCudaArm::kFewBulk, QmatmulCudaArm::kFewAsync, QmatmulCudaArm::kFewPlain, QmatmulCudaArm::kStream,
        QmatmulCudaArm::kWgmma, QmatmulCudaArm::kMma, QmatmulCudaArm::kExpand}) {
    // Too slow to be worth the time: one token in tiles of 64.
    if (arm == QmatmulCudaArm::kWgmma && c.m < 16) continue;
    if (arm == QmatmulCudaArm::kStream && c.m < 8) continue;
    if (arm == QmatmulCudaArm::kMma && c.m < kMmaFrom) continue;
    for (const QmatmulCudaTuning& tuning : tunings_of(arm, c)) {
      QmatmulCudaProblem p = own;
      p.forced = static_cast<int>(arm), p.tuning = tuning;
      add(p, false);
    }
  }
  return rows;
}

Result<TuneRecord> tune_kernels(const KernelBenchOptions& given) {
  if (const cuda::DriverState state = cuda::driver_state(); state.kind != cuda::DriverState::Kind::kReady)
    return fail(ErrorCode::kUnsupported, "there is no GPU to time: {}", state.reason);
  GALVANI_TRY(KernelSession session, KernelSession::open(given));
  TuneRecord record;
  GALVANI_TRY(record.machine, session.describe());
  const bool all = given.cases.empty() && !given.attention && !given.small;
  std::vector<KernelCase> cases = all ? tune_cases() : given.cases;
  kernels::QmatmulCuda::Options product_options;
  product_options.dependent_launch = given.dependent_launch;
  for (const KernelCase& c : cases)
    product_options.expand_bytes = std::max(product_options.expand_bytes, expand_bytes(c));
  GALVANI_TRY(const auto product, kernels::QmatmulCuda::create(session.device().shared_from_this(), product_options));
  for (size_t i = 0; i < cases.size();) {
    size_t end = i;
    const auto same = [&](const KernelCase& c) {
      return c.n == cases[i].n && c.k == cases[i].k && c.format.bits == cases[i].format.bits &&
             c.format.group == cases[i].format.group && c.format.scale == cases[i].format.scale;
    };
    while (end < cases.size() && same(cases[end])) ++end;
    GALVANI_TRY(const TuneMatrix matrix, TuneMatrix::make(session, cases[i]));
    for (; i < end; ++i) {
      TuneCase result;
      result.what = cases[i];
      GALVANI_TRY_VOID(tune_case(session, *product, matrix, result));
      record.cases.push_back(std::move(result));
    }
  }
  if ((all || given.attention) && given.arithmetic == kernels::Arithmetic::kBF16) {
    for (AttentionTuneCase& c : record.attention = attention_tune_cases()) GALVANI_TRY_VOID(tune_attention(session, c));
    for (AttentionPrefillCase& c : record.prefill = attention_prefill_cases())
      GALVANI_TRY_VOID(time_attention_prefill(session, c));
  }
  if ((all || given.small) && given.arithmetic == kernels::Arithmetic::kBF16)
    for (SmallCase& c : record.small = small_tune_cases()) GALVANI_TRY_VOID(tune_small(session, c));
  return record;
}

}  // namespace galvani::bench
