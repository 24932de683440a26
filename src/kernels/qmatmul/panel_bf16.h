#pragma once
/// What the two bf16 panel arms share.
#include "kernels/qmatmul/arms.h"

namespace galvani::kernels {

constexpr int64_t kBf16PanelCols = 2048;  ///< columns at a time: 64 KB a block

/// Columns [k0, k1) of a block as bf16 pairs, [k/2][16][2], rounded to nearest even: the packed bytes themselves for
/// dense bf16, else written to `out`. Needs AVX512_BF16.
const uint16_t* panel_bf16(const PackedMatrix& w, const std::byte* block, int64_t k0, int64_t k1, uint16_t* out);

}  // namespace galvani::kernels
