// Per-target header of attention_tile.cpp: the two register-blocked products of attention, and the page conversions.
// Every sum runs over its index in ascending order, one accumulator per result, so blocking does not change a bit.
#if defined(GALVANI_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GALVANI_ATTENTION_BLOCK_INL_H_
#undef GALVANI_ATTENTION_BLOCK_INL_H_
#else
#define GALVANI_ATTENTION_BLOCK_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "kernels/attention/attention_tile.h"
#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

// Register block: kBlockRows × kBlockVectors accumulators plus that many operands fit 32 or 16 registers.
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kBlockVectors = kLanes >= 16 ? 4 : 2;

/// scores[r, j] = Σ_d q[r, d] · k[d, j] for R rows and V vectors of keys; k: [k_dim, 64], scores: [R, 64].
template <int R, int V>
HWY_INLINE void score_block(const float* q, int64_t k_dim, const float* k, float* scores) {
  const F32 d;
  F32Vec sum[R][V];
  GALVANI_UNROLL
  for (int r = 0; r < R; ++r) {
    GALVANI_UNROLL
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < k_dim; ++i) {
    F32Vec key[V];
    GALVANI_UNROLL
    for (int v = 0; v < V; ++v) key[v] = hn::LoadU(d, k + i * kPageTokens + v * kLanes);
    GALVANI_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32Vec x = hn::Set(d, q[r * k_dim + i]);
      GALVANI_UNROLL
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, key[v], sum[r][v]);
    }
  }
  GALVANI_UNROLL
  for (int r = 0; r < R; ++r) {
    GALVANI_UNROLL
    for (int v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, scores + r * kPageTokens + v * kLanes);
  }
}

/// Rows of a page that will be needed next, to be brought into the cache one by one between computations; else memory
/// idles while a decode step computes, and the step waits while memory works.
struct Ahead {
  const std::byte* rows = nullptr;
  int64_t row_bytes = 0;  ///< 0: nothing to fetch
  HWY_INLINE void fetch(int64_t row) const {
    for (int64_t b = row * row_bytes, end = b + row_bytes; b < end; b += 64) hwy::Prefetch(rows + b);
  }
};

/// acc[r, i] = acc[r, i] · decay[r] + Σ_{j < n} p[r, j] · value[j, i] for R rows and V vectors of dims.
template <int R, int V>
HWY_INLINE void value_block(const float* p, const float* decay, const float* value, int64_t value_stride, int n,
                            float* acc, int64_t acc_stride, Ahead ahead) {
  const F32 d;
  F32Vec sum[R][V];
  GALVANI_UNROLL
  for (int r = 0; r < R; ++r) {
    const F32Vec factor = hn::Set(d, decay[r]);
    GALVANI_UNROLL
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Mul(hn::LoadU(d, acc + r * acc_stride + v * kLanes), factor);
  }
  for (int j = 0; j < n; ++j) {
    ahead.fetch(j);
    F32Vec x[V];
    GALVANI_UNROLL
    for (int v = 0; v < V; ++v) x[v] = hn::LoadU(d, value + j * value_stride + v * kLanes);
    GALVANI_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32Vec weight = hn::Set(d, p[r * kPageTokens + j]);
      GALVANI_UNROLL
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(weight, x[v], sum[r][v]);
    }
  }
  GALVANI_UNROLL
  for (int r = 0; r < R; ++r) {
    GALVANI_UNROLL
    for (int v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, acc + r * acc_stride + v * kLanes);
  }
}

/// Calls f.template run<R, V>() for run-time rows 1 … kBlockRows and vectors 1 … kBlockVectors.
template <int R, typename F>
HWY_INLINE void with_vectors(int vectors, const F& f) {
  if constexpr (kBlockVectors == 4) {
    if (vectors == 4) return f.template run<R, 4>();
    if (vectors == 3) return f.template run<R, 3>();
  }
  if (vectors == 2) return f.template run<R, 2>();
  f.template run<R, 1>();
}
template <typename F>
HWY_INLINE void with_shape(int rows, int vectors, const F& f) {
  switch (rows) {
    case 6: return with_vectors<6>(vectors, f);
    case 5: return with_vectors<5>(vectors, f);
    case 4: return with_vectors<4>(vectors, f);
    case 3: return with_vectors<3>(vectors, f);
    case 2: return with_vectors<2>(vectors, f);
    default: return with_vectors<1>(vectors, f);
  }
}

struct ScoreBlock {
  const float* q;
  int64_t k_dim;
  const float* k;
  float* scores;
  template <int R, int V>
  HWY_INLINE void run() const {
    score_block<R, V>(q, k_dim, k, scores);
  }
};
struct ValueBlock {
  const float *p, *decay, *value;
  int64_t value_stride;
  int n;
  float* acc;
  int64_t acc_stride;
  Ahead ahead;
  template <int R, int V>
  HWY_INLINE void run() const {
    value_block<R, V>(p, decay, value, value_stride, n, acc, acc_stride, ahead);
  }
};

/// Scores of `rows` rows against the keys of vectors [begin, end) of a page.
HWY_NOINLINE inline void score_rows(const float* q, int rows, int64_t k_dim, const float* k_columns, int begin, int end,
                                    float* scores) {
  for (int v = begin; v < end; v += kBlockVectors) {
    const int vectors = end - v < kBlockVectors ? end - v : kBlockVectors;
    with_shape(rows, vectors, ScoreBlock{q, k_dim, k_columns + v * kLanes, scores + v * kLanes});
  }
}

