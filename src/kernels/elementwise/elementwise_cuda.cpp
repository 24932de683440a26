#include "kernels/elementwise/elementwise_cuda.h"

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::kernels {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kFourThreads =
    64;  // of kernels with four elements a thread: one row has many multiprocessors' loads
constexpr unsigned kRowThreads = 128;  // of a block that has a row to itself
bool dependent(cuda::Stream& stream) { return stream.device().caps().has(Feature::kDependentLaunch); }
/// store.cuh's row_thread. Rows and their blocks are far below 2^31 together: what they index lies in memory.
cuda::Dim3 grid(int rows, int threads, unsigned block = kThreads) {
  return {static_cast<unsigned>(rows) * ((static_cast<unsigned>(threads) + block - 1) / block)};
}

}  // namespace

Status gated_cuda(cuda::Stream& stream, const GatedArgs& args) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("gated_sm70"));
  const unsigned threads = args.rows < 16 ? kFourThreads : kThreads;
  cuda::LaunchConfig config{
      .grid = grid(args.rows, (args.dim + 3) / 4, threads), .block = {threads}, .dependent_launch = dependent(stream)};
  if (args.out != args.up && args.rows > 0)
    config.outputs[0] = {args.out, static_cast<size_t>((args.rows - 1) * args.out_stride + args.dim) *
                                       static_cast<size_t>(store_bytes(args.out_type))};
  return cuda::launch(stream, *kernel, config, args);
}

Status finish_rows_cuda(cuda::Stream& stream, const FinishArgs& args) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("finish_rows_sm70"));
  return cuda::launch(stream, *kernel,
                      {.grid = grid(args.rows, args.dim), .block = {kThreads}, .dependent_launch = dependent(stream)},
                      args);
}

Status count_values_cuda(cuda::Stream& stream, const CountArgs& args) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("count_values_sm70"));
  return cuda::launch(stream, *kernel,
                      {.grid = grid(args.rows, args.dim), .block = {kThreads}, .dependent_launch = dependent(stream)},
                      args);
}

Status embed_cuda(cuda::Stream& stream, const EmbedArgs& args) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("embed_sm70"));
  const auto bytes = static_cast<size_t>(args.rows) * static_cast<size_t>(args.dim) * 4;
  // Many rows fill the GPU with a block each; few must spread over it.
  const bool by_row = args.rows >= 64 && args.dim % 4 == 0 && (args.bits == 0 || args.group % 4 == 0);
  return cuda::launch(stream, *kernel,
                      {.grid = by_row ? cuda::Dim3{static_cast<unsigned>(args.rows)}
                                      : grid(args.rows, args.dim % 4 == 0 ? args.dim / 4 : args.dim, kFourThreads),
                       .block = {by_row ? kRowThreads : kFourThreads},
                       .dependent_launch = dependent(stream),
                       .outputs = {{{args.out, bytes}}}},
                      args);
}

}  // namespace galvani::kernels
