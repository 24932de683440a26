#pragma once
/// Matrices turned around: what a file stores [in, out] as the [out, in] that products want, or the other way.
#include "quant/matrix_source.h"

namespace galvani::quant {

/// Rows [first, first + count) of a dense `base`, transposed: [base.cols, count]. Elements stay the file's. They are
/// copied on the first read and kept as long as the matrix. Error kUnsupported for a quantised base, whose groups run
/// the other way; kOutOfRange for rows it does not have.
Result<MatrixPtr> transpose_rows(MatrixPtr base, int64_t first, int64_t count);

/// The values of rows [first, first + count) of `base`, transposed: [base.cols, count]. Any storage: quantised values
/// are computed at once, exactly, and kept as bf16 where every one of them is a bf16 number, else as f32. For matrices
/// whose other direction is multiplied too, and whose groups therefore run the wrong way (latent attention's absorbed
/// keys). Errors: kOutOfRange for rows that base does not have, and those of reading them.
Result<MatrixPtr> transpose_values(const MatrixSource& base, int64_t first, int64_t count);

}  // namespace galvani::quant
