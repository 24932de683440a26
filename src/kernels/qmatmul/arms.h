#pragma once
/// The arms' entry points. Each computes rows of 16-row blocks [b0, b1) of one matrix for every token of the input, on
/// the calling thread; y points at the matrix' first column of token 0.
#include "kernels/qmatmul/input.h"
#include "kernels/qmatmul/packed.h"

namespace galvani::kernels {

/// Rows [first, first + m) of an input. Rows after them may be read up to the arm's tile, their results are dropped.
struct InputRows {
  InputRows(const CpuInput::Impl& whole) : InputRows(whole, 0, whole.m) {}  // NOLINT: all rows of it
  InputRows(const CpuInput::Impl& of, int64_t first_row, int64_t rows)
      : in(&of), first(first_row), m(rows), stride(of.stride), sums_stride(of.sums_stride) {}
  const CpuInput::Impl* in;
  int64_t first, m, stride, sums_stride;

  const float* f32_row(int64_t t) const { return in->f32_row(first + t); }
  const uint16_t* bf16_row(int64_t t) const { return in->bf16_row(first + t); }
  const float* group_sums(int64_t t, int group) const { return in->group_sums(first + t, group); }
};

struct ArmCall {
  const PackedMatrix& w;
  int64_t b0, b1;
  InputRows x;
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
