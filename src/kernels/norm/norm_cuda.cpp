#include "kernels/norm/norm_cuda.h"

#include <algorithm>

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::kernels {

Status rms_norm_cuda(cuda::Stream& stream, const NormArgs& args) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("rms_norm_sm70"));
  // The order of the sums follows from the number of threads, which depends on dim alone.
  const bool in_registers = args.dim <= kNormSixteen;
  const int elements = args.dim <= kNormEight ? 8 : 16;
  const int threads = std::min((args.dim + 32 * elements - 1) / (32 * elements) * 32, 1024);
  cuda::LaunchConfig config{.grid = {static_cast<unsigned>(args.rows)},
                            .block = {static_cast<unsigned>(threads)},
                            .dynamic_smem = in_registers ? 0 : args.dim * 4,
                            .dependent_launch = stream.device().caps().has(Feature::kDependentLaunch)};
  // Named only where it is written completely and is not x itself.
  if (args.out != nullptr && args.out != args.x && args.out_stride == args.dim)
    config.outputs[0] = {args.out, static_cast<size_t>(args.rows) * static_cast<size_t>(args.dim) *
                                       static_cast<size_t>(store_bytes(args.out_type))};
  return cuda::launch(stream, *kernel, config, args);
}

}  // namespace galvani::kernels
