/// Many tokens, f32: a block's weights are dequantised once into a panel that stays in the second-level cache, and
/// every tile of tokens is multiplied by it. Highway, chosen at run time.
#include "kernels/qmatmul/arms.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/qmatmul/panel_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/qmatmul/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kPanelCols = 1024;  ///< columns of x at a time: 64 KB a block
constexpr int kLanes = static_cast<int>(MaxLanes(F32()));
constexpr int kVectors = 16 / kLanes;          ///< a block
constexpr int kBlocks = kLanes >= 16 ? 3 : 1;  ///< of a tile
constexpr int kTile = kLanes >= 16 ? 8 : 4;    ///< tokens of a tile

template <class Codec, bool kGroup16, int kSlot>
HWY_INLINE void StoreSlots(const Codec& codec, const I32V* v, F32V zero, const F32V* scale, const F32V* bias,
                           float* out) {
  if constexpr (kSlot < kUnitSlots) {
    const F32 d;
    F32V even, odd;
    codec.template Slot<kSlot>(v, even, odd);
    constexpr int kGroup = kGroup16 ? kSlot / 8 : 0;
    // code + zero is exact, so that the stored value comes out with one rounding.
    even = hn::MulAdd(hn::Add(even, zero), scale[kGroup], bias[kGroup]);
    odd = hn::MulAdd(hn::Add(odd, zero), scale[kGroup], bias[kGroup]);
    hn::StoreU(even, d, out + 2 * kSlot * kBlockRows);
    hn::StoreU(odd, d, out + (2 * kSlot + 1) * kBlockRows);
    StoreSlots<Codec, kGroup16, kSlot + 1>(codec, v, zero, scale, bias, out);
  }
}

/// Columns [k0, k1) of a block of codes as f32, [k][16].
template <class Codec, bool kGroup16>
void UnpackCodes(const PackedMatrix& w, const std::byte* block, int64_t k0, int64_t k1, float* out) {
  const F32 d;
  const Codec codec(w);
  const F32V zero = hn::Set(d, w.zero);
  for (int64_t u = k0 / kUnitCols; u < k1 / kUnitCols; ++u) {
    for (int64_t lane = 0; lane < kBlockRows; lane += kLanes) {
      const Lanes16 lanes(w, w.scales_of(block), lane);
      I32V v[Codec::kBits];
      LoadUnit<Codec::kBits>(block + u * Codec::kBits * 64 + lane * 4, v);
      F32V scale[2], bias[2];
      for (int i = 0; i < (kGroup16 ? 2 : 1); ++i) {
        const int64_t group = kGroup16 ? 2 * u + i : u * kUnitCols / w.group;
        scale[i] = lanes.Scale(group);
        bias[i] = lanes.has_bias ? lanes.Bias(group) : hn::Zero(d);
      }
      StoreSlots<Codec, kGroup16, 0>(codec, v, zero, scale, bias, out + (u * kUnitCols - k0) * kBlockRows + lane);
    }
  }
}

template <PackKind kKind>
void UnpackDense(const std::byte* block, int64_t k0, int64_t k1, float* out) {
  const F32 d;
  for (int64_t k = k0; k < k1; k += 2) {
    for (int64_t lane = 0; lane < kBlockRows; lane += kLanes) {
      F32V a, b;
      LoadDensePair<kKind>(block, k, lane, a, b);
      hn::StoreU(a, d, out + (k - k0) * kBlockRows + lane);
      hn::StoreU(b, d, out + (k - k0 + 1) * kBlockRows + lane);
    }
  }
}

