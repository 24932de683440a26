// The kernel between the q/k/v product and attention, and rope tables, against f64.
#include "kernels/rope/rope_cuda.h"

#include "kernels/attention_testing.h"
#include "kernels/cuda_testing.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"

namespace galvani::kernels {
namespace {

struct QkvCase {
  int heads, kv_heads, k_dim, v_dim, rotary;
  bool normed, interleaved, biased, v_from_k;
  float clip;
  StoreType type;
};

class CudaSmallQkv : public OnGpu {
 protected:
  void check(const QkvCase& c, std::mt19937_64& random);
  int many_ = 0;  ///< cases that the form for many rows takes
};

/// One head in f64 from its f32 values after the bias.
std::vector<double> head_ref(const QkvCase& c, const std::vector<float>& values, const std::vector<float>& weight,
                             bool rotate, int position, const std::vector<float>& frequencies) {
  const auto dim = static_cast<int64_t>(values.size());
  std::vector<double> y(values.begin(), values.end());
  if (c.normed) rms_norm_ref(values.data(), 1, dim, dim, weight.data(), {1e-6f, false}, y.data());
  if (c.clip > 0)
    for (double& v : y) v = std::clamp(v, -double{c.clip}, double{c.clip});
  if (!rotate) return y;
  std::vector<float> in(y.begin(), y.end());
  std::vector<double> out(y.size());
  rope_ref(c.interleaved ? RopePairing::kInterleaved : RopePairing::kHalfSplit, in.data(), 1, 1, dim, dim, &position,
           frequencies.data(), c.rotary, 1.25f, out.data());
  return out;
}

void CudaSmallQkv::check(const QkvCase& c, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << c.heads << '/' << c.kv_heads << " heads of " << c.k_dim << '/' << c.v_dim
                                  << " rotary " << c.rotary << " type " << int(c.type));
  const int rows = 5, pages = 40;
  const std::vector<int> positions = {0, 63, 64, 1000, -1}, sequence = {0, 1, 1, 0, 1};
  std::vector<int> blocks(2 * 20);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random);
  const int k_column = c.heads * c.k_dim, v_column = c.v_from_k ? k_column : k_column + c.kv_heads * c.k_dim;
  const int width = v_column + c.kv_heads * c.v_dim;
  const auto x = normal(random, static_cast<size_t>(rows * width)), bias = normal(random, static_cast<size_t>(width));
  const auto wq = normal(random, static_cast<size_t>(c.k_dim)), wk = normal(random, static_cast<size_t>(c.k_dim)),
             wv = normal(random, static_cast<size_t>(c.v_dim));
  std::vector<float> frequencies;
  for (int i = 0; i < c.rotary / 2; ++i)
    frequencies.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(c.rotary)));
  const auto dx = upload(x), dbias = upload(bias), dq = upload(wq), dk = upload(wk), dv = upload(wv);
  const auto dfrequencies = upload(frequencies);
  const auto dpositions = upload(positions), dsequence = upload(sequence), dblocks = upload(blocks);
  auto table = poisoned(static_cast<size_t>(rows * c.rotary), StoreType::kF32);
  ok(rope_table_cuda(*stream, {.positions = dpositions.as<int>(),
                               .inv_freq = dfrequencies.as<float>(),
                               .rows = rows,
                               .pairs = c.rotary / 2,
                               .attention_scale = 1.25f,
                               .table = reinterpret_cast<float*>(table.data())}));
  const auto k_page = static_cast<size_t>(c.kv_heads * 64 * c.k_dim),
             v_page = static_cast<size_t>(c.kv_heads * 64 * c.v_dim);
  auto pool_k = poisoned(pages * k_page, c.type), pool_v = poisoned(pages * v_page, c.type);
  auto q = poisoned(static_cast<size_t>(rows * k_column), c.type);
  const auto bytes = static_cast<size_t>(store_bytes(c.type));
  QkvArgs args{.x = dx.as<float>(), .x_stride = width, .k_column = k_column, .v_column = v_column};
  args.bias = c.biased ? dbias.as<float>() : nullptr;
  args.rows = rows, args.heads = c.heads;
  args.q_normed = args.k_normed = args.v_normed = c.normed;
  args.q_norm = {dq.as<float>(), 1e-6f, false}, args.k_norm = {dk.as<float>(), 1e-6f, false};
  args.v_norm = {dv.as<float>(), 1e-6f, false};
  args.clip = c.clip;
  args.rope = reinterpret_cast<float*>(table.data());
  args.rope_pairs = c.rotary / 2, args.interleaved = c.interleaved;
  args.q = q.data(), args.q_stride = k_column;
  args.kv = {pool_k.data(),
             pool_v.data(),
             static_cast<long long>(k_page * bytes),
             static_cast<long long>(v_page * bytes),
             c.kv_heads,
             c.k_dim,
             c.v_dim};
  args.type = c.type;
  args.tables = {dblocks.as<int>(), 20};
  args.positions = dpositions.as<int>(), args.sequence = dsequence.as<int>();
  ok(qkv_finish_cuda(*stream, args, RowsForm::kFew));

  // The other form, into outputs of its own: the same bits.
  auto other_k = poisoned(pages * k_page, c.type), other_v = poisoned(pages * v_page, c.type);
  auto other_q = poisoned(static_cast<size_t>(rows * k_column), c.type);
  QkvArgs other = args;
  other.q = other_q.data(), other.kv.k = other_k.data(), other.kv.v = other_v.data();
  const Status many = qkv_finish_cuda(*stream, other, RowsForm::kMany);
  EXPECT_EQ(many.has_value(), c.k_dim == c.v_dim && c.k_dim <= 128 && c.k_dim % 4 == 0 && c.rotary % 8 == 0) << "many";
  if (many) {
    ++many_;
    const auto same = [&](const auto& a, const auto& b, size_t count) {
      return download<unsigned char>(a.data(), count) == download<unsigned char>(b.data(), count);
    };
    EXPECT_TRUE(same(q, other_q, static_cast<size_t>(rows * k_column) * bytes)) << "q of the form for many rows";
    EXPECT_TRUE(same(pool_k, other_k, pages * k_page * bytes)) << "keys of the form for many rows";
    EXPECT_TRUE(same(pool_v, other_v, pages * v_page * bytes)) << "values of the form for many rows";
  }

  const auto got_q = read(q, c.type), got_k = read(pool_k, c.type), got_v = read(pool_v, c.type);
  size_t written = 0;
  for (int r = 0; r < rows; ++r) {
    const int position = positions[static_cast<size_t>(r)];
    for (int h = 0; h < c.heads + 2 * c.kv_heads; ++h) {
      const bool is_q = h < c.heads, is_v = h >= c.heads + c.kv_heads;
      const int kv = is_q ? 0 : (h - c.heads) % c.kv_heads, dim = is_v ? c.v_dim : c.k_dim;
      const int column = is_q ? h * c.k_dim : (is_v ? v_column : k_column) + kv * dim;
      const float* got = got_q.data() + r * k_column + h * c.k_dim;
      if (!is_q) {
        if (position < 0) continue;
        const auto page =
            static_cast<size_t>(blocks[static_cast<size_t>(sequence[static_cast<size_t>(r)] * 20 + position / 64)]);
        got = (is_v ? got_v.data() + page * v_page : got_k.data() + page * k_page) + (kv * 64 + position % 64) * dim;
        written += static_cast<size_t>(dim);
      }
      std::vector<float> values(static_cast<size_t>(dim));
      for (int i = 0; i < dim; ++i)
        values[static_cast<size_t>(i)] =
            x[static_cast<size_t>(r * width + column + i)] + (c.biased ? bias[static_cast<size_t>(column + i)] : 0.0f);
      std::vector<double> exact(static_cast<size_t>(dim), 0.0);
      if (position >= 0) exact = head_ref(c, values, is_q ? wq : is_v ? wv : wk, !is_v, position, frequencies);
      double largest = 0;
      for (const double y : exact) largest = std::max(largest, std::fabs(y));
      for (int i = 0; i < dim; ++i) {
        // Angles are rounded to f32: 2^-24 of the position (inv_freq ≤ 1) times the pair; f16 has subnormals.
        const double y = exact[static_cast<size_t>(i)], angle = position > 0 ? 0x1p-24 * position : 0;
        ASSERT_NEAR(got[i], y,
                    1.05 * store_unit(c.type) * std::fabs(y) + (1.5 * angle + 0x1p-19) * largest +
                        (c.type == StoreType::kF16 ? 0x1p-25 : 0))
            << "row " << r << " head " << h << " dim " << i;
      }
    }
  }
  size_t elements = 0;
  for (const auto* pool : {&got_k, &got_v})
    for (const float value : *pool) elements += !std::isnan(value);
  EXPECT_EQ(elements, written) << "pages were written where no token stands";
}

