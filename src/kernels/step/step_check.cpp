#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/check_rig.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/op_checks.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/step/step_cuda.h"
#include "quant/affine.h"

namespace galvani::kernels {
namespace {

// A layer of a small model: q, k, v of the normed residual; attention; its output added to the residual; gate and up of
// the normed residual; down added to the residual. Each phase is judged from what the kernel itself has left behind of
// the phases before it, so that bounds do not add up.
constexpr int kHidden = 512, kInner = 768, kHeads = 4, kKvHeads = 2, kGroup = kHeads / kKvHeads;
constexpr int kPosition = 300, kPageTokens64 = 64, kSeenPages = 5, kPoolPages = 7, kPhases = 5, kUpToMid = 3;
constexpr float kEps = 1e-5f;
constexpr double kUnit = 0x1p-24;

/// What differs between the layers.
struct Kind {
  int dim;
  A16Format qkv, o, gate_up, down;
  bool head_norms, bias, interleaved, sinks, plus_one;
  int window;
  int width() const { return (kHeads + 2 * kKvHeads) * dim; }
};
constexpr Kind kKinds[] = {
    {128, {4, 64}, {4, 32}, {4, 64}, {4, 32}, true, false, false, false, false, 0},
    {64,
     {4, 32, A16Scale::kF16},
     {4, 64, A16Scale::kF32},
     {4, 128, A16Scale::kF32},
     {4, 64, A16Scale::kF16},
     false,
     true,
     true,
     true,
     true,
     290},
    {128, {4, 16}, {4, 128}, {4, 16}, {4, 64}, false, false, false, false, false, 0},
};

/// Two slots a warp of group 16 do not fit parts with little shared memory.
bool fits(const DeviceCaps& caps, const Kind& kind) {
  StepNeeds needs{.columns = kInner, .phases = kPhases};
  for (const A16Format& format : {kind.qkv, kind.o, kind.gate_up, kind.down}) {
    needs.chunk_bytes = std::max(needs.chunk_bytes, kFewChunk * a16_unit_bytes(format));
    needs.sums = std::max(needs.sums, kInner / kA16Cols * a16_subgroups(format.group));
  }
  needs.rows = 2 * kInner + kA16Rows, needs.attention = step_attention_bytes(kHeads, kKvHeads, kind.dim);
  return step_layout(needs, caps.smem_optin).ok;
}

/// What rounding may make of `off` where x is near a tie.
double round_slack(double x, double off, StoreType type) {
  return std::fabs(double{round_as(x + off, type)} - double{round_as(x - off, type)});
}
double tiny(StoreType type) { return type == StoreType::kF16 ? 0x1p-25 : 1e-37; }

struct Matrix {
  std::vector<double> weights, codes;  ///< [rows, cols], scale · code + bias and |scale · code|, exactly
  CudaMatrix packed;
};

Result<Matrix> make_matrix(CheckRig& rig, int64_t rows, int64_t cols, const A16Format& format) {
  const DType type = format.scale == A16Scale::kBF16  ? DType::kBF16
                     : format.scale == A16Scale::kF16 ? DType::kF16
                                                      : DType::kF32;
  quant::AffineTensor tensor = quant::make_affine_tensor(rows, cols, format.bits, format.group, type);
  const quant::AffineView& view = tensor.view;
  auto* const codes = const_cast<std::byte*>(view.codes);
  for (int64_t i = 0; i < rows * view.row_code_bytes(); ++i) codes[i] = static_cast<std::byte>(rig.random()());
  std::vector<float> pairs[2];
  for (int which = 0; which < 2; ++which) {
    pairs[which] = rig.normal(static_cast<size_t>(rows * view.groups()), 0.01f);
    auto* const to = const_cast<std::byte*>(which == 0 ? view.scales : view.biases);
    for (size_t i = 0; i < pairs[which].size(); ++i) {
      float& value = pairs[which][i];
      if (type == DType::kF32) {
        std::memcpy(to + 4 * i, &value, 4);
        continue;
      }
      const uint16_t half = type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      value = type == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
      std::memcpy(to + 2 * i, &half, 2);
    }
  }
  Matrix m;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const auto group = static_cast<size_t>(r * view.groups() + c / view.group);
      const double product =
          double{pairs[0][group]} * quant::affine_code(view.codes + r * view.row_code_bytes(), format.bits, c);
      m.weights.push_back(product + double{pairs[1][group]});
      m.codes.push_back(std::fabs(product));
    }
  m.packed.rows = rows, m.packed.cols = cols, m.packed.format = format;
  std::vector<std::byte> bytes(static_cast<size_t>(m.packed.packed_bytes()));
  a16_pack_tiles(view, format, 0, a16_row_tiles(rows), bytes.data());
  GALVANI_TRY(const std::byte* data, rig.upload(bytes));
  m.packed.data = reinterpret_cast<const unsigned char*>(data);
  return m;
}

/// What the kernel reads.
struct Layer {
  Kind kind{};
  StoreType type = StoreType::kBF16;
  Matrix qkv, o, gate_up, down;
  std::vector<float> x, norm[2], head_norm[2], bias, sinks, rope, k, v;  ///< k, v: the pools
  std::vector<int> blocks;

