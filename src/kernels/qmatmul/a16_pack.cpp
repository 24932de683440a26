#include "kernels/qmatmul/a16_pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/dtype.h"
#include "core/parallel.h"
#include "quant/bit_pack.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kChunkTiles = 4;  // row tiles that one thread takes from the source at a time

/// Word index and bit of every bit of every pair, computed once a width.
struct PlaceTable {
  std::array<std::array<A16Bit, 8>, 2 * kA16Pairs> bits{};  // [pair·2 + half][bit]
};
template <int kBits>
constexpr PlaceTable make_table() {
  PlaceTable table;
  for (int pair = 0; pair < kA16Pairs; ++pair)
    for (int half = 0; half < 2; ++half)
      for (int bit = 0; bit < kBits; ++bit)
        table.bits[static_cast<size_t>(pair * 2 + half)][static_cast<size_t>(bit)] = a16_bit(kBits, pair, half, bit);
  return table;
}

/// The 16 × 64 codes of a unit (row-major bytes) to its words.
template <int kBits>
void put_words(const uint8_t* codes, std::byte* unit) {
  static constexpr PlaceTable kTable = make_table<kBits>();
  for (int lane = 0; lane < kA16Lanes; ++lane) {
    uint32_t words[kBits] = {};
    const uint8_t* at = codes + lane / 4 * kA16Cols + lane % 4 * 2;
#pragma GCC unroll 32
    for (int i = 0; i < 2 * kA16Pairs; ++i) {
      const int pair = i / 2, step = pair / 4, reg = pair % 4;
      const uint32_t code = at[reg % 2 * 8 * kA16Cols + step * 16 + reg / 2 * 8 + i % 2];
      // The bits of a code that lie side by side move together; only the spare pairs take bit by bit.
      const auto& place = kTable.bits[static_cast<size_t>(i)];
      if (pair < a16_fields(kBits) * kBits) {
        words[place[0].word] |= std::rotl(code, place[0].at);
      } else {
        for (int bit = 0; bit < kBits; ++bit)
          words[place[static_cast<size_t>(bit)].word] |= ((code >> bit) & 1u) << place[static_cast<size_t>(bit)].at;
      }
    }
    for (int w = 0; w < kBits; ++w) std::memcpy(unit + a16_word_at(kBits, w, lane), &words[w], 4);
  }
}

void put_words(int bits, const uint8_t* codes, std::byte* unit) {
  switch (bits) {
    case 2: return put_words<2>(codes, unit);
    case 3: return put_words<3>(codes, unit);
    case 4: return put_words<4>(codes, unit);
    case 5: return put_words<5>(codes, unit);
    case 6: return put_words<6>(codes, unit);
    default: return put_words<8>(codes, unit);
  }
}

/// Scales and biases of row `row` of a tile (or none, past the matrix's end) for unit `u`.
void put_pairs(const quant::AffineView& view, const A16Format& format, int64_t r, int row, int64_t u, std::byte* unit) {
  const int64_t value = dtype_bytes(view.scale_dtype), groups = view.groups();
  for (int s = 0; s < a16_subgroups(format.group); ++s) {
    const int col = s * kA16Cols / a16_subgroups(format.group);
    const int64_t group = (u * kA16Cols + col) / view.group;
    if (group >= groups) continue;
    std::byte* const to = unit + a16_scale_at(format, row, col);
    std::memcpy(to, view.scales + (r * groups + group) * value, static_cast<size_t>(value));
    std::memcpy(to + value, view.biases + (r * groups + group) * value, static_cast<size_t>(value));
  }
}

/// Codes of one row as bytes, zeroes up to whole units.
void row_codes(const quant::AffineView& view, int64_t r, uint8_t* out) {
  const std::byte* stream = view.codes + r * view.row_code_bytes();
  const int64_t whole = view.cols / 8 * 8;
  quant::unpack_codes(view.bits, stream, whole, out);
  for (int64_t c = whole; c < view.cols; ++c) out[c] = static_cast<uint8_t>(quant::affine_code(stream, view.bits, c));
}

}  // namespace

void a16_pack_tiles(const quant::AffineView& view, const A16Format& format, int64_t tile0, int64_t tile1,
                    std::byte* out) {
  const int64_t units = a16_units(view.cols), padded = units * kA16Cols, unit_bytes = a16_unit_bytes(format);
  std::vector<uint8_t> codes(static_cast<size_t>(kA16Rows * padded));
  uint8_t block[kA16Rows * kA16Cols];
  for (int64_t tile = tile0; tile < tile1; ++tile) {
    const int rows = static_cast<int>(std::min<int64_t>(kA16Rows, view.rows - tile * kA16Rows));
    std::fill(codes.begin(), codes.end(), uint8_t{0});
    for (int row = 0; row < rows; ++row) row_codes(view, tile * kA16Rows + row, codes.data() + row * padded);
    for (int64_t u = 0; u < units; ++u) {
      std::byte* const unit = out + (tile * units + u) * unit_bytes;
      std::memset(unit + a16_word_bytes(format.bits), 0, static_cast<size_t>(a16_scale_bytes(format)));
      for (int row = 0; row < kA16Rows; ++row)
        std::memcpy(block + row * kA16Cols, codes.data() + row * padded + u * kA16Cols, kA16Cols);
      put_words(format.bits, block, unit);
      for (int row = 0; row < rows; ++row) put_pairs(view, format, tile * kA16Rows + row, row, u, unit);
    }
  }
}

