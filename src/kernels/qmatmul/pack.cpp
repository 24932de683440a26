/// From a checkpoint's matrix to the packed form of packed.h.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>

#include "core/dtype.h"
#include "core/error.h"
#include "core/parallel.h"
#include "kernels/qmatmul/pack_scales.h"
#include "kernels/qmatmul/packed.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kChunkRows = 64;
using Packed = std::unique_ptr<PackedMatrix>;

/// The first error that any thread met.
class FirstError {
 public:
  void keep(Error error) {
    const std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) error_ = std::move(error);
  }
  bool failed() const { return failed_; }
  Status status() { return failed_ ? Status(tl::unexpected<Error>(std::move(error_))) : Status(); }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Error error_;
};

/// Runs body(first row, end row) → Status over [r0, r1) in chunks on all threads.
template <typename Body>
Status for_chunks(int64_t r0, int64_t r1, const Body& body) {
  FirstError error;
  parallel_for((r1 - r0 + kChunkRows - 1) / kChunkRows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end && !error.failed(); ++c) {
      const int64_t first = r0 + c * kChunkRows;
      if (Status status = body(first, std::min(r1, first + kChunkRows)); !status) error.keep(std::move(status.error()));
    }
  });
  return error.status();
}

/// Puts 32 codes of one row into its place in a unit: word pair `row` of each of the unit's vectors.
template <int kBits>
inline void put_unit(const uint32_t* codes, std::byte* unit, int64_t row) {
  uint32_t words[kBits][2] = {};
#pragma GCC unroll 16
  for (int slot = 0; slot < kUnitSlots; ++slot)
    for (int parity = 0; parity < 2; ++parity) {
      const uint32_t code = codes[2 * slot + parity];
      if (!slot_in_pieces(kBits, slot)) {
        words[slot_vector(kBits, slot)][parity] |= code << slot_shift(kBits, slot);
      } else if constexpr (kBits == 6) {
        const int first = slot / 8 * 3, last = slot % 8 - 6;
        words[first + last][parity] |= (code & 15u) << 12;
        words[first + 2][parity] |= (code >> 4) << (12 + 2 * last);
      } else {
        for (int i = 0; i < kBits; ++i) words[i][parity] |= ((code >> i) & 1u) << 15;
      }
    }
  for (int i = 0; i < kBits; ++i) {
    const uint32_t pair = words[i][0] | (words[i][1] << 16);
    std::memcpy(unit + i * 64 + row * 4, &pair, 4);
  }
}

/// Codes of one row, MLX bit stream, to the row's words of every unit; stored centred (top bit flipped).
template <int kBits>
void pack_code_row(const PackedMatrix& w, const std::byte* stream, std::byte* block, int64_t row) {
  constexpr uint32_t kHalf = 1u << (kBits - 1), kMask = (1u << kBits) - 1u;
  const std::byte* const end = stream + w.cols * kBits / 8;
  for (int64_t u = 0; u < w.units; ++u, stream += 4 * kBits) {
    uint32_t codes[kUnitCols];
    for (int eight = 0; eight < 4; ++eight) {
      uint64_t bits = 0;  // 8 codes are kBits bytes
      const std::byte* from = stream + eight * kBits;
      if (from + kBits <= end) std::memcpy(&bits, from, kBits);
      for (int i = 0; i < 8; ++i) codes[eight * 8 + i] = (static_cast<uint32_t>(bits >> (i * kBits)) & kMask) ^ kHalf;
    }
    put_unit<kBits>(codes, block + u * kBits * 64, row);
  }
}

void pack_code_row(const PackedMatrix& w, const std::byte* stream, std::byte* block, int64_t row) {
  switch (w.bits) {
    case 2: return pack_code_row<2>(w, stream, block, row);
    case 3: return pack_code_row<3>(w, stream, block, row);
    case 4: return pack_code_row<4>(w, stream, block, row);
    case 5: return pack_code_row<5>(w, stream, block, row);
    case 6: return pack_code_row<6>(w, stream, block, row);
    default: return pack_code_row<8>(w, stream, block, row);
  }
}

float scale_value(const std::byte* from, DType type, int64_t i) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, from + i * 4, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, from + i * 2, 2);
  return type == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

