#include "kernels/rope/rope_cuda.h"

#include <algorithm>

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::kernels {
namespace {
bool dependent(cuda::Stream& stream) { return stream.device().caps().has(Feature::kDependentLaunch); }
}  // namespace

Status rope_table_cuda(cuda::Stream& stream, const RopeTableArgs& args) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("rope_table_sm70"));
  const auto blocks = static_cast<unsigned>((args.pairs + 63) / 64);
  const auto bytes = static_cast<size_t>(args.rows) * static_cast<size_t>(args.pairs) * 8;
  return cuda::launch(stream, *kernel,
                      {.grid = {static_cast<unsigned>(args.rows), blocks},
                       .block = {64},
                       .dependent_launch = dependent(stream),
                       .outputs = {{{args.table, bytes}}}},
                      args);
}

Status qkv_finish_cuda(cuda::Stream& stream, const QkvArgs& args) {
  constexpr int kWarps = 4;  // rope_cuda.cuh's kQkvWarps
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("qkv_finish_sm70"));
  const int heads = args.heads + (args.append ? 2 * args.kv.kv_heads : 0);
  const auto q_width = static_cast<size_t>(args.heads) * static_cast<size_t>(args.kv.k_dim);
  return cuda::launch(
      stream, *kernel,
      {.grid = {static_cast<unsigned>(args.rows) * static_cast<unsigned>((heads + kWarps - 1) / kWarps)},
       .block = {32 * kWarps},
       .dynamic_smem = kWarps * ((std::max(args.kv.k_dim, args.kv.v_dim) + 3) / 4 * 4) * 4,
       .dependent_launch = dependent(stream),
       .outputs = {{{args.q, (static_cast<size_t>(args.rows - 1) * static_cast<size_t>(args.q_stride) + q_width) *
                                 static_cast<size_t>(store_bytes(args.type))}}}},
      args);
}

}  // namespace galvani::kernels
