#include "kernels/qmatmul/a16_pack_cuda.h"

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::kernels {

Status a16_pack_cuda(cuda::Stream& stream, int bits, const A16PackArgs& args) {
  constexpr unsigned kWarps = 8;  // a16_pack.cuh's kPackWarps
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel(fmt::format("a16_pack_q{}_sm70", bits)));
  const long long units = static_cast<long long>(args.row_tiles) * args.units;
  return cuda::launch(stream, *kernel,
                      {.grid = {static_cast<unsigned>((units + kWarps - 1) / kWarps)},
                       .block = {kWarps * 32},
                       .outputs = {{{args.out, static_cast<size_t>(units * args.unit_bytes)}}}},
                      args);
}

}  // namespace galvani::kernels