Status check_affine(const quant::MatrixSource& source) {
  const int bits = source.bits(), group = source.group();
  const bool bits_ok = bits >= 2 && bits <= 8 && bits != 7;
  const bool group_ok = group == 16 || group == 32 || group == 64 || group == 128;
  if (!bits_ok || !group_ok || source.cols() % group != 0 || source.cols() * bits % 8 != 0)
    return fail(ErrorCode::kUnsupported,
                "{}: affine {} bits, group {}, {} columns; the CPU kernels take 2, 3, 4, 5, 6 or 8 bits and a group of "
                "16, 32, 64 or 128 that divides the columns",
                source.name(), bits, group, source.cols());
  return {};
}

/// Zeroes the blocks that rows [first, end) of the packed matrix touch; `first` starts a block.
void clear_blocks(PackedMatrix& w, int64_t first, int64_t end) {
  const int64_t b0 = first / kBlockRows, b1 = (end + kBlockRows - 1) / kBlockRows;
  std::memset(w.block(b0), 0, static_cast<size_t>((b1 - b0) * w.block_bytes));
}

/// A scale that is NaN or infinite makes a whole row so, and every token after it.
Status check_finite(const quant::MatrixSource& source, const char* what, std::span<const float> values, int64_t first,
                    int64_t per_row, int64_t group) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto at = static_cast<int64_t>(i);
    const int64_t column = at % per_row * group;
    return fail(ErrorCode::kCorrupt, "{}: the {} of row {}, columns {} to {} is {}; the file is broken", source.name(),
                what, first + at / per_row, column, column + group - 1, values[i]);
  }
  return {};
}

Status pack_affine(const quant::MatrixSource& source, int64_t r0, PackedMatrix& w) {
  GALVANI_TRY_VOID(check_affine(source));
  w.kind = PackKind::kAffine, w.bits = source.bits(), w.group = source.group();
  const int64_t groups = w.cols / w.group;
  w.allocate_data();
  std::vector<float> scales(static_cast<size_t>(w.rows * groups)), biases(scales.size());
  const auto read = [&](int64_t first, int64_t end) -> Status {
    GALVANI_TRY(const quant::AffineTensor tensor, source.affine(first, end, 0, w.cols));
    const quant::AffineView& view = tensor.view;
    if (view.rows != end - first || view.cols != w.cols || view.bits != w.bits || view.group != w.group)
      return fail(ErrorCode::kInternal, "{}: affine({}, {}) returned [{}, {}] of {} bits, group {}", source.name(),
                  first, end, view.rows, view.cols, view.bits, view.group);
    const int64_t base = (first - r0) * groups;
    for (int64_t i = 0; i < view.rows * groups; ++i) {
      scales[static_cast<size_t>(base + i)] = scale_value(view.scales, view.scale_dtype, i);
      biases[static_cast<size_t>(base + i)] = scale_value(view.biases, view.scale_dtype, i);
    }
    clear_blocks(w, first - r0, end - r0);
    for (int64_t i = 0; i < view.rows; ++i) {
      const int64_t row = first - r0 + i;
      pack_code_row(w, view.codes + i * view.row_code_bytes(), w.block(row / kBlockRows), row % kBlockRows);
    }
    return {};
  };
  GALVANI_TRY_VOID(for_chunks(r0, r0 + w.rows, read));
  GALVANI_TRY_VOID(check_finite(source, "scale", scales, r0, groups, w.group));
  GALVANI_TRY_VOID(check_finite(source, "bias", biases, r0, groups, w.group));
  const GroupValues scale_values{scales, groups, w.group}, bias_values{biases, groups, w.group};
  const bool centred = bias_is_centre(scale_values, bias_values, w.bits);
  w.scale_form = scale_form_for(scale_values);
  w.bias_form = centred ? ScaleForm::kNone : scale_form_for(bias_values);
  w.zero = centred ? 0.0f : static_cast<float>(1 << (w.bits - 1));
  w.allocate_scales();
  parallel_for(w.blocks, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      std::byte* to = w.block_scales(b);
      pack_scales(scale_values, w.scale_form, b, to + w.scale_at, to + w.scale_super_at);
      pack_scales(bias_values, w.bias_form, b, to + w.bias_at, to + w.bias_super_at);
    }
  });
  w.layout = fmt::format("affine{} g{} scale {}{}", w.bits, w.group, scale_form_name(w.scale_form),
                         centred ? std::string(", no bias") : fmt::format(", bias {}", scale_form_name(w.bias_form)));
  return {};
}

