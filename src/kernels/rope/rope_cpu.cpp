#include "kernels/rope/rope.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope_cpu.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

HWY_INLINE void turn(F32Vec& a, F32Vec& b, F32Vec c, F32Vec s) {
  const F32Vec old = a;
  a = hn::NegMulAdd(b, s, hn::Mul(a, c));
  b = hn::MulAdd(old, s, hn::Mul(b, c));
}

/// One row: heads of head_dim, the first 2·half dims of each turned.
void turn_half_split(float* x, int64_t heads, int64_t head_dim, int64_t half, const float* cosine, const float* sine) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t h = 0; h < heads; ++h, x += head_dim) {
    int64_t i = 0;
    for (; i + lanes <= half; i += lanes) {
      F32Vec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
      turn(a, b, hn::LoadU(d, cosine + i), hn::LoadU(d, sine + i));
      hn::StoreU(a, d, x + i);
      hn::StoreU(b, d, x + half + i);
    }
    if (i < half) {
      const size_t n = static_cast<size_t>(half - i);
      F32Vec a = load_partial(d, x + i, n), b = load_partial(d, x + half + i, n);
      turn(a, b, load_partial(d, cosine + i, n), load_partial(d, sine + i, n));
      store_partial(d, a, x + i, n);
      store_partial(d, b, x + half + i, n);
    }
  }
}

void turn_interleaved(float* x, int64_t heads, int64_t head_dim, int64_t half, const float* cosine, const float* sine) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float pairs[2 * hn::MaxLanes(F32())] = {};
  for (int64_t h = 0; h < heads; ++h, x += head_dim) {
    int64_t i = 0;
    F32Vec a, b;
    for (; i + lanes <= half; i += lanes) {
      hn::LoadInterleaved2(d, x + 2 * i, a, b);
      turn(a, b, hn::LoadU(d, cosine + i), hn::LoadU(d, sine + i));
      hn::StoreInterleaved2(a, b, d, x + 2 * i);
    }
    if (i < half) {
      const size_t n = static_cast<size_t>(half - i);
      std::memcpy(pairs, x + 2 * i, 2 * n * sizeof(float));
      hn::LoadInterleaved2(d, pairs, a, b);
      turn(a, b, load_partial(d, cosine + i, n), load_partial(d, sine + i, n));
      hn::StoreInterleaved2(a, b, d, pairs);
      std::memcpy(x + 2 * i, pairs, 2 * n * sizeof(float));
    }
  }
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {

HWY_EXPORT(turn_half_split);
HWY_EXPORT(turn_interleaved);
constexpr int32_t kLargestF32Position = 1 << 17;
constexpr int64_t kElementsPerTask = 16384;
constexpr int64_t kAnglesPerTask = 512;

void build_row(int32_t position, const float* inv_freq, int64_t half, float factor, float* cosine, float* sine) {
  for (int64_t i = 0; i < half; ++i) {
    if (position > kLargestF32Position) {
      const double angle = double{inv_freq[i]} * position;
      cosine[i] = static_cast<float>(std::cos(angle)) * factor;
      sine[i] = static_cast<float>(std::sin(angle)) * factor;
    } else {
      const float angle = inv_freq[i] * static_cast<float>(position);
      cosine[i] = std::cos(angle) * factor;
      sine[i] = std::sin(angle) * factor;
    }
  }
}

}  // namespace

void rope_build(RopeTable& table, const int32_t* positions, int64_t rows, const float* inv_freq, int64_t rotary_dim,
                float attention_scale) {
  GALVANI_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0, "rotary_dim is {}, must be even", rotary_dim);
  const int64_t half = rotary_dim / 2;
  table.rows = rows;
  table.rotary_dim = rotary_dim;
  table.cosine.resize(static_cast<size_t>(rows * half));
  table.sine.resize(static_cast<size_t>(rows * half));
  if (half == 0) return;
  parallel_for(rows, std::max<int64_t>(1, kAnglesPerTask / half), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      build_row(positions[r], inv_freq, half, attention_scale, table.cosine.data() + r * half,
                table.sine.data() + r * half);
  });
}

void rope_apply(const RopeTable& table, RopePairing pairing, float* x, int64_t first_row, int64_t rows, int64_t heads,
                int64_t head_dim, int64_t row_stride) {
  GALVANI_CHECK(first_row >= 0 && first_row + rows <= table.rows, "rows [{}, {}) of a rope table of {}", first_row,
                first_row + rows, table.rows);
  GALVANI_CHECK(table.rotary_dim <= head_dim, "rotary_dim {} exceeds head_dim {}", table.rotary_dim, head_dim);
  const int64_t half = table.rotary_dim / 2;
  if (half == 0 || heads <= 0) return;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / (heads * 2 * half));
  parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* cosine = table.cosine.data() + (first_row + r) * half;
      const float* sine = table.sine.data() + (first_row + r) * half;
      if (pairing == RopePairing::kHalfSplit) {
        HWY_DYNAMIC_DISPATCH(turn_half_split)(x + r * row_stride, heads, head_dim, half, cosine, sine);
      } else {
        HWY_DYNAMIC_DISPATCH(turn_interleaved)(x + r * row_stride, heads, head_dim, half, cosine, sine);
      }
    }
  });
}

void rope_half_split(float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
                     const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale) {
  RopeTable table;
  rope_build(table, positions, rows, inv_freq, rotary_dim, attention_scale);
  rope_apply(table, RopePairing::kHalfSplit, x, 0, rows, heads, head_dim, row_stride);
}

void rope_interleaved(float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
                      const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale) {
  RopeTable table;
  rope_build(table, positions, rows, inv_freq, rotary_dim, attention_scale);
  rope_apply(table, RopePairing::kInterleaved, x, 0, rows, heads, head_dim, row_stride);
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
