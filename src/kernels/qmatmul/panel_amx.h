#pragma once
/// The tile arm's walk over a matrix, with the tile registers as a parameter: the hardware's in panel_amx.cpp, plain
/// arrays in the test, so that the walk is tested on CPUs without tiles.
#include "kernels/qmatmul/panel_bf16.h"

#if defined(__x86_64__)
#define GALVANI_AMX __attribute__((target("amx-tile,amx-bf16")))
#else
#define GALVANI_AMX
#endif

namespace galvani::kernels {

constexpr int kAmxTokens = 32, kAmxBlocks = 2;

/// out[t, 16·b …] = Σ_k x[t, k] · panels[b][k, …] for 32 tokens; kUsed blocks. Tiles: x0, x1 of 16 tokens × 32 columns;
/// w0, w1 of 16 column pairs × 16 rows; sums c<x><w>.
template <int kUsed, class Tiles>
GALVANI_AMX void amx_multiply(Tiles& tiles, const uint16_t* x, int64_t stride, const uint16_t* const* panels,
                              int64_t cols, float* out) {
  tiles.zero_sums();
  for (int64_t k = 0; k < cols; k += kUnitCols) {
    tiles.load_x0(x + k, stride * 2);
    tiles.load_x1(x + 16 * stride + k, stride * 2);
    tiles.load_w0(panels[0] + k * kBlockRows, 64);
    tiles.multiply_w0();
    if constexpr (kUsed == 2) {
      tiles.load_w1(panels[1] + k * kBlockRows, 64);
      tiles.multiply_w1();
    }
  }
  constexpr int64_t kRow = kAmxBlocks * kBlockRows;
  tiles.store_w0(out, out + 16 * kRow, kRow * 4);
  if constexpr (kUsed == 2) tiles.store_w1(out + kBlockRows, out + 16 * kRow + kBlockRows, kRow * 4);
}

/// Columns at a time: 32 tokens of them stay in the first-level cache (40 KB) while the panels of a group of blocks
/// pass by from the second level. Even parts, so that no short one is left over.
constexpr int64_t amx_stretch(int64_t padded_cols) {
  constexpr int64_t kMost = 640;
  const int64_t parts = (padded_cols + kMost - 1) / kMost;
  return ((padded_cols + parts - 1) / parts + kUnitCols - 1) / kUnitCols * kUnitCols;
}

/// The whole call. Input rows must be readable up to the next multiple of 32.
template <class Tiles>
void amx_panel_rows(Tiles& tiles, const ArmCall& call) {
  constexpr int64_t kGroup = 16;  // blocks: 320 KB of panels
  const PackedMatrix& w = call.w;
  const int64_t stretch = amx_stretch(w.padded_cols);
  auto* scratch = reinterpret_cast<uint16_t*>(arm_scratch(0, kGroup * stretch * kBlockRows * 2));
  alignas(64) float out[kAmxTokens * kAmxBlocks * kBlockRows];
  for (int64_t b0 = call.b0; b0 < call.b1; b0 += kGroup) {
    const int64_t b1 = b0 + kGroup < call.b1 ? b0 + kGroup : call.b1;
    for (int64_t k0 = 0; k0 < w.padded_cols; k0 += stretch) {
      const int64_t k1 = k0 + stretch < w.padded_cols ? k0 + stretch : w.padded_cols;
      const uint16_t* panels[kGroup] = {};
      for (int64_t b = b0; b < b1; ++b)
        panels[b - b0] = panel_bf16(w, w.block(b), k0, k1, scratch + (b - b0) * stretch * kBlockRows);
      for (int64_t t = 0; t < call.x.m; t += kAmxTokens) {
        const uint16_t* x = call.x.bf16_row(t) + k0;
        const int64_t tokens = call.x.m - t < kAmxTokens ? call.x.m - t : kAmxTokens;
        for (int64_t b = b0; b < b1; b += kAmxBlocks) {
          const bool two = b + 1 < b1;
          two ? amx_multiply<2>(tiles, x, call.x.stride, panels + (b - b0), k1 - k0, out)
              : amx_multiply<1>(tiles, x, call.x.stride, panels + (b - b0), k1 - k0, out);
          const int64_t left = w.rows - b * kBlockRows, most = (two ? 2 : 1) * kBlockRows;
          store_tile(out, kAmxBlocks * kBlockRows, tokens, left < most ? left : most, k0 > 0,
                     call.y + t * call.y_stride + b * kBlockRows, call.y_stride);
        }
      }
    }
  }
}

static_assert(amx_stretch(576) == 576 && amx_stretch(1536) == 512 && amx_stretch(32) == 32);

}  // namespace galvani::kernels