  size_t page() const { return static_cast<size_t>(kKvHeads * kPageTokens64 * kind.dim); }
  /// In a pool, of the first element of a key or value.
  size_t key_at(int head, int position) const {
    const auto block = static_cast<size_t>(blocks[static_cast<size_t>(position / kPageTokens64)]);
    return block * page() + static_cast<size_t>((head * kPageTokens64 + position % kPageTokens64) * kind.dim);
  }
};

Result<Layer> make_layer(CheckRig& rig, const Kind& kind, StoreType type) {
  Layer l;
  l.kind = kind, l.type = type;
  GALVANI_TRY(l.qkv, make_matrix(rig, kind.width(), kHidden, kind.qkv));
  GALVANI_TRY(l.o, make_matrix(rig, kHidden, kHeads * kind.dim, kind.o));
  GALVANI_TRY(l.gate_up, make_matrix(rig, 2 * kInner, kHidden, kind.gate_up));
  GALVANI_TRY(l.down, make_matrix(rig, kHidden, kInner, kind.down));
  const auto dim = static_cast<size_t>(kind.dim);
  l.x = rig.normal(kHidden);
  // As in real models: a few elements that dwarf the rest of their group, whose digits they coarsen.
  for (int i = 0; i < 3; ++i) l.x[rig.random()() % kHidden] *= 3000;
  for (auto& w : l.norm) w = rig.normal(kHidden);
  for (auto& w : l.head_norm) w = rig.normal(dim);
  l.bias = rig.normal(static_cast<size_t>(kind.width()));
  l.sinks = rig.normal(kHeads, 3);
  for (size_t i = 0; i < dim / 2; ++i) {
    const double angle = kPosition * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    l.rope.push_back(static_cast<float>(std::cos(angle)));
    l.rope.push_back(static_cast<float>(std::sin(angle)));
  }
  for (int i = 0; i < kPoolPages; ++i) l.blocks.push_back(i);
  std::shuffle(l.blocks.begin(), l.blocks.end(), rig.random());
  l.blocks.resize(kSeenPages);
  // What no token of before stands in stays NaN.
  l.k.assign(kPoolPages * l.page(), std::nanf("")), l.v = l.k;
  for (int head = 0; head < kKvHeads; ++head)
    for (int t = 0; t < kPosition; ++t)
      for (auto* pool : {&l.k, &l.v}) {
        const std::vector<float> one = rig.normal(dim);
        for (size_t i = 0; i < dim; ++i) (*pool)[l.key_at(head, t) + i] = round_as(one[i], type);
      }
  return l;
}

/// What it has left.
struct Seen {
  std::vector<float> x, qkv, out, h, k, v;
  std::vector<unsigned> counters;  ///< of attention

