#include "kernels/norm/norm_cuda.h"

#include <algorithm>

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::kernels {
namespace {

/// Whether rms_norm_many takes it.
bool many_takes(const NormArgs& args) {
  return args.add == nullptr && args.gather == nullptr && args.normalise && args.out != nullptr &&
         args.dim <= kNormEight && args.dim % 4 == 0 && aligned(args.x, 16) && args.x_stride % 4 == 0 &&
         aligned(args.norm.w, 16) && aligned(args.out, 4 * store_bytes(args.out_type)) && args.out_stride % 4 == 0;
}

}  // namespace

Status rms_norm_cuda(cuda::Stream& stream, const NormArgs& args, RowsForm form) {
  // The order of the sums follows from the number of threads, which depends on dim alone.
  const bool in_registers = args.dim <= kNormSixteen;
  const int elements = args.dim <= kNormEight ? 8 : 16;
  const int threads = std::min((args.dim + 32 * elements - 1) / (32 * elements) * 32, 1024);
  // What fits on the part at once; many rows are two of such waves or more.
  const int resident = stream.device().caps().sms * (2048 / threads);
  const bool takes = many_takes(args),
             many = form == RowsForm::kAuto ? takes && args.rows >= 2 * resident : form == RowsForm::kMany;
  if (many && !takes)
    return fail(
        ErrorCode::kUnsupported,
        "rms_norm for many rows takes up to {} elements by vectors of four, without a sum before; these are {}: "
        "let it choose the form",
        kNormEight, args.dim);
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel(many ? "rms_norm_many_sm70" : "rms_norm_sm70"));
  cuda::LaunchConfig config{.grid = {static_cast<unsigned>(many ? std::min(args.rows, resident) : args.rows)},
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
