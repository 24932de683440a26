/// Few tokens, f32: Highway, compiled for each target and chosen at run time. A lane is a row; codes become floats by
/// shift, arithmetic shift and conversion; x is broadcast. Sums of a group of 32 columns (16 where the group is 16) are
/// multiplied by the scale once.
#include <cstring>

#include "kernels/qmatmul/arms.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/qmatmul/rows_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/qmatmul/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Tokens t … t + kTokens of one sub-block of lanes.
template <int kTokens>
struct RowSums {
  // Written out because g++ makes the implicit one without NEON's target options, and then cannot inline the vectors'.
  HWY_INLINE RowSums() {}
  F32V even[kTokens], odd[kTokens], total[kTokens];
};

template <class Codec, int kSlot, int kEnd, int kTokens>
HWY_INLINE void AddSlots(const Codec& codec, const I32V* v, const float* x, int64_t stride, RowSums<kTokens>& sums) {
  if constexpr (kSlot < kEnd) {
    const F32 d;
    F32V even, odd;
    codec.template Slot<kSlot>(v, even, odd);
    for (int t = 0; t < kTokens; ++t) {
      sums.even[t] = hn::MulAdd(even, hn::Set(d, x[t * stride + 2 * kSlot]), sums.even[t]);
      sums.odd[t] = hn::MulAdd(odd, hn::Set(d, x[t * stride + 2 * kSlot + 1]), sums.odd[t]);
    }
    AddSlots<Codec, kSlot + 1, kEnd, kTokens>(codec, v, x, stride, sums);
  }
}

/// Slots [kBegin, kEnd) are (part of) one group: sum them and add scale and bias.
template <class Codec, int kBegin, int kEnd, int kTokens>
HWY_INLINE void AddGroup(const Codec& codec, const Lanes16& lanes, const I32V* v, const float* x, int64_t stride,
                         int64_t group, const float* x_sums, int64_t sums_stride, RowSums<kTokens>& sums) {
  const F32 d;
  for (int t = 0; t < kTokens; ++t) sums.even[t] = sums.odd[t] = hn::Zero(d);
  AddSlots<Codec, kBegin, kEnd, kTokens>(codec, v, x, stride, sums);
  const F32V scale = lanes.Scale(group);
  if (!lanes.has_bias) {
    for (int t = 0; t < kTokens; ++t)
      sums.total[t] = hn::MulAdd(hn::Add(sums.even[t], sums.odd[t]), scale, sums.total[t]);
    return;
  }
  const F32V bias = lanes.Bias(group), zero = hn::Set(d, lanes.w.zero);
  for (int t = 0; t < kTokens; ++t) {
    const F32V x_sum = hn::Set(d, x_sums[t * sums_stride]);
    const F32V sum = hn::MulAdd(zero, x_sum, hn::Add(sums.even[t], sums.odd[t]));
    sums.total[t] = hn::MulAdd(bias, x_sum, hn::MulAdd(sum, scale, sums.total[t]));
  }
}

template <class Codec, bool kGroup16, int kTokens>
void CodesBlock(const ArmCall& call, const std::byte* block, int64_t t0, float* out) {
  const F32 d;
  const PackedMatrix& w = call.w;
  const float* x = call.x.f32_row(t0);
  const int64_t stride = call.x.stride, sums_stride = call.x.sums_stride;
  const float* x_sums = call.x.group_sums(t0, kGroup16 ? 16 : 32);
  const int64_t units_a_group = kGroup16 ? 1 : w.group / 32;
  for (int64_t lane = 0; lane < kBlockRows; lane += static_cast<int64_t>(hn::Lanes(d))) {
    const Codec codec(w);
    const Lanes16 lanes(w, w.scales_of(block), lane);
    RowSums<kTokens> sums;
    for (int t = 0; t < kTokens; ++t) sums.total[t] = hn::Zero(d);
    for (int64_t u = 0; u < w.units; ++u) {
      I32V v[Codec::kBits];
      LoadUnit<Codec::kBits>(block + u * Codec::kBits * 64 + lane * 4, v);
      const float* xu = x + u * kUnitCols;
      if constexpr (kGroup16) {
        AddGroup<Codec, 0, 8, kTokens>(codec, lanes, v, xu, stride, 2 * u, x_sums + 2 * u, sums_stride, sums);
        AddGroup<Codec, 8, 16, kTokens>(codec, lanes, v, xu, stride, 2 * u + 1, x_sums + 2 * u + 1, sums_stride, sums);
      } else {
        AddGroup<Codec, 0, 16, kTokens>(codec, lanes, v, xu, stride, u / units_a_group, x_sums + u, sums_stride, sums);
      }
    }
    for (int t = 0; t < kTokens; ++t) hn::StoreU(sums.total[t], d, out + t * kBlockRows + lane);
  }
}