  bool same_bits(const Seen& other, bool whole) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(qkv, other.qkv) && same(out, other.out) && same(k, other.k) && same(v, other.v) &&
           (!whole || (same(x, other.x) && same(h, other.h)));
  }
};

struct Places {
  void *x, *qkv, *out, *h, *k, *v;
  unsigned* counters;  ///< of attention
};

Result<StepAttention> attention_phase(CheckRig& rig, Layer& l, const Places& at, const StepProgram& program) {
  const int dim = l.kind.dim;
  StepAttention a{};
  QkvArgs& q = a.qkv;
  q.x = static_cast<const float*>(at.qkv), q.x_stride = l.kind.width();
  q.k_column = kHeads * dim, q.v_column = (kHeads + kKvHeads) * dim;
  q.rows = 1, q.heads = kHeads, q.type = l.type;
  if (l.kind.bias) {
    GALVANI_TRY(q.bias, rig.upload(l.bias));
  }
  if (l.kind.head_norms) {
    q.q_normed = q.k_normed = true;
    GALVANI_TRY(q.q_norm.w, rig.upload(l.head_norm[0]));
    GALVANI_TRY(q.k_norm.w, rig.upload(l.head_norm[1]));
    q.q_norm.eps = q.k_norm.eps = kEps;
  }
  GALVANI_TRY(q.rope, rig.upload(l.rope));
  q.rope_pairs = dim / 2, q.interleaved = l.kind.interleaved;
  const auto page = static_cast<long long>(l.page()) * 2;
  q.kv = {static_cast<char*>(at.k), static_cast<char*>(at.v), page, page, kKvHeads, dim, dim};
  GALVANI_TRY(q.tables.blocks, rig.upload(l.blocks));
  q.tables.max_blocks = kSeenPages;
  GALVANI_TRY(q.positions, rig.upload(std::vector<int>{kPosition}));
  GALVANI_TRY(q.sequence, rig.upload(std::vector<int>{0}));
  a.score = {1.0f / std::sqrt(static_cast<float>(dim)), 0, l.kind.window};
  if (l.kind.sinks) {
    GALVANI_TRY(a.sinks, rig.upload(l.sinks));
  }
  const auto parts = static_cast<size_t>(program.part_floats(kHeads, kKvHeads, dim));
  GALVANI_TRY(void* part_out, rig.output(parts, StoreType::kF32));
  GALVANI_TRY(void* part_stat, rig.output(2 * parts / static_cast<size_t>(dim), StoreType::kF32));
  a.part_out = static_cast<float*>(part_out), a.part_stat = static_cast<float*>(part_stat);
  a.arrived = at.counters, a.out = at.out;
  return a;
}

