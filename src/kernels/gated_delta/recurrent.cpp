// The recurrence token by token. A column of S depends on its own column of v alone, so S is walked in blocks of
// columns: narrow ones that stay in L1 while all tokens pass when there are many, whole rows when there is one. A
// column's operations and their order are the same in both, and so are its bits.
//
// A token needs S twice: kᵀS before its update, qᵀS after it. The update of token t and the kᵀS of token t + 1 share
// one walk, so that a prompt costs one load, one store and four operations an element and token.
#include <cstdint>

#include "kernels/common/simd_targets.h"
#include "kernels/gated_delta/steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_delta/recurrent.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

/// known[n] = kᵀ S for kVectors vectors of columns.
template <int kVectors, class D>
HWY_INLINE void project(D d, const float* k, const float* state, int k_dim, int64_t v_dim, hn::Vec<D>* known) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> sum[kVectors];
  GALVANI_UNROLL
  for (int n = 0; n < kVectors; ++n) sum[n] = hn::Zero(d);
  for (int i = 0; i < k_dim; ++i) {
    const auto factor = hn::Set(d, k[i]);
    const float* row = state + i * v_dim;
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) sum[n] = hn::MulAdd(factor, hn::LoadU(d, row + n * lanes), sum[n]);
  }
  GALVANI_UNROLL
  for (int n = 0; n < kVectors; ++n) known[n] = sum[n];
}

/// S ← decay · S + k dᵀ and o = qᵀ S; with kNext also known = next_kᵀ S.
template <int kVectors, bool kNext, class D>
HWY_INLINE void update(D d, const float* q, const float* k, const float* next_k, float decay, const hn::Vec<D>* change,
                       float* state, int k_dim, int64_t v_dim, float* out, hn::Vec<D>* known) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto keep = hn::Set(d, decay);
  hn::Vec<D> read[kVectors], sum[kVectors], by[kVectors];
  GALVANI_UNROLL
  for (int n = 0; n < kVectors; ++n) {
    read[n] = sum[n] = hn::Zero(d);
    by[n] = change[n];
  }
  for (int i = 0; i < k_dim; ++i) {
    const auto key = hn::Set(d, k[i]), query = hn::Set(d, q[i]);
    const auto next = hn::Set(d, kNext ? next_k[i] : 0.0f);
    float* row = state + i * v_dim;
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const auto s = hn::MulAdd(key, by[n], hn::Mul(keep, hn::LoadU(d, row + n * lanes)));
      hn::StoreU(s, d, row + n * lanes);
      read[n] = hn::MulAdd(query, s, read[n]);
      if (kNext) sum[n] = hn::MulAdd(next, s, sum[n]);
    }
  }
  GALVANI_UNROLL
  for (int n = 0; n < kVectors; ++n) {
    hn::StoreU(read[n], d, out + n * lanes);
    if (kNext) known[n] = sum[n];
  }
}

/// All tokens over kVectors vectors of columns from `column` on.
template <int kVectors, class D>
void run_block(D d, const DeltaHead& head, int64_t column) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* state = head.state + column;
  hn::Vec<D> known[kVectors], change[kVectors];
  project<kVectors>(d, head.k, state, head.k_dim, head.v_dim, known);
  for (int64_t t = 0; t < head.count; ++t) {
    const float* q = head.q + t * head.stride;
    const float* k = head.k + t * head.stride;
    const float* v = head.v + t * head.stride + column;
    float* out = head.out + t * head.out_stride + column;
    const float decay = head.decay[t * head.gate_stride];
    const auto beta = hn::Set(d, head.beta[t * head.gate_stride]), keep = hn::Set(d, decay);
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n)
      change[n] = hn::Mul(beta, hn::NegMulAdd(keep, known[n], hn::LoadU(d, v + n * lanes)));
    if (t + 1 < head.count) {
      update<kVectors, true>(d, q, k, k + head.stride, decay, change, state, head.k_dim, head.v_dim, out, known);
    } else {
      update<kVectors, false>(d, q, k, k, decay, change, state, head.k_dim, head.v_dim, out, known);
    }
  }
}

/// Columns from `column` on in blocks of kVectors vectors, what is left in narrower ones.
template <int kVectors, class D>
void run_columns(D d, const DeltaHead& head, int64_t column) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; column + kVectors * lanes <= head.v_dim; column += kVectors * lanes) run_block<kVectors>(d, head, column);
  if constexpr (kVectors > 1) run_columns<kVectors / 2>(d, head, column);
}

void recurrent(const DeltaHead& head) {
  const F32 d;
  if (head.v_dim % static_cast<int>(hn::Lanes(d)) == 0) {
    // 16 registers hold the sums of 4 vectors of columns twice and their changes; 32 hold those of 8. A block of 4 of
    // 16 lanes and 128 rows is 32 KB, what L1 holds.
    constexpr int kWide = hn::MaxLanes(F32()) >= 16 ? 8 : 4;
    if (head.count == 1) {
      run_columns<kWide>(d, head, 0);
    } else {
      run_columns<4>(d, head, 0);
    }
  } else if (head.v_dim % 4 == 0) {
    run_columns<1>(hn::CappedTag<float, 4>(), head, 0);
  } else {
    run_columns<1>(hn::CappedTag<float, 1>(), head, 0);
  }
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {
HWY_EXPORT(recurrent);
}

void delta_recurrent(const DeltaHead& head) { HWY_DYNAMIC_DISPATCH(recurrent)(head); }

}  // namespace galvani::kernels
#endif  // HWY_ONCE
