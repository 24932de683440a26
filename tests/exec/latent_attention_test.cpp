// Latent attention against the form it is equal to: keys and values written out for every head and token, in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "exec/cpu_ops.h"
#include "kernels/kernel_testing.h"
#include "kernels/norm/norm.h"
#include "kernels/qmatmul_source.h"
#include "kernels/rope/rope.h"
#include "quant/row_select.h"
#include "quant/transpose.h"

namespace galvani::exec {
namespace {

using kernels::kUnit;
using kernels::testing::MemoryMatrix;

struct Case {
  int heads, nope, rope, latent, v_dim, tokens;
  bool interleaved = true;
  DType kv = DType::kF32;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.heads << " heads, " << c.nope << '+' << c.rope << ", latent " << c.latent << ", v " << c.v_dim << ", "
             << c.tokens << " tokens, " << dtype_name(c.kv);
}

float stored(float value, DType type) {
  if (type == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return type == DType::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

/// A layer whose q and kv projections pick columns of x, so that q and the latent are known exactly, and a kv_b of
/// random values.
class Layer {
 public:
  Layer(const Case& shape, std::mt19937_64& random) : c(shape) {
    q_cols = int64_t{c.heads} * (c.nope + c.rope);
    hidden = q_cols + c.latent + c.rope;
    x = kernels::normal(random, static_cast<size_t>(c.tokens * hidden));
    kv_b = std::make_shared<MemoryMatrix>(
        MemoryMatrix::dense_random(int64_t{c.heads} * (c.nope + c.v_dim), c.latent, DType::kF32, random()));
    for (float& w : kv_b->values_) w *= 2.0f / std::sqrt(static_cast<float>(c.latent));
    gain = kernels::normal(random, static_cast<size_t>(c.latent));
    for (int i = 0; i < c.rope / 2; ++i) inv_freq.push_back(static_cast<float>(std::pow(1000.0, -2.0 * i / c.rope)));
    std::vector<int32_t> positions(static_cast<size_t>(c.tokens));
    std::iota(positions.begin(), positions.end(), 0);
    kernels::rope_build(table, positions.data(), c.tokens, inv_freq.data(), c.rope, 1.25f);
  }

  /// Rows [first, first + rows) of the identity of `hidden` columns.
  quant::MatrixPtr pick(int64_t first, int64_t rows) const {
    auto matrix = std::make_shared<MemoryMatrix>(MemoryMatrix::dense_random(1, 1, DType::kF32, 0));
    *matrix = MemoryMatrix::dense_random(rows, hidden, DType::kF32, 0);
    std::fill(matrix->values_.begin(), matrix->values_.end(), 0.0f);
    for (int64_t r = 0; r < rows; ++r) matrix->values_[static_cast<size_t>(r * hidden + first + r)] = 1.0f;
    return matrix;
  }

  LatentAttentionLayer load(Ops& ops) const {
    LatentAttentionLayer layer;
    const LinearPart q{.matrix = pick(0, q_cols)}, kv{.matrix = pick(q_cols, c.latent + c.rope)};
    layer.q = *ops.load_linear("q", {&q, 1});
    layer.kv_a = *ops.load_linear("kv_a", {&kv, 1});
    layer.kv_norm = {.weight = *ops.load_vector(gain), .eps = 1e-6f};
    std::vector<std::vector<LinearPart>> keys, values;
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t first = h * (c.nope + c.v_dim);
      keys.push_back({{.matrix = *quant::transpose_values(*kv_b, first, c.nope)}});
      values.push_back({{.matrix = *quant::select_rows(kv_b, {{first + c.nope, c.v_dim}})}});
    }
    layer.k_up = *ops.load_stack("k", keys, c.heads);
    layer.v_up = *ops.load_stack("v", values, c.heads);
    layer.heads = c.heads, layer.nope = c.nope, layer.rope_dim = c.rope, layer.latent = c.latent;
    layer.v_dim = c.v_dim;
    layer.rope = *ops.load_rope({.inv_freq = inv_freq, .attention_scale = 1.25f, .interleaved = c.interleaved});
    layer.scale = 1 / std::sqrt(static_cast<float>(c.nope + c.rope));
    return layer;
  }

  /// `count` rotated values of a row from column `first` of x on.
  std::vector<double> rotated(int64_t token, int64_t first) const {
    const float* in = x.data() + token * hidden + first;
    std::vector<double> out(static_cast<size_t>(c.rope));
    const int half = c.rope / 2;
    for (int i = 0; i < half; ++i) {
      const double cosine = table.cosine[static_cast<size_t>(token * half + i)];
      const double sine = table.sine[static_cast<size_t>(token * half + i)];
      const int a = c.interleaved ? 2 * i : i, b = c.interleaved ? 2 * i + 1 : i + half;
      out[static_cast<size_t>(a)] = in[a] * cosine - in[b] * sine;
      out[static_cast<size_t>(b)] = in[b] * cosine + in[a] * sine;
    }
    return out;
  }

  std::vector<double> latent_of(int64_t token) const {
    const float* in = x.data() + token * hidden + q_cols;
    double squares = 0;
    for (int i = 0; i < c.latent; ++i) squares += double{in[i]} * in[i];
    const double factor = 1 / std::sqrt(squares / c.latent + 1e-6);
    std::vector<double> out;
    for (int i = 0; i < c.latent; ++i) out.push_back(in[i] * factor * gain[static_cast<size_t>(i)]);
    return out;
  }

  /// What a narrow page holds of a token: rounding is no small error, so that the f32 values it starts from count.
  std::vector<double> page_row(int64_t token) const {
    std::vector<float> row(x.begin() + token * hidden + q_cols, x.begin() + (token + 1) * hidden);
    kernels::rms_norm(row.data(), 1, c.latent, c.latent, gain.data(), {.eps = 1e-6f}, row.data(), c.latent);
    kernels::rope_apply(table, c.interleaved ? kernels::RopePairing::kInterleaved : kernels::RopePairing::kHalfSplit,
                        row.data() + c.latent, token, 1, 1, c.rope, c.rope);
    std::vector<double> out;
    for (float value : row) out.push_back(stored(value, c.kv));
    return out;
  }

  double up(int64_t row, int64_t col) const { return kv_b->weight(row, col); }

  Case c;
  int64_t q_cols = 0, hidden = 0;
  std::vector<float> x, gain, inv_freq;
  std::shared_ptr<MemoryMatrix> kv_b;
  kernels::RopeTable table;
};

struct Reference {
  std::vector<double> out, bound;  ///< [tokens, heads · v_dim]
};

/// The naive form. An element may be off by u · 12 · (n_s · S + n_v) · Σ_t p_t V_t. S and V_t are the sizes of the sums
/// under a score (the largest of the row) and under a value: the root of their products' squares, which is what partial
/// sums of random numbers come to; n_s and n_v, the root of the number of terms, is how their rounding errors add up.
/// 12 covers the tails of that, and the roundings of norm, rope, softmax and merging (see attention_test.cpp).
Reference naive(const Layer& layer) {
  const Case& c = layer.c;
  Reference result;
  result.out.assign(static_cast<size_t>(c.tokens * c.heads * c.v_dim), 0);
  result.bound = result.out;
  std::vector<std::vector<double>> latents, key_parts;
  for (int t = 0; t < c.tokens; ++t) {
    latents.push_back(layer.latent_of(t));
    key_parts.push_back(layer.rotated(t, layer.q_cols + c.latent));
    if (c.kv == DType::kF32) continue;
    const auto row = layer.page_row(t);
    latents.back().assign(row.begin(), row.begin() + c.latent);
    key_parts.back().assign(row.begin() + c.latent, row.end());
  }
  const double n_s = std::sqrt(c.nope + c.latent + c.rope), n_v = std::sqrt(c.latent + c.tokens);
  for (int h = 0; h < c.heads; ++h) {
    const int64_t first = int64_t{h} * (c.nope + c.v_dim);
    std::vector<std::vector<double>> keys, values, key_size, value_size;
    for (int t = 0; t < c.tokens; ++t) {
      std::vector<double> up(static_cast<size_t>(c.nope + c.v_dim), 0), size = up;
      for (int i = 0; i < c.nope + c.v_dim; ++i) {
        for (int l = 0; l < c.latent; ++l) {
          const double product = layer.up(first + i, l) * latents[static_cast<size_t>(t)][static_cast<size_t>(l)];
          up[static_cast<size_t>(i)] += product;
          size[static_cast<size_t>(i)] += product * product;
        }
      }
      keys.emplace_back(up.begin(), up.begin() + c.nope), values.emplace_back(up.begin() + c.nope, up.end());
      key_size.emplace_back(size.begin(), size.begin() + c.nope),
          value_size.emplace_back(size.begin() + c.nope, size.end());
    }
    for (int t = 0; t < c.tokens; ++t) {
      const float* q = layer.x.data() + t * layer.hidden + int64_t{h} * (c.nope + c.rope);
      const auto turned = layer.rotated(t, int64_t{h} * (c.nope + c.rope) + c.nope);
      std::vector<double> score;
      double peak = -INFINITY, largest = 0, total = 0;
      for (int s = 0; s <= t; ++s) {
        const auto at = static_cast<size_t>(s);
        double sum = 0, squares = 0;
        for (int i = 0; i < c.nope; ++i) {
          sum += q[i] * keys[at][static_cast<size_t>(i)];
          squares += double{q[i]} * q[i] * key_size[at][static_cast<size_t>(i)];
        }
        for (int i = 0; i < c.rope; ++i) {
          const double product = turned[static_cast<size_t>(i)] * key_parts[at][static_cast<size_t>(i)];
          sum += product, squares += product * product;
        }
        const double scale = 1 / std::sqrt(static_cast<float>(c.nope + c.rope));
        score.push_back(sum * scale);
        peak = std::max(peak, sum * scale), largest = std::max(largest, std::sqrt(squares) * scale);
      }
      for (double& value : score) total += value = std::exp(value - peak);
      for (int i = 0; i < c.v_dim; ++i) {
        const auto at = static_cast<size_t>((t * c.heads + h) * c.v_dim + i);
        double size = 0;
        for (int s = 0; s <= t; ++s) {
          const double p = score[static_cast<size_t>(s)] / total;
          result.out[at] += p * values[static_cast<size_t>(s)][static_cast<size_t>(i)];
          size += p * std::sqrt(value_size[static_cast<size_t>(s)][static_cast<size_t>(i)]);
        }
        result.bound[at] = kUnit * 12 * (n_s * largest + n_v) * size;
      }
    }
  }
  return result;
}

/// The op over the tokens in chunks of `piece`.
std::vector<float> run(const Layer& layer, const OpsOptions& options, int piece) {
  const Case& c = layer.c;
  auto ops = create_cpu_ops(options);
  EXPECT_TRUE(ops.has_value());
  const LatentAttentionLayer handles = layer.load(**ops);
  auto state = State::create(
      {.groups = {{.name = "latent", .layers = 1, .kv_heads = 1, .k_dim = c.latent + c.rope}}, .slots = {}},
      {.kv_dtype = c.kv, .context = c.tokens}, (*ops)->memory());
  EXPECT_TRUE(state.has_value());
  const SeqId sequence = *(*state)->create_sequence();
  std::vector<float> out;
  const std::vector<int32_t> ids(static_cast<size_t>(c.tokens), 0);
  for (int first = 0; first < c.tokens; first += piece) {
    const int count = std::min(piece, c.tokens - first);
    Batch batch;
    batch.add(sequence, first, std::span(ids).first(static_cast<size_t>(count)), WantLogits::kNone);
    EXPECT_TRUE((*state)->reserve(batch.chunks[0]).has_value());
    (*ops)->begin_step(batch, **state);
    std::vector<float> rows(layer.x.begin() + first * layer.hidden, layer.x.begin() + (first + count) * layer.hidden);
    const Act x{rows.data(), count, layer.hidden, layer.hidden};
    const Act y = (*ops)->latent_attention(x, std::nullopt, handles);
    EXPECT_TRUE((*ops)->finish_step().has_value());
    EXPECT_EQ(y.cols, c.heads * c.v_dim);
    out.resize(out.size() + static_cast<size_t>(y.rows * y.cols));
    EXPECT_TRUE((*ops)->read(y, out.data() + out.size() - static_cast<size_t>(y.rows * y.cols)).has_value());
    (*state)->commit(batch.chunks[0]);
  }
  return out;
}

class LatentAttention : public testing::TestWithParam<Case> {};

TEST_P(LatentAttention, EqualsKeysAndValuesWrittenOut) {
  std::mt19937_64 random(kernels::fresh_seed());
  const Layer layer(GetParam(), random);
  const Reference wanted = naive(layer);
  for (const char* matmul : {"rows", "panel"}) {
    for (const char* attention : {"ref", "tiles", "split"}) {
      const OpsOptions options{.poison = true, .arms = {{"qmatmul", matmul}, {"attention", attention}}};
      const std::vector<float> got = run(layer, options, GetParam().tokens);
      ASSERT_EQ(got.size(), wanted.out.size());
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - wanted.out[i]), wanted.bound[i]) << matmul << ' ' << attention << ' ' << i;
        worst = std::max(worst, std::fabs(got[i] - wanted.out[i]) / wanted.bound[i]);
      }
      std::cout << matmul << ' ' << attention << ": largest error " << worst << " of the bound\n";
    }
  }
}

TEST_P(LatentAttention, ChunksChangeNothing) {
  std::mt19937_64 random(kernels::fresh_seed());
  const Layer layer(GetParam(), random);
  for (const char* matmul : {"rows", "panel"}) {
    const OpsOptions options{.poison = true, .arms = {{"qmatmul", matmul}}};
    const std::vector<float> whole = run(layer, options, GetParam().tokens);
    for (int piece : {1, 3, 63, 64, 65}) EXPECT_EQ(run(layer, options, piece), whole) << matmul << ' ' << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LatentAttention,
                         testing::Values(Case{2, 128, 64, 512, 128, 67}, Case{3, 24, 16, 36, 20, 70, false},
                                         Case{1, 7, 2, 5, 3, 130}, Case{4, 32, 8, 64, 48, 66, true, DType::kBF16},
                                         Case{4, 32, 8, 64, 48, 66, true, DType::kF16}),
                         [](const auto& instance) { return "shape" + std::to_string(instance.index); });

}  // namespace
}  // namespace galvani::exec