/// The panel of a block's columns [k0, k1): the stored floats themselves where they are f32, else written to `out`.
const float* Panel(const PackedMatrix& w, const std::byte* block, int64_t k0, int64_t k1, float* out) {
  const bool g16 = w.group == 16;
  const auto codes = [&]<class Codec>(const Codec&) {
    g16 ? UnpackCodes<Codec, true>(w, block, k0, k1, out) : UnpackCodes<Codec, false>(w, block, k0, k1, out);
  };
  switch (w.kind) {
    case PackKind::kF32: return reinterpret_cast<const float*>(block) + k0 * kBlockRows;
    case PackKind::kBF16: UnpackDense<PackKind::kBF16>(block, k0, k1, out); return out;
    case PackKind::kF16: UnpackDense<PackKind::kF16>(block, k0, k1, out); return out;
    case PackKind::kTable4: codes(TableCodec(w)); return out;
    case PackKind::kAffine: break;
  }
  switch (w.bits) {
    case 2: codes(SignedCodec<2>(w)); break;
    case 3: codes(SignedCodec<3>(w)); break;
    case 4: codes(SignedCodec<4>(w)); break;
    case 5: codes(SignedCodec<5>(w)); break;
    case 6: codes(SignedCodec<6>(w)); break;
    default: codes(SignedCodec<8>(w)); break;
  }
  return out;
}

/// tile[t, 16·b …] = Σ_k x[t, k] · panels[b][k, …] over `cols` columns.
template <int kUsed>
void Multiply(const float* x, int64_t stride, const float* const* panels, int64_t cols, float* tile) {
  const F32 d;
  F32V sums[kTile][kUsed * kVectors];
  for (int t = 0; t < kTile; ++t)
    for (int i = 0; i < kUsed * kVectors; ++i) sums[t][i] = hn::Zero(d);
  for (int64_t k = 0; k < cols; ++k) {
    F32V w[kUsed * kVectors];
    for (int i = 0; i < kUsed * kVectors; ++i)
      w[i] = hn::LoadU(d, panels[i / kVectors] + k * kBlockRows + i % kVectors * kLanes);
    for (int t = 0; t < kTile; ++t) {
      const F32V value = hn::Set(d, x[t * stride + k]);
      for (int i = 0; i < kUsed * kVectors; ++i) sums[t][i] = hn::MulAdd(value, w[i], sums[t][i]);
    }
  }
  for (int t = 0; t < kTile; ++t)
    for (int i = 0; i < kUsed * kVectors; ++i) hn::StoreU(sums[t][i], d, tile + t * kBlocks * kBlockRows + i * kLanes);
}

void PanelRows(const ArmCall& call) {
  const PackedMatrix& w = call.w;
  const int64_t stretch = std::min(kPanelCols, w.padded_cols);
  auto* scratch = reinterpret_cast<float*>(arm_scratch(0, kBlocks * stretch * kBlockRows * 4));
  HWY_ALIGN float tile[kTile * kBlocks * kBlockRows];
  for (int64_t b = call.b0; b < call.b1; b += kBlocks) {
    const int64_t used = std::min<int64_t>(kBlocks, call.b1 - b);
    const int64_t columns = std::min(used * kBlockRows, w.rows - b * kBlockRows);
    for (int64_t k0 = 0; k0 < w.padded_cols; k0 += stretch) {
      const int64_t k1 = std::min(w.padded_cols, k0 + stretch);
      const float* panels[kBlocks];
      for (int64_t i = 0; i < used; ++i)
        panels[i] = Panel(w, w.block(b + i), k0, k1, scratch + i * stretch * kBlockRows);
      for (int64_t t = 0; t < call.x.m; t += kTile) {
        const float* x = call.x.f32_row(t) + k0;
        if (used == 1) Multiply<1>(x, call.x.stride, panels, k1 - k0, tile);
        if constexpr (kBlocks > 1) {
          if (used == 2) Multiply<2>(x, call.x.stride, panels, k1 - k0, tile);
          if (used == 3) Multiply<3>(x, call.x.stride, panels, k1 - k0, tile);
        }
        store_tile(tile, kBlocks * kBlockRows, std::min<int64_t>(kTile, call.x.m - t), columns, k0 > 0,
                   call.y + t * call.y_stride + b * kBlockRows, call.y_stride);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace galvani::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
HWY_EXPORT(PanelRows);
void qmatmul_panel_f32(const ArmCall& call) { HWY_DYNAMIC_DISPATCH(PanelRows)(call); }
}  // namespace galvani::kernels
#endif
