#include "kernels/elementwise/elementwise.h"

#include <algorithm>
#include <limits>

#include "core/parallel.h"
#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise_cpu.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

/// out[i] = f(a[i], b[i]); b may be null for functions of one argument.
template <typename F>
HWY_INLINE void map(const float* a, const float* b, float* out, int64_t n, const F& f) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const F32Vec x = hn::LoadU(d, a + i);
    hn::StoreU(f(d, x, b ? hn::LoadU(d, b + i) : x), d, out + i);
  }
  if (i == n) return;
  const size_t rest = static_cast<size_t>(n - i);
  const F32Vec x = load_partial(d, a + i, rest);
  store_partial(d, f(d, x, b ? load_partial(d, b + i, rest) : x), out + i, rest);
}

struct SwiGlu {
  HWY_INLINE F32Vec operator()(F32 d, F32Vec g, F32Vec u) const {
    return hn::Mul(hn::Div(g, hn::Add(hn::Set(d, 1.0f), exp_full(d, hn::Neg(g)))), u);
  }
};

struct GeGluTanh {
  HWY_INLINE F32Vec operator()(F32 d, F32Vec g, F32Vec u) const {
    // −2·√(2/π)·(g + 0.044715 g³)
    const F32Vec cubic = hn::MulAdd(hn::Mul(g, g), hn::Set(d, -0.07135481627f), hn::Set(d, -1.59576912161f));
    const F32Vec e = exp_full(d, hn::Mul(g, cubic));
    return hn::Mul(hn::Div(g, hn::Add(hn::Set(d, 1.0f), e)), u);
  }
};

struct SwiGluClamped {
  float alpha, limit;
  HWY_INLINE F32Vec operator()(F32 d, F32Vec g, F32Vec u) const {
    const F32Vec one = hn::Set(d, 1.0f), gate = at_most(d, g, limit);
    const F32Vec up = at_most(d, at_least(d, u, -limit), limit);
    const F32Vec e = exp_full(d, hn::Mul(gate, hn::Set(d, -alpha)));
    return hn::Mul(hn::Div(gate, hn::Add(one, e)), hn::Add(up, one));
  }
};

struct SigmoidMul {
  HWY_INLINE F32Vec operator()(F32 d, F32Vec g, F32Vec x) const { return hn::Mul(sigmoid(d, g), x); }
};

void map_swiglu(const float* g, const float* u, float* out, int64_t n) { map(g, u, out, n, SwiGlu{}); }
void map_geglu(const float* g, const float* u, float* out, int64_t n) { map(g, u, out, n, GeGluTanh{}); }
void map_sigmoid_mul(const float* g, const float* x, float* out, int64_t n) { map(g, x, out, n, SigmoidMul{}); }
void map_swiglu_clamped(const float* g, const float* u, float* out, int64_t n, float alpha, float limit) {
  map(g, u, out, n, SwiGluClamped{alpha, limit});
}

struct Add2 {
  HWY_INLINE F32Vec operator()(F32, F32Vec a, F32Vec b) const { return hn::Add(a, b); }
};
struct Scale {
  float factor;
  HWY_INLINE F32Vec operator()(F32 d, F32Vec a, F32Vec) const { return hn::Mul(a, hn::Set(d, factor)); }
};
struct SoftCap {
  float cap;
  HWY_INLINE F32Vec operator()(F32 d, F32Vec a, F32Vec) const {
    const F32Vec c = hn::Set(d, cap);
    return hn::Mul(c, tanh(d, hn::Div(a, c)));
  }
};
struct Clamp {
  float low, high;
  HWY_INLINE F32Vec operator()(F32 d, F32Vec a, F32Vec) const { return at_most(d, at_least(d, a, low), high); }
};

void map_add(const float* a, const float* b, float* out, int64_t n) { map(a, b, out, n, Add2{}); }
void map_scale(float* x, int64_t n, float factor) { map(x, nullptr, x, n, Scale{factor}); }
void map_softcap(float* x, int64_t n, float cap) { map(x, nullptr, x, n, SoftCap{cap}); }
void map_clamp(float* x, int64_t n, float low, float high) { map(x, nullptr, x, n, Clamp{low, high}); }

/// Largest element, or NaN when there is one. n > 0.
float max_or_nan(const float* x, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kLow = -std::numeric_limits<float>::infinity();
  F32Vec best[4] = {hn::Set(d, kLow), hn::Set(d, kLow), hn::Set(d, kLow), hn::Set(d, kLow)};
  F32Vec zero_or_nan = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (int64_t k = 0; k < 4; ++k) {
      const F32Vec v = hn::LoadU(d, x + i + k * lanes);
      best[k] = hn::Max(v, best[k]);
      zero_or_nan = hn::Or(zero_or_nan, hn::VecFromMask(d, hn::IsNaN(v)));
    }
  }
  for (; i < n; i += lanes) {
    const F32Vec v = i + lanes <= n ? hn::LoadU(d, x + i) : load_partial(d, x + i, static_cast<size_t>(n - i), kLow);
    best[0] = hn::Max(v, best[0]);
    zero_or_nan = hn::Or(zero_or_nan, hn::VecFromMask(d, hn::IsNaN(v)));
  }
  const hn::RebindToUnsigned<F32> du;
  if (!hn::AllTrue(du, hn::Eq(hn::BitCast(du, zero_or_nan), hn::Zero(du))))
    return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3]))));
}