Result<A16Format> a16_format_of(const quant::MatrixSource& source) {
  if (source.kind() != quant::MatrixKind::kAffine)
    return fail(ErrorCode::kUnsupported, "{} is {} ({}); the GPU's A16 packing takes affine matrices", source.name(),
                source.format(), quant::matrix_kind_name(source.kind()));
  A16Format format{source.bits(), source.group(), A16Scale::kF32};
  if (source.dtype() == DType::kBF16) format.scale = A16Scale::kBF16;
  if (source.dtype() == DType::kF16) format.scale = A16Scale::kF16;
  if (!a16_valid(format) || source.cols() % source.group() != 0)
    return fail(ErrorCode::kUnsupported,
                "{}: affine {} bits, group {}, {} columns; the GPU kernels take 2, 3, 4, 5, 6 or 8 bits and a group of "
                "16, 32, 64 or 128 that divides the columns",
                source.name(), source.bits(), source.group(), source.cols());
  return format;
}

Status a16_pack(const quant::MatrixSource& source, int64_t r0, int64_t r1, std::span<std::byte> out) {
  GALVANI_TRY(const A16Format format, a16_format_of(source));
  if (r0 < 0 || r0 >= r1 || r1 > source.rows())
    return fail(ErrorCode::kOutOfRange, "{}: rows [{}, {}) are not a part of [0, {})", source.name(), r0, r1,
                source.rows());
  const int64_t tile_bytes = a16_units(source.cols()) * a16_unit_bytes(format), tiles = a16_row_tiles(r1 - r0);
  if (static_cast<int64_t>(out.size()) != tiles * tile_bytes)
    return fail(ErrorCode::kInvalidArgument, "{}: packed rows [{}, {}) take {} bytes, the buffer has {}", source.name(),
                r0, r1, tiles * tile_bytes, out.size());
  std::mutex mutex;
  Status result;
  parallel_for(tiles, kChunkTiles, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; t += kChunkTiles) {
      const int64_t last = std::min(end, t + kChunkTiles);
      Result<quant::AffineTensor> part =
          source.affine(r0 + t * kA16Rows, std::min(r1, r0 + last * kA16Rows), 0, source.cols());
      if (!part) {
        const std::lock_guard lock(mutex);
        if (result) result = tl::unexpected<Error>(std::move(part.error()));
        return;
      }
      a16_pack_tiles(part->view, format, 0, last - t, out.data() + t * tile_bytes);
    }
  });
  return result;
}

A16Weight a16_unpack(const A16Format& format, int64_t cols, std::span<const std::byte> packed, int64_t row,
                     int64_t col) {
  const int r = static_cast<int>(row % kA16Rows), c = static_cast<int>(col % kA16Cols);
  const std::byte* unit = packed.data() + (row / kA16Rows * a16_units(cols) + col / kA16Cols) * a16_unit_bytes(format);
  const A16Place place = a16_place(r, c);
  A16Weight weight;
  for (int bit = 0; bit < format.bits; ++bit) {
    const A16Bit from = a16_bit(format.bits, place.pair, place.half, bit);
    uint32_t word;
    std::memcpy(&word, unit + a16_word_at(format.bits, from.word, place.lane), 4);
    weight.code |= ((word >> from.at) & 1u) << bit;
  }
  const size_t size = static_cast<size_t>(a16_pair_bytes(format.scale)) / 2;
  const std::byte* pair = unit + a16_scale_at(format, r, c);
  std::memcpy(&weight.scale_bits, pair, size);
  std::memcpy(&weight.bias_bits, pair + size, size);
  return weight;
}

void a16_dequant_rows(const A16Format& format, int64_t cols, std::span<const std::byte> packed, int64_t r0, int64_t r1,
                      float* out) {
  const auto value = [&](uint32_t bits) {
    if (format.scale == A16Scale::kF32) return std::bit_cast<float>(bits);
    const auto half = static_cast<uint16_t>(bits);
    return format.scale == A16Scale::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
  };
  for (int64_t r = r0; r < r1; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const A16Weight w = a16_unpack(format, cols, packed, r, c);
      const float product = value(w.scale_bits) * static_cast<float>(w.code);
      *out++ = product + value(w.bias_bits);
    }
}

}  // namespace galvani::kernels
