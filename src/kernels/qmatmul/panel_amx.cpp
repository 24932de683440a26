/// Many tokens on CPUs with AMX: the bf16 panels are tdpbf16ps' second operand as they stand. 32 tokens × 32 rows in
/// four tile registers of sums.
#include "kernels/qmatmul/panel_amx.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace galvani::kernels {
#if defined(__x86_64__)
namespace {

/// Palette 1: eight tiles of 16 rows × 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// Tile numbers are literals because g++ 12's intrinsics paste them into assembly. Those intrinsics also forget to say
/// that they read memory, so that stores before them could be dropped; the empty assembly says it.
struct HardwareTiles {
  static void flush() { __asm__ volatile("" : : : "memory"); }
  GALVANI_AMX HardwareTiles() {
    const TileConfig config;
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  GALVANI_AMX ~HardwareTiles() { _tile_release(); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  GALVANI_AMX void zero_sums() {
    flush();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  GALVANI_AMX void load_x0(const void* from, int64_t stride) { _tile_loadd(4, from, stride); }
  GALVANI_AMX void load_x1(const void* from, int64_t stride) { _tile_loadd(5, from, stride); }
  GALVANI_AMX void load_w0(const void* from, int64_t stride) { _tile_loadd(6, from, stride); }
  GALVANI_AMX void load_w1(const void* from, int64_t stride) { _tile_loadd(7, from, stride); }
  GALVANI_AMX void multiply_w0() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
  }
  GALVANI_AMX void multiply_w1() {
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  GALVANI_AMX void store_w0(float* x0, float* x1, int64_t stride) {
    _tile_stored(0, x0, stride);
    _tile_stored(1, x1, stride);
    flush();
  }
  GALVANI_AMX void store_w1(float* x0, float* x1, int64_t stride) {
    _tile_stored(2, x0, stride);
    _tile_stored(3, x1, stride);
    flush();
  }
};

}  // namespace

void qmatmul_panel_bf16_amx(const ArmCall& call) {
  HardwareTiles tiles;
  amx_panel_rows(tiles, call);
}

#else
void qmatmul_panel_bf16_amx(const ArmCall& call) { qmatmul_panel_f32(call); }
#endif

}  // namespace galvani::kernels