/// E2M1 doubled, so that its values are integers; scales are halved to match.
constexpr int8_t kE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
/// IQ4_NL's table (ggml's kvalues_iq4nl).
constexpr int8_t kIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// Finds scale and codes with scale · table[code] = value for every value; false when there are none.
bool table_split(std::span<const float> values, const int8_t* table, float& scale, uint8_t* codes) {
  float largest = 0;
  for (const float v : values)
    if (std::fabs(v) > std::fabs(largest)) largest = v;
  if (!std::isfinite(largest)) return false;
  for (int entry = 0; entry < 16; ++entry) {
    if (table[entry] == 0 || (largest == 0 && entry > 0)) continue;
    for (const float sign : {1.0f, -1.0f}) {
      scale = sign * largest / static_cast<float>(table[entry]);
      bool all = true;
      for (size_t i = 0; i < values.size() && all; ++i) {
        int code = 0;
        while (code < 16 && scale * static_cast<float>(table[code]) != values[i]) ++code;
        codes[i] = static_cast<uint8_t>(code), all = code < 16;
      }
      if (all) return true;
    }
  }
  if (largest != 0) return false;
  scale = 0;
  std::fill_n(codes, values.size(), uint8_t{0});
  return true;
}

/// 4-bit tables times a scale, found again from the values. Returns false (and packs nothing) when they do not fit.
Result<bool> pack_table4(const quant::MatrixSource& source, int64_t r0, PackedMatrix& w) {
  const int group = source.group();
  if ((group != 16 && group != 32) || w.cols % group != 0) return false;
  w.kind = PackKind::kTable4, w.bits = 4, w.group = group;
  std::memcpy(w.table, source.kind() == quant::MatrixKind::kLut4 ? kIq4Nl : kE2M1, 16);
  const int64_t groups = w.cols / group;
  std::vector<float> scales(static_cast<size_t>(w.rows * groups));
  std::vector<uint8_t> codes(static_cast<size_t>(w.rows * w.cols));
  std::atomic<bool> fits{true};
  const auto split = [&](int64_t first, int64_t end) -> Status {
    if (!fits) return {};
    std::vector<float> values(static_cast<size_t>((end - first) * w.cols));
    GALVANI_TRY_VOID(source.dequant_rows(first, end, values.data()));
    for (int64_t g = 0; g < (end - first) * groups && fits; ++g) {
      const auto at = static_cast<size_t>((first - r0) * groups + g);
      const std::span<const float> part(values.data() + g * group, static_cast<size_t>(group));
      if (!table_split(part, w.table, scales[at], codes.data() + at * static_cast<size_t>(group))) fits = false;
    }
    return {};
  };
  GALVANI_TRY_VOID(for_chunks(r0, r0 + w.rows, split));
  if (!fits) return false;
  const GroupValues scale_values{scales, groups, group};
  w.scale_form = scale_form_for(scale_values), w.bias_form = ScaleForm::kNone;
  w.allocate_data();
  w.allocate_scales();
  parallel_for(w.blocks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t last = std::min(w.rows, (b + 1) * kBlockRows);
      clear_blocks(w, b * kBlockRows, last);
      for (int64_t row = b * kBlockRows; row < last; ++row)
        for (int64_t u = 0; u < w.units; ++u) {
          uint32_t part[kUnitCols] = {};
          const uint8_t* from = codes.data() + row * w.cols + u * kUnitCols;
          std::copy_n(from, std::min(kUnitCols, w.cols - u * kUnitCols), part);
          put_unit<4>(part, w.block(b) + u * 256, row % kBlockRows);
        }
      pack_scales(scale_values, w.scale_form, b, w.block_scales(b) + w.scale_at, w.block_scales(b) + w.scale_super_at);
    }
  });
  w.layout = fmt::format("table4 g{} scale {}", group, scale_form_name(w.scale_form));
  return true;
}