/// Dense columns: kBF16 as pairs, kF16 and kF32 as single columns.
template <PackKind kKind, int kTokens>
void DenseBlock(const ArmCall& call, const std::byte* block, int64_t t0, float* out) {
  const F32 d;
  const float* x = call.x.f32_row(t0);
  const int64_t stride = call.x.stride;
  for (int64_t lane = 0; lane < kBlockRows; lane += static_cast<int64_t>(hn::Lanes(d))) {
    F32V even[kTokens], odd[kTokens];
    for (int t = 0; t < kTokens; ++t) even[t] = odd[t] = hn::Zero(d);
    for (int64_t k = 0; k < call.w.padded_cols; k += 2) {
      F32V a, b;
      LoadDensePair<kKind>(block, k, lane, a, b);
      for (int t = 0; t < kTokens; ++t) {
        even[t] = hn::MulAdd(a, hn::Set(d, x[t * stride + k]), even[t]);
        odd[t] = hn::MulAdd(b, hn::Set(d, x[t * stride + k + 1]), odd[t]);
      }
    }
    for (int t = 0; t < kTokens; ++t) hn::StoreU(hn::Add(even[t], odd[t]), d, out + t * kBlockRows + lane);
  }
}

template <int kTokens>
void Block(const ArmCall& call, const std::byte* block, int64_t t0, float* out) {
  const PackedMatrix& w = call.w;
  const bool g16 = w.group == 16;
  switch (w.kind) {
    case PackKind::kBF16: return DenseBlock<PackKind::kBF16, kTokens>(call, block, t0, out);
    case PackKind::kF16: return DenseBlock<PackKind::kF16, kTokens>(call, block, t0, out);
    case PackKind::kF32: return DenseBlock<PackKind::kF32, kTokens>(call, block, t0, out);
    case PackKind::kTable4:
      return g16 ? CodesBlock<TableCodec, true, kTokens>(call, block, t0, out)
                 : CodesBlock<TableCodec, false, kTokens>(call, block, t0, out);
    case PackKind::kAffine: break;
  }
  switch (w.bits * 2 + (g16 ? 1 : 0)) {
    case 4: return CodesBlock<SignedCodec<2>, false, kTokens>(call, block, t0, out);
    case 5: return CodesBlock<SignedCodec<2>, true, kTokens>(call, block, t0, out);
    case 6: return CodesBlock<SignedCodec<3>, false, kTokens>(call, block, t0, out);
    case 7: return CodesBlock<SignedCodec<3>, true, kTokens>(call, block, t0, out);
    case 8: return CodesBlock<SignedCodec<4>, false, kTokens>(call, block, t0, out);
    case 9: return CodesBlock<SignedCodec<4>, true, kTokens>(call, block, t0, out);
    case 10: return CodesBlock<SignedCodec<5>, false, kTokens>(call, block, t0, out);
    case 11: return CodesBlock<SignedCodec<5>, true, kTokens>(call, block, t0, out);
    case 12: return CodesBlock<SignedCodec<6>, false, kTokens>(call, block, t0, out);
    case 13: return CodesBlock<SignedCodec<6>, true, kTokens>(call, block, t0, out);
    case 16: return CodesBlock<SignedCodec<8>, false, kTokens>(call, block, t0, out);
    case 17: return CodesBlock<SignedCodec<8>, true, kTokens>(call, block, t0, out);
    default: return;
  }
}

void Rows(const ArmCall& call) {
  float out[4 * kBlockRows];
  for (int64_t b = call.b0; b < call.b1; ++b) {
    const std::byte* block = call.w.block(b);
    const int64_t columns = std::min(kBlockRows, call.w.rows - b * kBlockRows);
    for (int64_t t = 0; t < call.x.m; t += 4) {
      const int64_t tokens = std::min<int64_t>(4, call.x.m - t);
      if (tokens == 1) Block<1>(call, block, t, out);
      if (tokens == 2) Block<2>(call, block, t, out);
      if (tokens > 2) Block<4>(call, block, t, out);
      store_tile(out, kBlockRows, tokens, columns, false, call.y + t * call.y_stride + b * kBlockRows, call.y_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace galvani::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
HWY_EXPORT(Rows);
void qmatmul_rows_f32(const ArmCall& call) { HWY_DYNAMIC_DISPATCH(Rows)(call); }
}  // namespace galvani::kernels
#endif
