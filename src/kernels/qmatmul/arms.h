#pragma once
/// The arms' entry points. Each computes rows of 16-row blocks [b0, b1) of one matrix for every token of the input, on
/// the calling thread; y points at the matrix' first column of token 0.
#include "kernels/qmatmul/input.h"
#include "kernels/qmatmul/packed.h"

namespace galvani::kernels {

struct ArmCall {
  const PackedMatrix& w;
  int64_t b0, b1;
  const CpuInput::Impl& x;
  float* y;
  int64_t y_stride;
};

void qmatmul_ref(const ArmCall& call);
void qmatmul_rows_f32(const ArmCall& call);
void qmatmul_rows_bf16_avx512(const ArmCall& call);
void qmatmul_panel_f32(const ArmCall& call);
void qmatmul_panel_bf16_avx512(const ArmCall& call);
void qmatmul_panel_bf16_amx(const ArmCall& call);

/// Calling thread's scratch of at least `bytes`, 64-byte aligned; `slot` 0 to 1 tells two buffers apart.
std::byte* arm_scratch(int slot, int64_t bytes);

/// Writes (or adds, from the second stretch of columns on) a tile of tokens × columns to y, valid part only.
void store_tile(const float* tile, int64_t tile_stride, int64_t tokens, int64_t columns, bool add, float* y,
                int64_t y_stride);

}  // namespace galvani::kernels
