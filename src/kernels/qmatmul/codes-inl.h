// Highway helpers of rows_f32.cpp and panel_f32.cpp: codes, scales and dense elements as f32 lanes. Included once a
// target (hence no #pragma once).
#if defined(GALVANI_QMATMUL_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GALVANI_QMATMUL_CODES_INL_H_
#undef GALVANI_QMATMUL_CODES_INL_H_
#else
#define GALVANI_QMATMUL_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/qmatmul/packed.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A block has 16 rows, so at most 16 lanes.
using F32 = HWY_CAPPED(float, 16);
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using F32V = hn::Vec<F32>;
using I32V = hn::Vec<I32>;
using U32V = hn::Vec<U32>;

template <int kBits>
HWY_INLINE void LoadUnit(const std::byte* from, I32V* v) {
  const I32 d;
  for (int i = 0; i < kBits; ++i) v[i] = hn::LoadU(d, reinterpret_cast<const int32_t*>(from + i * 64));
}

/// Both parities of a slot that packed.h keeps in pieces, gathered at bit 0 of each 16-bit half.
template <int kBits, int kSlot>
HWY_INLINE U32V GatherPieces(const I32V* v) {
  const U32 d;
  const auto word = [&](int i) HWY_ATTR { return hn::BitCast(d, v[i]); };
  if constexpr (kBits == 6) {
    constexpr int kFirst = kSlot / 8 * 3, kLast = kSlot % 8 - 6;
    const U32V low = hn::And(hn::ShiftRight<12>(word(kFirst + kLast)), hn::Set(d, 0x000f000fu));
    const U32V high = hn::And(hn::ShiftRight<8 + 2 * kLast>(word(kFirst + 2)), hn::Set(d, 0x00300030u));
    return hn::Or(low, high);
  } else {
    U32V code = hn::And(hn::ShiftRight<15>(word(0)), hn::Set(d, 0x00010001u));
    code = hn::Or(code, hn::And(hn::ShiftRight<14>(word(1)), hn::Set(d, 0x00020002u)));
    code = hn::Or(code, hn::And(hn::ShiftRight<13>(word(2)), hn::Set(d, 0x00040004u)));
    if constexpr (kBits == 5) {
      code = hn::Or(code, hn::And(hn::ShiftRight<12>(word(3)), hn::Set(d, 0x00080008u)));
      code = hn::Or(code, hn::And(hn::ShiftRight<11>(word(4)), hn::Set(d, 0x00100010u)));
    }
    return code;
  }
}

/// The kBits-wide two's complement field at bit kAt of each lane.
template <int kBits, int kAt>
HWY_INLINE F32V SignedField(I32V v) {
  const F32 d;
  return hn::ConvertTo(d, hn::ShiftRight<32 - kBits>(hn::ShiftLeft<32 - kBits - kAt>(v)));
}

template <int kCodeBits>
struct SignedCodec {
  static constexpr int kBits = kCodeBits;
  explicit SignedCodec(const PackedMatrix&) {}
  template <int kSlot>
  HWY_INLINE void Slot(const I32V* v, F32V& even, F32V& odd) const {
    const I32 d;
    constexpr bool kPieces = slot_in_pieces(kBits, kSlot);
    I32V word;
    if constexpr (kPieces) {
      word = hn::BitCast(d, GatherPieces<kBits, kSlot>(v));
    } else {
      word = v[slot_vector(kBits, kSlot)];
    }
    constexpr int kAt = kPieces ? 0 : slot_shift(kBits, kSlot);
    even = SignedField<kBits, kAt>(word), odd = SignedField<kBits, kAt + 16>(word);
  }
};

