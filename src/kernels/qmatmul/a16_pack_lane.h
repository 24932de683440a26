#pragma once
/// One lane's share of packing a unit to A16 (a16_layout.h) from MLX's code streams: what the device does when weights
/// are uploaded, and what a test on the CPU compares with a16_pack byte by byte. Pure constexpr, so that both compile
/// it.
#include "kernels/qmatmul/a16_layout.h"
#include "quant/synthetic_words.h"

namespace galvani::kernels {

/// Rows of an affine matrix as they are sent, or as they are made; to whole row tiles.
struct A16PackArgs {
  const unsigned* codes = nullptr;  ///< [rows][row_words], a little-endian bit stream each; null: synthetic words
  const void* scales = nullptr;     ///< [rows][groups]; synthetic: not read
  const void* biases = nullptr;
  unsigned char* out = nullptr;  ///< unit 0 of the first row tile
  int rows = 0, cols = 0, row_words = 0, groups = 0, group = 0;
  int units = 0, row_tiles = 0, unit_bytes = 0, subgroups = 1;
  int value_bytes = 2;  ///< of a scale
  quant::SyntheticWords synthetic;
};

/// Bytes of code words of the whole rows; a multiple of 4 in rows that this takes (cols a multiple of 32).
constexpr A16PackArgs a16_pack_args(const A16Format& format, int rows, int cols) {
  A16PackArgs args;
  args.rows = rows, args.cols = cols, args.row_words = cols / 32 * format.bits;
  args.groups = cols / format.group, args.group = format.group;
  args.units = static_cast<int>(a16_units(cols)), args.row_tiles = static_cast<int>(a16_row_tiles(rows));
  args.unit_bytes = a16_unit_bytes(format), args.subgroups = a16_subgroups(format.group);
  args.value_bytes = a16_pair_bytes(format.scale) / 2;
  return args;
}

constexpr unsigned a16_stream_word(const A16PackArgs& args, int row, int word) {
  if (row >= args.rows || word >= args.row_words) return 0;  // padding
  if (args.codes == nullptr) return quant::synthetic_word(args.synthetic.seed, row, word);
  return args.codes[static_cast<long long>(row) * args.row_words + word];
}

/// Code of (row, column); 0 outside the matrix.
template <int kBits>
constexpr unsigned a16_stream_code(const A16PackArgs& args, int row, int col) {
  const int bit = col * kBits, word = bit >> 5, shift = bit & 31;
  unsigned value = a16_stream_word(args, row, word) >> shift;
  if (shift + kBits > 32) value |= a16_stream_word(args, row, word + 1) << (32 - shift);
  return value & ((1u << kBits) - 1);
}

constexpr unsigned a16_rotate(unsigned value, int left) {
  return left == 0 ? value : value << left | value >> (32 - left);
}

/// The kBits words of `lane` in unit `u` of row tile `tile`.
template <int kBits>
constexpr void a16_lane_words(unsigned (&words)[kBits], const A16PackArgs& args, int tile, int u, int lane) {
  for (int w = 0; w < kBits; ++w) words[w] = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int i = 0; i < 2 * kA16Pairs; ++i) {
    const int pair = i / 2, half = i % 2, step = pair / 4, reg = pair % 4;
    const int row = tile * kA16Rows + lane / 4 + reg % 2 * 8;
    const unsigned code =
        a16_stream_code<kBits>(args, row, u * kA16Cols + step * 16 + reg / 2 * 8 + lane % 4 * 2 + half);
    if (pair < a16_fields(kBits) * kBits) {  // its bits lie side by side
      const A16Bit place = a16_bit(kBits, pair, half, 0);
      words[place.word] |= a16_rotate(code, place.at);
    } else {
#ifdef __CUDACC__
#pragma unroll
#endif
      for (int bit = 0; bit < kBits; ++bit) {
        const A16Bit place = a16_bit(kBits, pair, half, bit);
        words[place.word] |= (code >> bit & 1u) << place.at;
      }
    }
  }
}

/// Where the pair at `index` (0 … 16 · subgroups) of a unit comes from: an index into scales and biases, −1 = padding.
constexpr long long a16_pair_source(const A16PackArgs& args, int tile, int u, int index) {
  const int row = tile * kA16Rows + index % 16 / 2 + index % 2 * 8;
  const int col = u * kA16Cols + index / 16 * (kA16Cols / args.subgroups);
  if (row >= args.rows || col / args.group >= args.groups) return -1;
  return static_cast<long long>(row) * args.groups + col / args.group;
}

}  // namespace galvani::kernels
