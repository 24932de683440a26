#pragma once
/// Packing to A16 on the device: the host sends a checkpoint's bytes as they are, or only a seed.
#include "cuda/stream.h"
#include "kernels/qmatmul/a16_pack_lane.h"

namespace galvani::kernels {

/// Whether the device can pack such rows: their code streams must be whole 32-bit words.
constexpr bool a16_packs_on_device(int64_t cols) { return cols % 32 == 0; }

/// args from a16_pack_args(), with its pointers; `out` is written completely. Asynchronous.
Status a16_pack_cuda(cuda::Stream& stream, int bits, const A16PackArgs& args);

}  // namespace galvani::kernels