TEST_F(CudaSmallQkv, MatchesTheReference) {
  std::mt19937_64 random(fresh_seed());
  for (const StoreType type : {StoreType::kF32, StoreType::kF16, StoreType::kBF16}) {
    check({4, 2, 64, 64, 64, false, false, false, false, 0, type}, random);
    check({8, 1, 256, 256, 256, true, false, false, false, 0, type}, random);
    check({6, 2, 128, 128, 64, true, false, true, false, 0, type}, random);
    check({4, 4, 16, 32, 16, false, true, true, false, 0.75f, type}, random);
    check({5, 1, 512, 512, 128, true, false, false, true, 0, type}, random);
    check({3, 1, 80, 80, 32, false, true, false, false, 0, type}, random);
    check({3, 1, 128, 128, 128, true, true, true, false, 0, type}, random);
    check({2, 1, 512, 512, 512, true, false, true, false, 1.5f, type}, random);
    // No vectors of four: the dim, half the pairs, the pairs, v's dim, the length, a column.
    check({3, 2, 30, 30, 20, true, false, true, false, 0, type}, random);
    check({4, 2, 64, 64, 20, true, false, false, false, 0, type}, random);
    check({4, 2, 64, 64, 10, false, true, true, false, 0, type}, random);
    check({2, 1, 128, 126, 128, true, false, true, false, 0, type}, random);
    check({2, 1, 640, 640, 128, true, false, true, false, 0, type}, random);
    check({1, 1, 2, 3, 2, true, false, true, false, 0, type}, random);
  }
  EXPECT_EQ(many_, 3 * 4);
}

}  // namespace
}  // namespace galvani::kernels