/// The narrowest float type that holds every value of the rows.
Result<PackKind> dense_kind(const quant::MatrixSource& source, int64_t r0, int64_t r1) {
  if (source.kind() == quant::MatrixKind::kDense && source.dtype() == DType::kBF16) return PackKind::kBF16;
  if (source.kind() == quant::MatrixKind::kDense && source.dtype() == DType::kF16) return PackKind::kF16;
  std::atomic<bool> bf16{true}, f16{true};
  const auto look = [&](int64_t first, int64_t end) -> Status {
    if (!bf16 && !f16) return {};
    std::vector<float> values(static_cast<size_t>((end - first) * source.cols()));
    GALVANI_TRY_VOID(source.dequant_rows(first, end, values.data()));
    const auto same = [](float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); };
    if (!std::ranges::all_of(values, [&](float v) { return same(v, bf16_to_f32(f32_to_bf16(v))); })) bf16 = false;
    if (!std::ranges::all_of(values, [&](float v) { return same(v, f16_to_f32(f32_to_f16(v))); })) f16 = false;
    return {};
  };
  GALVANI_TRY_VOID(for_chunks(r0, r1, look));
  return bf16 ? PackKind::kBF16 : f16 ? PackKind::kF16 : PackKind::kF32;
}

Status pack_dense(const quant::MatrixSource& source, int64_t r0, PackedMatrix& w) {
  GALVANI_TRY(w.kind, dense_kind(source, r0, r0 + w.rows));
  w.bits = 0, w.group = 0, w.scale_form = w.bias_form = ScaleForm::kNone;
  w.allocate_data();
  w.layout = w.kind == PackKind::kBF16 ? "dense bf16" : w.kind == PackKind::kF16 ? "dense f16" : "dense f32";
  return for_chunks(r0, r0 + w.rows, [&](int64_t first, int64_t end) -> Status {
    std::vector<float> values(static_cast<size_t>((end - first) * w.cols));
    GALVANI_TRY_VOID(source.dequant_rows(first, end, values.data()));
    // Codes are finite, so a value that is not comes from its group's scale.
    if (source.kind() != quant::MatrixKind::kDense)
      GALVANI_TRY_VOID(check_finite(source, "scale", values, first, w.cols, 1));
    clear_blocks(w, first - r0, end - r0);
    for (int64_t r = first; r < end; ++r) {
      std::byte* block = w.block((r - r0) / kBlockRows);
      const int64_t row = (r - r0) % kBlockRows;
      const float* from = values.data() + (r - first) * w.cols;
      for (int64_t c = 0; c < w.cols; ++c) {
        const int64_t pair = (c / 2 * kBlockRows + row) * 2 + c % 2, column = c * kBlockRows + row;
        if (w.kind == PackKind::kF32) {
          std::memcpy(block + column * 4, from + c, 4);
          continue;
        }
        const uint16_t half = w.kind == PackKind::kBF16 ? f32_to_bf16(from[c]) : f32_to_f16(from[c]);
        std::memcpy(block + (w.kind == PackKind::kBF16 ? pair : column) * 2, &half, 2);
      }
    }
    return {};
  });
}

}  // namespace

Result<std::unique_ptr<CpuMatrix>> qmatmul_pack(const quant::MatrixSource& source, int64_t r0, int64_t r1) {
  if (r0 < 0 || r1 <= r0 || r1 > source.rows() || source.cols() < 1)
    return fail(ErrorCode::kInvalidArgument, "{}: packing rows [{}, {}) of a matrix of [{}, {}]", source.name(), r0, r1,
                source.rows(), source.cols());
  auto w = std::make_unique<PackedMatrix>();
  w->rows = r1 - r0, w->cols = source.cols();
  using quant::MatrixKind;
  if (source.kind() == MatrixKind::kAffine) {
    GALVANI_TRY_VOID(pack_affine(source, r0, *w));
    return w;
  }
  if (source.kind() == MatrixKind::kMxfp4 || source.kind() == MatrixKind::kNvfp4 ||
      source.kind() == MatrixKind::kLut4) {
    GALVANI_TRY(const bool packed, pack_table4(source, r0, *w));
    if (packed) return w;
  }
  GALVANI_TRY_VOID(pack_dense(source, r0, *w));
  return w;
}

}  // namespace galvani::kernels