struct TableCodec {
  static constexpr int kBits = 4;
#if HWY_TARGET == HWY_SCALAR
  explicit TableCodec(const PackedMatrix& w) : table(w.table) {}
  template <int kAt>
  HWY_INLINE F32V Look(I32V v) const {
    return hn::Set(F32(), static_cast<float>(table[(static_cast<uint32_t>(v.raw) >> kAt) & 15u]));
  }
  const int8_t* table;
#else
  explicit TableCodec(const PackedMatrix& w) {
    alignas(64) int8_t repeated[64];
    for (int i = 0; i < 64; ++i) repeated[i] = w.table[i % 16];
    table = hn::Load(Bytes(), repeated);
  }
  template <int kAt>
  HWY_INLINE F32V Look(I32V v) const {
    const I32 d;
    const I32V index = hn::And(hn::BitCast(d, hn::ShiftRight<kAt>(hn::BitCast(U32(), v))), hn::Set(d, 15));
    const auto value = hn::TableLookupBytes(table, hn::BitCast(Bytes(), index));
    return hn::ConvertTo(F32(), hn::ShiftRight<24>(hn::ShiftLeft<24>(hn::BitCast(d, value))));
  }
  using Bytes = hn::Repartition<int8_t, F32>;
  hn::Vec<Bytes> table;
#endif
  template <int kSlot>
  HWY_INLINE void Slot(const I32V* v, F32V& even, F32V& odd) const {
    constexpr int kAt = slot_shift(kBits, kSlot);
    even = Look<kAt>(v[slot_vector(kBits, kSlot)]), odd = Look<kAt + 16>(v[slot_vector(kBits, kSlot)]);
  }
};

/// 16 (or as many as there are lanes) values of one group in f32.
HWY_INLINE F32V LoadScales(ScaleForm form, const std::byte* at, const std::byte* super, int64_t index,
                           int64_t super_index) {
  const F32 d;
  switch (form) {
    case ScaleForm::kF16: {
      const hn::Rebind<hwy::float16_t, F32> dh;
      return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(at) + index));
    }
    case ScaleForm::kBF16: {
      const hn::Rebind<hwy::bfloat16_t, F32> dh;
      return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::bfloat16_t*>(at) + index));
    }
    case ScaleForm::kF32: return hn::LoadU(d, reinterpret_cast<const float*>(at) + index);
    case ScaleForm::kTwoLevel: {
      const hn::Rebind<int8_t, F32> db;
      const I32 di;
      const F32V byte = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, reinterpret_cast<const int8_t*>(at) + index)));
      return hn::Mul(byte, hn::LoadU(d, reinterpret_cast<const float*>(super) + super_index));
    }
    case ScaleForm::kNone: break;
  }
  return hn::Zero(d);
}

/// Scales and biases of the rows of a block that start at lane `first`.
struct Lanes16 {
  Lanes16(const PackedMatrix& matrix, const std::byte* from, int64_t first_lane)
      : w(matrix), scales(from), first(first_lane), has_bias(matrix.bias_form != ScaleForm::kNone) {}
  HWY_INLINE F32V Scale(int64_t group) const {
    return LoadScales(w.scale_form, scales + w.scale_at, scales + w.scale_super_at, group * kBlockRows + first,
                      group * w.group / kSuperCols * kBlockRows + first);
  }
  HWY_INLINE F32V Bias(int64_t group) const {
    return LoadScales(w.bias_form, scales + w.bias_at, scales + w.bias_super_at, group * kBlockRows + first,
                      group * w.group / kSuperCols * kBlockRows + first);
  }
  const PackedMatrix& w;
  const std::byte* scales;
  int64_t first;
  bool has_bias;
};

/// Columns k and k + 1 (k even) of a dense block.
template <PackKind kKind>
HWY_INLINE void LoadDensePair(const std::byte* block, int64_t k, int64_t lane, F32V& a, F32V& b) {
  const F32 d;
  if constexpr (kKind == PackKind::kBF16) {
    const U32 du;
    const U32V pair = hn::LoadU(du, reinterpret_cast<const uint32_t*>(block) + k / 2 * kBlockRows + lane);
    a = hn::BitCast(d, hn::ShiftLeft<16>(pair)), b = hn::BitCast(d, hn::And(pair, hn::Set(du, 0xffff0000u)));
  } else if constexpr (kKind == PackKind::kF16) {
    const hn::Rebind<hwy::float16_t, F32> dh;
    const auto* from = reinterpret_cast<const hwy::float16_t*>(block) + k * kBlockRows + lane;
    a = hn::PromoteTo(d, hn::LoadU(dh, from)), b = hn::PromoteTo(d, hn::LoadU(dh, from + kBlockRows));
  } else {
    const auto* from = reinterpret_cast<const float*>(block) + k * kBlockRows + lane;
    a = hn::LoadU(d, from), b = hn::LoadU(d, from + kBlockRows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace galvani::kernels
HWY_AFTER_NAMESPACE();
#endif