/// Index of the first element equal to value, n if there is none.
int64_t first_equal(const float* x, int64_t n, float value) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec wanted = hn::Set(d, value);
  int64_t i = 0;
  while (i + lanes <= n && hn::AllFalse(d, hn::Eq(hn::LoadU(d, x + i), wanted))) i += lanes;
  while (i < n && x[i] != value) ++i;
  return i;
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {

HWY_EXPORT(map_swiglu);
HWY_EXPORT(map_geglu);
HWY_EXPORT(map_sigmoid_mul);
HWY_EXPORT(map_swiglu_clamped);
HWY_EXPORT(map_add);
HWY_EXPORT(map_scale);
HWY_EXPORT(map_softcap);
HWY_EXPORT(map_clamp);
HWY_EXPORT(max_or_nan);
HWY_EXPORT(first_equal);

constexpr int64_t kGrain = 8192;  // elements; below this a thread costs more than it saves

/// Calls body(row, first column, count) on pieces that cover [rows, dim], in parallel.
template <typename Body>
void for_pieces(int64_t rows, int64_t dim, const Body& body) {
  if (dim <= 0) return;
  parallel_for(rows * dim, kGrain, [&](int64_t begin, int64_t end, int) {
    while (begin < end) {
      const int64_t row = begin / dim, column = begin % dim, count = std::min(dim - column, end - begin);
      body(row, column, count);
      begin += count;
    }
  });
}

}  // namespace

void swiglu(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride, int64_t up_stride,
            float* out, int64_t out_stride) {
  for_pieces(rows, dim, [&](int64_t r, int64_t c, int64_t n) {
    HWY_DYNAMIC_DISPATCH(map_swiglu)(gate + r * gate_stride + c, up + r * up_stride + c, out + r * out_stride + c, n);
  });
}

void geglu_tanh(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride, int64_t up_stride,
                float* out, int64_t out_stride) {
  for_pieces(rows, dim, [&](int64_t r, int64_t c, int64_t n) {
    HWY_DYNAMIC_DISPATCH(map_geglu)(gate + r * gate_stride + c, up + r * up_stride + c, out + r * out_stride + c, n);
  });
}

void swiglu_clamped(const float* gate, const float* up, int64_t rows, int64_t dim, int64_t gate_stride,
                    int64_t up_stride, float alpha, float limit, float* out, int64_t out_stride) {
  for_pieces(rows, dim, [&](int64_t r, int64_t c, int64_t n) {
    HWY_DYNAMIC_DISPATCH(map_swiglu_clamped)
    (gate + r * gate_stride + c, up + r * up_stride + c, out + r * out_stride + c, n, alpha, limit);
  });
}

void sigmoid_mul(const float* gate, const float* x, int64_t rows, int64_t dim, int64_t gate_stride, int64_t x_stride,
                 float* out, int64_t out_stride) {
  for_pieces(rows, dim, [&](int64_t r, int64_t c, int64_t n) {
    HWY_DYNAMIC_DISPATCH(map_sigmoid_mul)
    (gate + r * gate_stride + c, x + r * x_stride + c, out + r * out_stride + c, n);
  });
}

void add(float* x, const float* y, int64_t n) {
  for_pieces(1, n, [&](int64_t, int64_t c, int64_t count) {
    HWY_DYNAMIC_DISPATCH(map_add)(x + c, y + c, x + c, count);
  });
}

void add_bias(float* x, int64_t rows, int64_t dim, int64_t stride, const float* bias) {
  for_pieces(rows, dim, [&](int64_t r, int64_t c, int64_t count) {
    float* row = x + r * stride + c;
    HWY_DYNAMIC_DISPATCH(map_add)(row, bias + c, row, count);
  });
}

void scale(float* x, int64_t n, float factor) {
  for_pieces(1, n, [&](int64_t, int64_t c, int64_t count) { HWY_DYNAMIC_DISPATCH(map_scale)(x + c, count, factor); });
}

void softcap(float* x, int64_t n, float cap) {
  for_pieces(1, n, [&](int64_t, int64_t c, int64_t count) { HWY_DYNAMIC_DISPATCH(map_softcap)(x + c, count, cap); });
}

void clamp(float* x, int64_t n, float low, float high) {
  for_pieces(1, n, [&](int64_t, int64_t c, int64_t count) {
    HWY_DYNAMIC_DISPATCH(map_clamp)(x + c, count, low, high);
  });
}

int64_t argmax(const float* x, int64_t n) {
  if (n <= 0) return -1;
  const float peak = HWY_DYNAMIC_DISPATCH(max_or_nan)(x, n);
  if (peak != peak) return -1;
  return HWY_DYNAMIC_DISPATCH(first_equal)(x, n, peak);
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
