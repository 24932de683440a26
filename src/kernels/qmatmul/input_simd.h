#pragma once
/// The vector part of preparing an input row.
#include <cstdint>

namespace galvani::kernels {

/// out[0, k) = x rounded to bf16, out up to the next multiple of 16 zero; sums[g] = Σ of the rounded values of columns
/// [16g, 16g + 16), ⌈k/16⌉ of them.
void bf16_row(const float* x, int64_t k, uint16_t* out, float* sums);
/// sums[g] = Σ padded[16g, 16g + 16); `padded` is readable up to the next multiple of 16 beyond k.
void f32_row_sums(const float* padded, int64_t k, float* sums);

}  // namespace galvani::kernels