/// The first `phases` of the layer, on buffers of their own.
Result<Seen> run(CheckRig& rig, Layer& l, const DeviceCaps& caps, int phases) {
  const int dim = l.kind.dim, width = l.kind.width();
  Places at{};
  GALVANI_TRY(at.x, rig.upload(l.x));
  GALVANI_TRY(at.qkv, rig.output(static_cast<size_t>(width), StoreType::kF32));
  GALVANI_TRY(at.out, rig.output(static_cast<size_t>(kHeads * dim), l.type));
  GALVANI_TRY(at.h, rig.output(kInner, l.type));
  GALVANI_TRY(at.k, rig.upload_as(l.k, l.type));
  GALVANI_TRY(at.v, rig.upload_as(l.v, l.type));
  GALVANI_TRY(at.counters, rig.upload(std::vector<unsigned>(kKvHeads, 0)));
  const float* norm[2];
  for (int i = 0; i < 2; ++i) {
    GALVANI_TRY(norm[i], rig.upload(l.norm[i]));
  }
  StepProgram program(caps, l.type == StoreType::kBF16 ? Arithmetic::kBF16 : Arithmetic::kF16);
  const auto normed = [&](int which, void* y, StepOutput output) {
    StepProduct p{};
    p.x = at.x, p.y = y, p.norm_w = norm[which], p.eps = kEps, p.plus_one = l.kind.plus_one;
    p.input = StepInput::kNormed, p.output = output;
    return p;
  };
  const auto added = [&](const void* x) {
    StepProduct p{};
    p.x = x, p.y = at.x, p.input = StepInput::kHalf, p.output = StepOutput::kAdd;
    return p;
  };
  GALVANI_TRY(const StepAttention attention, attention_phase(rig, l, at, program));
  const char* refusal = nullptr;
  const auto write_down = [&] {
    for (int i = 0; i < phases && refusal == nullptr; ++i) switch (i) {
        case 0: refusal = program.product(l.qkv.packed, normed(0, at.qkv, StepOutput::kStore)); break;
        case 1: refusal = program.attention(attention); break;
        case 2: refusal = program.product(l.o.packed, added(at.out)); break;
        case 3: refusal = program.product(l.gate_up.packed, normed(1, at.h, StepOutput::kGated)); break;
        default: refusal = program.product(l.down.packed, added(at.h)); break;
      }
  };
  write_down();  // for the size of what a launch needs
  GALVANI_TRY(void* scratch, rig.output(program.scratch_bytes() / sizeof(float), StoreType::kF32));
  program.clear();
  program.use(scratch, program.scratch_bytes());
  if (refusal == nullptr) write_down();
  if (refusal != nullptr) return fail(ErrorCode::kInternal, "the check's decode step was refused: {}", refusal);
  GALVANI_TRY(const StepPhase* on_device,
              rig.upload(std::vector<StepPhase>(program.data(), program.data() + program.size())));
  GALVANI_TRY_VOID(program.launch(rig.stream(), on_device));
  Seen seen;
  GALVANI_TRY(seen.x, rig.read(at.x, kHidden, StoreType::kF32));
  GALVANI_TRY(seen.qkv, rig.read(at.qkv, static_cast<size_t>(width), StoreType::kF32));
  GALVANI_TRY(seen.out, rig.read(at.out, static_cast<size_t>(kHeads * dim), l.type));
  GALVANI_TRY(seen.h, rig.read(at.h, kInner, l.type));
  GALVANI_TRY(seen.k, rig.read(at.k, l.k.size(), l.type));
  GALVANI_TRY(seen.v, rig.read(at.v, l.v.size(), l.type));
  seen.counters.resize(kKvHeads);
  GALVANI_TRY_VOID(rig.stream().to_host(seen.counters.data(), at.counters, kKvHeads * sizeof(unsigned)));
  GALVANI_TRY_VOID(rig.stream().synchronize());
  return seen;
}

struct Sum {
  double value = 0, bound = 0;
};

/// What a product multiplies: 16-bit values, what they may be off by, and a factor of the finished sums.
struct Input {
  std::vector<double> x, slack;
  double factor = 1;
  bool scaled = false;
};

Input as_it_stands(const std::vector<float>& x) {
  return {{x.begin(), x.end()}, std::vector<double>(x.size()), 1, false};
}

/// bf16: x · w rounded, 1 / rms left to the sums. f16: all of norm(x) rounded, with f32 roundings before that.
Input normed(const Layer& l, const std::vector<float>& x, const std::vector<float>& w) {
  Input in;
  double squares = 0;
  for (const float value : x) squares += double{value} * value;
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + double{kEps});
  for (size_t i = 0; i < x.size(); ++i) {
    const float weight = w[i] + (l.kind.plus_one ? 1.0f : 0.0f);
    const bool late = l.type == StoreType::kBF16;
    const double y = late ? double{x[i] * weight} : x[i] * inverse * weight;
    in.x.push_back(round_as(y, l.type));
    in.slack.push_back(late ? 0 : round_slack(y, 0x1p-20 * std::fabs(y), l.type));
  }
  in.scaled = l.type == StoreType::kBF16;
  if (in.scaled) in.factor = inverse;
  return in;
}

