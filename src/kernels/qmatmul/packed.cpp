#include "kernels/qmatmul/packed.h"

#include <cstring>

#include "core/dtype.h"
#include "core/error.h"

namespace galvani::kernels {

const char* scale_form_name(ScaleForm form) {
  switch (form) {
    case ScaleForm::kNone: return "none";
    case ScaleForm::kF16: return "f16";
    case ScaleForm::kBF16: return "bf16";
    case ScaleForm::kF32: return "f32";
    case ScaleForm::kTwoLevel: return "two-level";
  }
  return "?";
}

uint32_t unit_get(const uint16_t* words, int bits, int slot) {
  const auto get = [&](int vector) { return static_cast<uint32_t>(words[32 * vector]); };
  const uint32_t mask = (1u << bits) - 1u;
  if (!slot_in_pieces(bits, slot)) return (get(slot_vector(bits, slot)) >> slot_shift(bits, slot)) & mask;
  if (bits == 6) {
    const int a = slot / 8 * 3, last = slot % 8 - 6;
    return (get(a + last) >> 12) | (((get(a + 2) >> (12 + 2 * last)) & 3u) << 4);
  }
  uint32_t code = 0;
  for (int i = 0; i < bits; ++i) code |= (get(i) >> 15) << i;
  return code;
}

namespace {
int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

void PackedMatrix::allocate_data() {
  padded_cols = round_up(cols, kUnitCols);
  units = padded_cols / kUnitCols;
  blocks = (rows + kBlockRows - 1) / kBlockRows;
  switch (kind) {
    case PackKind::kBF16:
    case PackKind::kF16: block_bytes = padded_cols * kBlockRows * 2; break;
    case PackKind::kF32: block_bytes = padded_cols * kBlockRows * 4; break;
    case PackKind::kAffine:
    case PackKind::kTable4: block_bytes = units * bits * 64; break;
  }
  data = LargePageBuffer(static_cast<size_t>(blocks * block_bytes));
  packed_bytes = blocks * block_bytes;
}

void PackedMatrix::allocate_scales() {
  groups = (padded_cols + group - 1) / group;
  const int64_t supers = (padded_cols + kSuperCols - 1) / kSuperCols;
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t start = at;
    at = round_up(at + bytes, 16);
    return start;
  };
  const auto super = [&](ScaleForm form) { return form == ScaleForm::kTwoLevel ? supers * kBlockRows * 4 : 0; };
  scale_at = take(groups * kBlockRows * scale_form_bytes(scale_form));
  scale_super_at = take(super(scale_form));
  bias_at = take(groups * kBlockRows * scale_form_bytes(bias_form));
  bias_super_at = take(super(bias_form));
  block_scale_bytes = at;
  scales = LargePageBuffer(static_cast<size_t>(blocks * block_scale_bytes));
  std::memset(scales.data(), 0, static_cast<size_t>(blocks * block_scale_bytes));
  packed_bytes = blocks * (block_bytes + block_scale_bytes);
}

float packed_scale(const PackedMatrix& w, const std::byte* scales, bool bias, int64_t group, int row) {
  const ScaleForm form = bias ? w.bias_form : w.scale_form;
  const std::byte* at = scales + (bias ? w.bias_at : w.scale_at);
  const int64_t index = group * kBlockRows + row;
  const auto half = [&] {
    uint16_t value;
    std::memcpy(&value, at + index * 2, 2);
    return value;
  };
  const auto single = [](const std::byte* from, int64_t i) {
    float value;
    std::memcpy(&value, from + i * 4, 4);
    return value;
  };
  switch (form) {
    case ScaleForm::kNone: return 0.0f;
    case ScaleForm::kF16: return f16_to_f32(half());
    case ScaleForm::kBF16: return bf16_to_f32(half());
    case ScaleForm::kF32: return single(at, index);
    case ScaleForm::kTwoLevel: {
      const int64_t super = group * w.group / kSuperCols;
      const float top = single(scales + (bias ? w.bias_super_at : w.scale_super_at), super * kBlockRows + row);
      return top * static_cast<float>(static_cast<int8_t>(at[index]));
    }
  }
  return 0.0f;
}

void qmatmul_unpack(const CpuMatrix& matrix, int64_t r0, int64_t r1, float* out) {
  const auto& w = static_cast<const PackedMatrix&>(matrix);
  GALVANI_CHECK(0 <= r0 && r0 <= r1 && r1 <= w.rows, "rows [{}, {}) of {}", r0, r1, w.rows);
  for (int64_t r = r0; r < r1; ++r) {
    const std::byte* block = w.block(r / kBlockRows);
    const int row = static_cast<int>(r % kBlockRows);
    float* to = out + (r - r0) * w.cols;
    for (int64_t c = 0; c < w.cols; ++c) {
      if (w.kind == PackKind::kF32) {
        std::memcpy(to + c, block + (c * kBlockRows + row) * 4, 4);
        continue;
      }
      if (w.kind == PackKind::kF16 || w.kind == PackKind::kBF16) {
        const int64_t pair = (c / 2 * kBlockRows + row) * 2 + c % 2, column = c * kBlockRows + row;
        uint16_t value;
        std::memcpy(&value, block + (w.kind == PackKind::kBF16 ? pair : column) * 2, 2);
        to[c] = w.kind == PackKind::kBF16 ? bf16_to_f32(value) : f16_to_f32(value);
        continue;
      }
      const auto* words = reinterpret_cast<const uint16_t*>(block + c / kUnitCols * w.bits * 64) + row * 2 + c % 2;
      const uint32_t code = unit_get(words, w.bits, static_cast<int>(c % kUnitCols / 2));
      const int64_t group = c / w.group;
      const float scale = packed_scale(w, w.scales_of(block), false, group, row);
      if (w.kind == PackKind::kTable4) {
        to[c] = scale * static_cast<float>(w.table[code]);
        continue;
      }
      const int half = 1 << (w.bits - 1);
      const int centred = static_cast<int>(code ^ static_cast<uint32_t>(half)) - half;  // sign-extended
      const float value = scale * (static_cast<float>(centred) + w.zero);
      to[c] = w.bias_form == ScaleForm::kNone ? value : value + packed_scale(w, w.scales_of(block), true, group, row);
    }
  }
}

}  // namespace galvani::kernels
