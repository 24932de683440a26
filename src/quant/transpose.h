#pragma once
/// A dense matrix stored by columns ([in, out]), read as the [out, in] that products want.
#include "quant/matrix_source.h"

namespace galvani::quant {

/// Rows [first, first + count) of `base`, transposed: [base.cols, count]. Elements stay the file's. They are copied on
/// the first read and kept as long as the matrix. Error kUnsupported for a quantised base, whose groups run the other
/// way; kOutOfRange for rows it does not have.
Result<MatrixPtr> transpose_rows(MatrixPtr base, int64_t first, int64_t count);

}  // namespace galvani::quant