/// What an element may be off by as three digits of its subgroup: half of their unit, nothing where it is a multiple.
std::vector<double> digit_slack(const std::vector<double>& x, int group) {
  const auto size = static_cast<size_t>(std::min(group, kA16Cols));
  std::vector<double> slack;
  for (size_t i = 0; i < x.size(); ++i) {
    double most = 0;
    for (size_t j = 0; j < size; ++j) most = std::max(most, std::fabs(x[i / size * size + j]));
    const double unit = most > 0 ? std::exp2(std::ilogb(most) - 20) : 1;
    slack.push_back(std::fmod(x[i], unit) == 0 ? 0 : 0.5 * unit);
  }
  return slack;
}

/// f64 products and what a result may be off by: 1.05·u·|y| + 4·max(1, √K/16)·2^−24·Σ|w·x| as in the products' own
/// check, what the digits of x leave out of the codes' products (the biases meet x itself), and of a normed row the
/// roundings of 1 / rms (sums of squares, root, quotient, factor: below 24u).
std::vector<Sum> products(const Matrix& m, const Input& in) {
  const size_t cols = in.x.size();
  const double factor = 4 * std::max(1.0, std::sqrt(static_cast<double>(cols)) / 16) * kUnit;
  const std::vector<double> digits = digit_slack(in.x, m.packed.format.group);
  std::vector<Sum> sums;
  for (size_t r = 0; r < m.weights.size() / cols; ++r) {
    double sum = 0, size = 0, slack = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double w = m.weights[r * cols + c];
      sum += w * in.x[c], size += std::fabs(w * in.x[c]), slack += std::fabs(w) * in.slack[c];
      slack += m.codes[r * cols + c] * digits[c];
    }
    const double y = sum * in.factor;
    sums.push_back(
        {y, (1.05 + (in.scaled ? 24 : 0)) * kUnit * std::fabs(y) + (factor * size + slack) * in.factor + 1e-30});
  }
  return sums;
}

/// Largest error over its bound of y = z, or of y = old + z.
double sum_share(const std::vector<Sum>& sums, const std::vector<float>& y, const std::vector<float>* old) {
  std::vector<double> exact;
  for (size_t i = 0; i < sums.size(); ++i) exact.push_back(sums[i].value + (old != nullptr ? (*old)[i] : 0.0f));
  if (y.size() != exact.size()) return INFINITY;
  return worst_share(y, exact, [&](size_t i) { return sums[i].bound + 1.05 * kUnit * std::fabs(exact[i]); });
}

/// silu(gate)·up in the activations' type: silu's slope is below 1.13; 20u for the gate's own roundings.
double gated_share(const Layer& l, const std::vector<Sum>& sums, const std::vector<float>& h) {
  std::vector<double> exact, bound;
  for (size_t i = 0; i < kInner; ++i) {
    const Sum &g = sums[i], &u = sums[kInner + i];
    const double act = silu_ref(g.value);
    exact.push_back(act * u.value);
    bound.push_back((1.05 * store_roundoff(l.type) + 20 * kUnit) * std::fabs(exact[i]) +
                    1.13 * g.bound * (std::fabs(u.value) + u.bound) + std::fabs(act) * u.bound + tiny(l.type));
  }
  return worst_share(h, exact, [&](size_t i) { return bound[i]; });
}

/// One head of q, k or v from the product: bias, norm, rope.
std::vector<double> head_of(const Layer& l, const std::vector<float>& qkv, int column, const std::vector<float>* norm,
                            bool rotated) {
  const auto dim = static_cast<size_t>(l.kind.dim);
  std::vector<double> x(dim);
  for (size_t i = 0; i < dim; ++i) {
    const size_t at = static_cast<size_t>(column) + i;
    x[i] = l.kind.bias ? qkv[at] + l.bias[at] : qkv[at];
  }
  if (norm != nullptr) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    for (size_t i = 0; i < dim; ++i) x[i] *= (*norm)[i] / std::sqrt(squares / static_cast<double>(dim) + double{kEps});
  }
  if (!rotated) return x;
  std::vector<double> y(dim);
  for (size_t i = 0; i < dim / 2; ++i) {
    const size_t a = l.kind.interleaved ? 2 * i : i, b = l.kind.interleaved ? 2 * i + 1 : i + dim / 2;
    const double c = l.rope[2 * i], s = l.rope[2 * i + 1];
    y[a] = x[a] * c - x[b] * s, y[b] = x[b] * c + x[a] * s;
  }
  return y;
}

