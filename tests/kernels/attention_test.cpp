#include "kernels/attention/attention.h"

#include "kernels/attention_testing.h"

namespace galvani::kernels {
namespace {

double stored(float value, DType dtype) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

/// What one (row, head) may be off by, per dim: u · (12·A + 32) · Σ p|v|, where A = max_t scale · Σ_d |q_d k_t,d|.
/// A score is off by at most about 6·u·A (sequential sum: 4.4 observed at worst), which enters weights and sum alike;
/// 32 covers the powers, the running rescalings and the sum over keys.
void bounds_of(const PagedSequences& s, int row, int head, double* bounds) {
  const AttentionCase& c = s.shape;
  const int position = row % c.length, kv = head / (c.heads / c.kv_heads);
  const int first = c.window > 0 ? std::max(0, position - c.window + 1) : 0;
  std::vector<double> score;
  double size = 0, peak = c.sinks ? double{s.sinks[static_cast<size_t>(head)]} : -INFINITY;
  for (int t = first; t <= position; ++t) {
    const float* q = s.q.data() + (int64_t{row} * c.heads + head) * c.k_dim;
    const float* k = s.k.data() + (int64_t{row - position + t} * c.kv_heads + kv) * c.k_dim;
    double sum = 0, absolute = 0;
    for (int i = 0; i < c.k_dim; ++i) {
      const double product = q[i] * stored(k[i], c.dtype);
      sum += product;
      absolute += std::fabs(product);
    }
    sum *= s.params.scale;
    if (c.softcap > 0) sum = c.softcap * std::tanh(sum / c.softcap);
    score.push_back(sum);
    size = std::max(size, absolute * s.params.scale);
    peak = std::max(peak, sum);
  }
  double total = c.sinks ? std::exp(s.sinks[static_cast<size_t>(head)] - peak) : 0;
  for (double& x : score) total += x = std::exp(x - peak);
  std::fill_n(bounds, c.v_dim, 0.0);
  for (int t = first; t <= position; ++t) {
    const double p = score[static_cast<size_t>(t - first)] / total;
    const float* v = s.v.data() + (int64_t{row - position + t} * c.kv_heads + kv) * c.v_dim;
    for (int i = 0; i < c.v_dim; ++i) bounds[i] += p * std::fabs(stored(v[i], c.dtype));
  }
  for (int i = 0; i < c.v_dim; ++i) bounds[i] *= kUnit * (12 * size + 32);
}

/// Whole sequences against f64, every element, on every instruction set. Returns the largest share of the bound.
double check_case(const AttentionCase& c, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << c);
  PagedSequences s(c, 2, random);
  const auto chunks = s.whole();
  s.append(chunks);
  std::vector<double> exact(s.out_size()), bounds(s.out_size());
  attention_ref(s.layer, s.params, chunks, s.q.data(), int64_t{c.heads} * c.k_dim, exact.data(), s.out_width());
  for (int row = 0; row < 2 * c.length; ++row)
    for (int head = 0; head < c.heads; ++head)
      bounds_of(s, row, head, bounds.data() + row * s.out_width() + head * c.v_dim);
  double worst = 0;
  for_each_target([&] {
    for (AttentionArm arm : {AttentionArm::kTiles, AttentionArm::kSplit}) {
      GuardedBuffer out(s.out_size());
      s.attend(chunks, out.data(), arm);
      EXPECT_TRUE(out.guards_intact());
      for (size_t i = 0; i < out.size(); ++i) {
        const double error = std::fabs(out[i] - exact[i]);
        ASSERT_LE(error, bounds[i]) << "row " << static_cast<int64_t>(i) / s.out_width() << " element "
                                    << static_cast<int64_t>(i) % s.out_width();
        worst = std::max(worst, error / bounds[i]);
      }
    }
  });
  return worst;
}

TEST(Attention, MatchesF64) {
  std::mt19937_64 random(fresh_seed());
  const std::vector<AttentionCase> cases = {
      {9, 3, 64, 64, 0, 0, false, DType::kF32, 130},       // SmolLM2
      {4, 1, 256, 256, 70, 0, false, DType::kBF16, 130},   // gemma3
      {64, 8, 64, 64, 33, 0, true, DType::kBF16, 66},      // gpt-oss
      {4, 4, 192, 128, 0, 0, false, DType::kF16, 70},      // MLA's widths
      {8, 2, 512, 512, 0, 50.0f, false, DType::kF16, 65},  // gemma4 full layers, with a cap
      {3, 1, 80, 96, 0, 2.0f, true, DType::kF32, 67},
      {5, 5, 7, 1, 5, 0, false, DType::kF32, 129},
      {2, 1, 1, 7, 0, 0, true, DType::kBF16, 64},
      {7, 1, 17, 33, 1, 0, false, DType::kF16, 63},
      {1, 1, 128, 128, 0, 0, false, DType::kF32, 1},
      {2, 2, 64, 64, 300, 0, false, DType::kF32, 600},        // several segments
      {16, 1, 576, 512, 0, 0, false, DType::kF32, 70, true},  // DeepSeek's latent pages
      {16, 1, 576, 512, 0, 0, false, DType::kBF16, 66, true},
      {3, 1, 40, 33, 0, 0, false, DType::kF32, 130, true},  // V padded within K's row
      {3, 1, 40, 33, 20, 0, true, DType::kF16, 130, true},
      {2, 1, 34, 33, 0, 0, false, DType::kF32, 65, true},    // V's padding would leave the row
      {4, 2, 24, 16, 0, 0, false, DType::kBF16, 300, true},  // two kv heads, two segments
      {2, 1, 16, 16, 0, 0, false, DType::kF32, 65, true},
  };
  double worst = 0;
  for (const AttentionCase& c : cases) worst = std::max(worst, check_case(c, random));
  std::cout << "largest error " << worst << " of the bound\n";
}

TEST(Attention, WindowEdges) {
  std::mt19937_64 random(fresh_seed());
  for (int length : {63, 64, 65, 129}) {
    for (int window : {1, 2, 63, 64, 65, length - 1, length, length + 1})
      check_case({2, 1, 16, 16, window, 0, window % 2 == 0, DType::kF32, length}, random);
  }
}

TEST(Attention, RefArmRoundsTheReference) {
  std::mt19937_64 random(fresh_seed());
  PagedSequences s({4, 2, 16, 24, 0, 0, true, DType::kF32, 70}, 1, random);
  const auto chunks = s.whole();
  s.append(chunks);
  std::vector<double> exact(s.out_size());
  attention_ref(s.layer, s.params, chunks, s.q.data(), 4 * 16, exact.data(), s.out_width());
  GuardedBuffer out(s.out_size());
  s.attend(chunks, out.data(), AttentionArm::kRef);
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(out[i], static_cast<float>(exact[i])) << i;
}

TEST(Attention, AppendWritesTheLayoutAndNothingElse) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(dtype_name(dtype));
      PagedSequences s({2, 2, 19, 33, 0, 0, false, dtype, 70}, 1, random);
      s.k[0] = 1e-6f;  // subnormal in f16
      s.k[1] = 70000.0f;
      s.k[2] = NAN;
      const AttentionChunk part = s.chunk(0, 0, 66);
      s.append({&part, 1});
      const int64_t bytes = dtype_bytes(dtype);
      int64_t written = 0;
      for (int position = 0; position < 66; ++position) {
        for (int h = 0; h < 2; ++h) {
          const std::byte* token = s.layer.k + s.blocks[0][static_cast<size_t>(position / 64)] * s.layer.k_page_stride +
                                   (h * 64 + position % 64) * 19 * bytes;
          for (int i = 0; i < 19; ++i, ++written) {
            const float wanted = s.k[static_cast<size_t>((position * 2 + h) * 19 + i)];
            if (dtype == DType::kF32) {
              ASSERT_EQ(std::memcmp(token + i * 4, &wanted, 4), 0);
              continue;
            }
            uint16_t bits;
            std::memcpy(&bits, token + i * 2, 2);
            const double read = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
            if (std::isnan(wanted)) {
              ASSERT_TRUE(std::isnan(read));
            } else {
              ASSERT_EQ(read, stored(wanted, dtype)) << position << ' ' << h << ' ' << i << " of " << wanted;
            }
          }
        }
      }
      EXPECT_EQ(written, 66 * 2 * 19);
      const auto poisoned = std::count(s.k_pool.begin(), s.k_pool.end(), std::byte{0xff});
      EXPECT_GE(poisoned, static_cast<int64_t>(s.k_pool.size()) - written * bytes);
    }
  });
}

}  // namespace
}  // namespace galvani::kernels
