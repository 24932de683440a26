#pragma once
/// The values of a matrix turned around, as a dense matrix in memory.
#include "quant/matrix_source.h"

namespace galvani::quant {

/// Rows [first, first + count) of `base`, transposed: [base.cols, count]. Any storage: quantised values are computed
/// once, exactly, and kept as bf16 where every one of them is a bf16 number, else as f32. For matrices whose other
/// direction is multiplied too, and whose groups therefore run the wrong way (latent attention's absorbed keys).
/// Errors: kOutOfRange for rows that base does not have, and those of reading them.
Result<MatrixPtr> dense_transpose(const MatrixSource& base, int64_t first, int64_t count);

}  // namespace galvani::quant