double largest_of(const std::vector<double>& x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::fabs(value));
  return largest;
}

/// The new key and value, and that nothing else of the pools was written.
double pages_share(const Layer& l, const Seen& seen) {
  const auto dim = static_cast<size_t>(l.kind.dim);
  double worst = 0;
  std::vector<float> k = seen.k, v = seen.v;
  for (int head = 0; head < kKvHeads; ++head)
    for (const bool is_v : {false, true}) {
      const std::vector<float>* norm = l.kind.head_norms && !is_v ? &l.head_norm[1] : nullptr;
      const int column = (kHeads + (is_v ? kKvHeads : 0) + head) * l.kind.dim;
      const std::vector<double> exact = head_of(l, seen.qkv, column, norm, !is_v);
      const double largest = largest_of(exact);
      const size_t at = l.key_at(head, kPosition);
      const std::span<const float> got((is_v ? seen.v : seen.k).data() + at, dim);
      worst = std::max(worst, worst_share(got, exact, [&](size_t i) {
                         return 1.05 * store_roundoff(l.type) * std::fabs(exact[i]) + 0x1p-19 * largest + tiny(l.type);
                       }));
      std::fill_n((is_v ? v : k).begin() + static_cast<std::ptrdiff_t>(at), dim, std::nanf(""));
    }
  for (const auto& [now, before] : {std::pair{&k, &l.k}, {&v, &l.v}})
    for (size_t i = 0; i < now->size(); ++i)
      if ((*now)[i] != (*before)[i] && !(std::isnan((*now)[i]) && std::isnan((*before)[i]))) return INFINITY;
  return worst;
}

/// Attention of one query head over the pages as the kernel has left them, into exact and bound [dim]. Scores and sums
/// are f32, weights rounded to the pages' type before they meet the values (the bound of attention's own check). A
/// query near a tie may be rounded apart: scores off by d move the result by at most 2·d·Σ p|v|.
void attention_head(const Layer& l, const Seen& seen, int head, double* exact, double* bound) {
  const auto dim = static_cast<size_t>(l.kind.dim);
  const int kv_head = head / kGroup;
  const std::vector<double> q =
      head_of(l, seen.qkv, head * l.kind.dim, l.kind.head_norms ? &l.head_norm[0] : nullptr, true);
  const double off = 0x1p-20 * largest_of(q), scale = 1.0f / std::sqrt(static_cast<float>(l.kind.dim));
  const int first = l.kind.window > 0 ? std::max(0, kPosition - l.kind.window + 1) : 0;
  std::vector<double> scores;
  double apart = 0, peak = -INFINITY, total = 0;
  for (int t = first; t <= kPosition; ++t) {
    double score = 0, slack = 0;
    for (size_t i = 0; i < dim; ++i) {
      const double k = seen.k[l.key_at(kv_head, t) + i];
      score += round_as(q[i], l.type) * k, slack += round_slack(q[i], off, l.type) * std::fabs(k);
    }
    scores.push_back(score * scale);
    apart = std::max(apart, slack * scale), peak = std::max(peak, scores.back());
  }
  for (double& score : scores) total += score = std::exp(score - peak);
  if (l.kind.sinks) total += std::exp(l.sinks[static_cast<size_t>(head)] - peak);
  const double unit = store_roundoff(l.type);
  for (size_t i = 0; i < dim; ++i) {
    double sum = 0, size = 0;
    for (size_t t = 0; t < scores.size(); ++t) {
      const double part = scores[t] / total * seen.v[l.key_at(kv_head, first + static_cast<int>(t)) + i];
      sum += part, size += std::fabs(part);
    }
    exact[i] = sum;
    bound[i] = 1.05 * unit * std::fabs(sum) + (1.05 * unit + 0x1p-16 + 2 * apart) * size + tiny(l.type);
  }
}

