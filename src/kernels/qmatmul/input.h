#pragma once
/// CpuInput's content, for the arms.
#include <vector>

#include "kernels/qmatmul/packed.h"

namespace galvani::kernels {

struct CpuInput::Impl {
  int64_t m = 0, k = 0, padded_k = 0;
  Arithmetic arithmetic = Arithmetic::kF32;
  /// Rows that hold zeros or data; reads beyond m are allowed up to here.
  int64_t zeroed_rows = 0;
  int64_t stride = 0;  ///< elements from row to row, in both forms
  bool has_f32 = false;
  AlignedBuffer f32, bf16;
  /// Per token: sums of x over groups of 16, then of 32, 64 and 128 columns.
  std::vector<float> sums;
  int64_t sums_stride = 0;

  const float* f32_row(int64_t t) const { return reinterpret_cast<const float*>(f32.data()) + t * stride; }
  const uint16_t* bf16_row(int64_t t) const { return reinterpret_cast<const uint16_t*>(bf16.data()) + t * stride; }
  const float* group_sums(int64_t t, int group) const { return sums.data() + t * sums_stride + sums_offset(group); }
  int64_t sums_offset(int group) const;

  /// Fills the f32 form from the bf16 one where it is missing (serial section only).
  void require_f32();
  /// Makes `rows` rows readable in the form of the arithmetic.
  void require_rows(int64_t rows);
};

}  // namespace galvani::kernels
