#pragma once
/// A matrix made of chosen rows of another, without copying: one expert of a stack, the gate half of a fused product,
/// heads in another order. Codes, scales and elements stay the file's, bit for bit.
#include <vector>

#include "quant/matrix_source.h"

namespace galvani::quant {

/// `count` rows first, first + step, …
struct RowRun {
  int64_t first = 0, count = 0, step = 1;
};

/// Rows of the runs, one run after another. Every row must lie in `base` (checked), at least one must be chosen.
Result<MatrixPtr> select_rows(MatrixPtr base, std::vector<RowRun> runs);

}  // namespace galvani::quant