/// acc ← acc · decay + p · V over keys [begin, end) for `rows` rows; acc_stride elements is a whole number of vectors.
HWY_NOINLINE inline void value_rows(const float* p, const float* decay, int rows, const float* values,
                                    int64_t value_stride, int begin, int end, float* acc, int64_t acc_stride,
                                    Ahead ahead = {}) {
  const int all = static_cast<int>(acc_stride) / kLanes;
  for (int v = 0; v < all; v += kBlockVectors) {
    const int vectors = all - v < kBlockVectors ? all - v : kBlockVectors;
    with_shape(rows, vectors,
               ValueBlock{p + begin, decay, values + begin * value_stride + v * kLanes, value_stride, end - begin,
                          acc + v * kLanes, acc_stride, v == 0 ? ahead : Ahead{}});
  }
}

/// count elements of dtype to f32.
HWY_NOINLINE inline void to_f32(const std::byte* source, DType dtype, int64_t count, float* target) {
  if (dtype == DType::kF32) {
    std::memcpy(target, source, static_cast<size_t>(count) * 4);
    return;
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(source);
  int64_t i = 0;
  const F32 d;
  if (dtype == DType::kBF16) {
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint16_t, F32> dh;
    for (; i + kLanes <= count; i += kLanes)
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, bits + i)))), d, target + i);
    for (; i < count; ++i) target[i] = bf16_to_f32(bits[i]);
    return;
  }
  const hn::Rebind<hwy::float16_t, F32> dh;
  const auto* halves = reinterpret_cast<const hwy::float16_t*>(source);
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, halves + i)), d, target + i);
  for (; i < count; ++i) target[i] = f16_to_f32(bits[i]);
}

/// Asks for `bytes` bytes at p to be brought into the cache; null asks for nothing.
HWY_INLINE void prefetch(const std::byte* p, int64_t bytes) {
  if (!p) return;
  for (int64_t b = 0; b < bytes; b += 64) hwy::Prefetch(p + b);
}

/// Four consecutive elements of a page as f32, and one.
template <DType kType>
struct Elements;
template <>
struct Elements<DType::kF32> {
  using Storage = float;
  static float one(float x) { return x; }
#if HWY_TARGET != HWY_SCALAR
  static HWY_INLINE hn::Vec<hn::Full128<float>> four(const float* p) { return hn::LoadU(hn::Full128<float>(), p); }
#endif
};
template <>
struct Elements<DType::kF16> {
  using Storage = uint16_t;
  static float one(uint16_t x) { return f16_to_f32(x); }
#if HWY_TARGET != HWY_SCALAR
  static HWY_INLINE hn::Vec<hn::Full128<float>> four(const uint16_t* p) {
    const hn::Full64<hwy::float16_t> half;
    return hn::PromoteTo(hn::Full128<float>(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
  }
#endif
};
template <>
struct Elements<DType::kBF16> {
  using Storage = uint16_t;
  static float one(uint16_t x) { return bf16_to_f32(x); }
#if HWY_TARGET != HWY_SCALAR
  static HWY_INLINE hn::Vec<hn::Full128<float>> four(const uint16_t* p) {
    const hn::Full128<uint32_t> wide;
    const auto bits = hn::PromoteTo(wide, hn::LoadU(hn::Full64<uint16_t>(), p));
    return hn::BitCast(hn::Full128<float>(), hn::ShiftLeft<16>(bits));
  }
#endif
};

/// columns[d, j] = page[j, d] in f32, for the keys [begin, end) widened to multiples of 4; page: [64, k_dim] of kType,
/// columns: [k_dim, 64]. The same rows of `ahead` are fetched meanwhile.
template <DType kType>
HWY_NOINLINE void transpose_page(const std::byte* page, int64_t k_dim, int begin, int end, float* columns,
                                 Ahead ahead) {
  using Type = Elements<kType>;
  const auto* rows = reinterpret_cast<const typename Type::Storage*>(page);
  // 16 keys at a time: whole lines of `columns` are written, and few rows are read at once.
  for (int block = begin / 16 * 16; block < end; block += 16) {
    const int from = std::max(block, begin / 4 * 4), to = std::min(block + 16, (end + 3) / 4 * 4);
    for (int j = from; j < to; ++j) ahead.fetch(j);
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::Full128<float> d;
    const hn::Full128<double> wide;
    for (; i + 4 <= k_dim; i += 4) {
      for (int j = from; j < to; j += 4) {
        const auto* in = rows + j * k_dim + i;
        const auto a = Type::four(in), b = Type::four(in + k_dim);
        const auto c = Type::four(in + 2 * k_dim), e = Type::four(in + 3 * k_dim);
        const auto ab_low = hn::BitCast(wide, hn::InterleaveLower(d, a, b));
        const auto ab_high = hn::BitCast(wide, hn::InterleaveUpper(d, a, b));
        const auto ce_low = hn::BitCast(wide, hn::InterleaveLower(d, c, e));
        const auto ce_high = hn::BitCast(wide, hn::InterleaveUpper(d, c, e));
        float* out = columns + i * kPageTokens + j;
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab_low, ce_low)), d, out);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab_low, ce_low)), d, out + kPageTokens);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab_high, ce_high)), d, out + 2 * kPageTokens);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab_high, ce_high)), d, out + 3 * kPageTokens);
      }
    }
#endif
    for (; i < k_dim; ++i) {
      for (int j = from; j < to; ++j) columns[i * kPageTokens + j] = Type::one(rows[j * k_dim + i]);
    }
  }
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GALVANI_ATTENTION_BLOCK_INL_H_
