/// Many tokens on CPUs with AMX: the same bf16 panels are tdpbf16ps' B operand as they stand. 32 tokens × 32 rows in
/// four tile registers of sums.
#include "kernels/qmatmul/panel_bf16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace galvani::kernels {
#if defined(__x86_64__)
namespace {

#define GALVANI_AMX __attribute__((target("amx-tile,amx-bf16")))
constexpr int kTile = 32, kBlocks = 2;

/// Palette 1: eight tiles of 16 rows × 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// The instruction's operand is opaque to the compiler's alias analysis in g++ 12, which drops the stores that fill it;
/// the clobber keeps them.
GALVANI_AMX void configure_tiles(const TileConfig& config) {
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

/// tile[t, 16·b …] = Σ_k x[t, k] · panels[b][k, …] for 32 tokens; kUsed blocks.
template <int kUsed>
GALVANI_AMX void multiply(const uint16_t* x, int64_t stride, const uint16_t* const* panels, int64_t cols, float* tile) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kUsed == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  const int64_t row_bytes = stride * 2;
  for (int64_t k = 0; k < cols; k += 32) {
    _tile_loadd(4, x + k, row_bytes);
    _tile_loadd(5, x + 16 * stride + k, row_bytes);
    _tile_loadd(6, panels[0] + k * kBlockRows, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (kUsed == 2) {
      _tile_loadd(7, panels[1] + k * kBlockRows, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  constexpr int64_t kRowBytes = kBlocks * kBlockRows * 4;
  _tile_stored(0, tile, kRowBytes);
  _tile_stored(1, tile + 16 * kBlocks * kBlockRows, kRowBytes);
  if constexpr (kUsed == 2) {
    _tile_stored(2, tile + kBlockRows, kRowBytes);
    _tile_stored(3, tile + 16 * kBlocks * kBlockRows + kBlockRows, kRowBytes);
  }
  __asm__ volatile("" : : "r"(tile) : "memory");
}

GALVANI_AMX void release_tiles() { _tile_release(); }

}  // namespace

void qmatmul_panel_bf16_amx(const ArmCall& call) {
  const PackedMatrix& w = call.w;
  const int64_t stretch = w.padded_cols < kBf16PanelCols ? w.padded_cols : kBf16PanelCols;
  auto* scratch = reinterpret_cast<uint16_t*>(arm_scratch(0, kBlocks * stretch * kBlockRows * 2));
  alignas(64) float tile[kTile * kBlocks * kBlockRows];
  const TileConfig config;
  configure_tiles(config);
  for (int64_t b = call.b0; b < call.b1; b += kBlocks) {
    const int64_t used = call.b1 - b < kBlocks ? call.b1 - b : kBlocks;
    const int64_t left = w.rows - b * kBlockRows, columns = left < used * kBlockRows ? left : used * kBlockRows;
    for (int64_t k0 = 0; k0 < w.padded_cols; k0 += stretch) {
      const int64_t k1 = k0 + stretch < w.padded_cols ? k0 + stretch : w.padded_cols;
      const uint16_t* panels[kBlocks];
      for (int64_t i = 0; i < used; ++i)
        panels[i] = panel_bf16(w, w.block(b + i), k0, k1, scratch + i * stretch * kBlockRows);
      for (int64_t t = 0; t < call.x.m; t += kTile) {
        const uint16_t* x = call.x.bf16_row(t) + k0;
        used == 2 ? multiply<2>(x, call.x.stride, panels, k1 - k0, tile)
                  : multiply<1>(x, call.x.stride, panels, k1 - k0, tile);
        store_tile(tile, kBlocks * kBlockRows, call.x.m - t < kTile ? call.x.m - t : kTile, columns, k0 > 0,
                   call.y + t * call.y_stride + b * kBlockRows, call.y_stride);
      }
    }
  }
  release_tiles();
}

#else
void qmatmul_panel_bf16_amx(const ArmCall& call) { qmatmul_panel_f32(call); }
#endif

}  // namespace galvani::kernels