double attention_share(const Layer& l, const Seen& seen) {
  const auto dim = static_cast<size_t>(l.kind.dim);
  std::vector<double> exact(kHeads * dim), bound(exact.size());
  for (int head = 0; head < kHeads; ++head)
    attention_head(l, seen, head, &exact[static_cast<size_t>(head) * dim], &bound[static_cast<size_t>(head) * dim]);
  return worst_share(seen.out, exact, [&](size_t i) { return bound[i]; });
}

Result<KernelVerdict> check_layer(CheckRig& rig, Layer& l, const DeviceCaps& caps) {
  GALVANI_TRY(const Seen mid, run(rig, l, caps, kUpToMid));
  GALVANI_TRY(const Seen seen, run(rig, l, caps, kPhases));
  GALVANI_TRY(const Seen again, run(rig, l, caps, kPhases));
  KernelVerdict verdict;
  verdict.kernel = step_kernel_name(4, l.type == StoreType::kBF16 ? Arithmetic::kBF16 : Arithmetic::kF16);
  std::string where = "nowhere";
  const auto judge = [&](const char* phase, double share) {
    if (share <= verdict.worst) return;
    verdict.worst = std::isnan(share) ? INFINITY : share, where = phase;
  };
  judge("q, k, v", sum_share(products(l.qkv, normed(l, l.x, l.norm[0])), seen.qkv, nullptr));
  judge("pages", pages_share(l, seen));
  judge("attention", attention_share(l, seen));
  judge("o", sum_share(products(l.o, as_it_stands(seen.out)), mid.x, &l.x));
  judge("gate and up", gated_share(l, products(l.gate_up, normed(l, mid.x, l.norm[1])), seen.h));
  judge("down", sum_share(products(l.down, as_it_stands(seen.h)), seen.x, &mid.x));
  judge("a second run", seen.same_bits(again, true) ? 0 : INFINITY);
  judge("a run of three phases", seen.same_bits(mid, false) ? 0 : INFINITY);
  judge("counters", std::count(seen.counters.begin(), seen.counters.end(), 0u) == kKvHeads ? 0 : INFINITY);
  verdict.note = fmt::format("a layer of hidden 512, inner 768, heads 4/2 of {}, 301 tokens, {} blocks; worst in {}",
                             l.kind.dim, caps.sms, where);
  return verdict;
}

/// All multiprocessors, of which most have no more than a row tile of such a layer; few, which share tiles out over
/// their warps; and one, whose warps have several tiles each and whose keys are one segment.
std::vector<int> grids(const DeviceCaps& caps) {
  std::vector<int> blocks = {caps.sms};
  for (const int few : {5, 1})
    if (few < caps.sms) blocks.push_back(few);
  return blocks;
}

}  // namespace

std::vector<std::string> checked_step(const DeviceCaps& caps) {
  std::vector<std::string> names;
  if (!caps.has(Feature::kBulkCopy)) return names;
  for (const Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
    for (const Kind& kind : kKinds)
      if (fits(caps, kind)) names.emplace_back(step_kernel_name(4, arithmetic));
  return names;
}

Result<std::vector<KernelVerdict>> check_step(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  std::vector<KernelVerdict> verdicts;
  if (!device.caps().has(Feature::kBulkCopy)) return verdicts;
  for (const StoreType type : {StoreType::kBF16, StoreType::kF16})
    for (const Kind& kind : kKinds) {
      if (!fits(device.caps(), kind)) continue;
      GALVANI_TRY(Layer layer, make_layer(rig, kind, type));
      for (const int blocks : grids(device.caps())) {
        DeviceCaps caps = device.caps();
        caps.sms = blocks;
        GALVANI_TRY(verdicts.emplace_back(), check_layer(rig, layer, caps));
      }
    }
  return verdicts;
}

}  // namespace galvani::kernels
