#pragma once

namespace galvani::kernels {

/// Which form of a kernel takes a launch: few rows are about latency, many about bytes under way. Both give the same
/// bits. kAuto: by the number of rows, and few wherever many's conditions do not hold.
enum class RowsForm { kAuto, kFew, kMany };

}  // namespace galvani::kernels
