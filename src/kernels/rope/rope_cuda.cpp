#include "kernels/rope/rope_cuda.h"

#include <algorithm>

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::kernels {
namespace {

constexpr int kWarps = 4;       // rope_cuda.cuh's kQkvWarps
constexpr int kManyHeads = 6;   // of a warp of qkv_finish_many
constexpr int kManyRows = 128;  // from which that is faster
bool dependent(cuda::Stream& stream) { return stream.device().caps().has(Feature::kDependentLaunch); }
/// Whether qkv_finish_many takes it: every head by vectors, one of four elements a lane.
bool many_takes(const QkvArgs& args) {
  const int dim = args.kv.k_dim, vector = 4 * store_bytes(args.type);
  if (dim % 4 != 0 || dim > 128 || (args.append && args.kv.v_dim != dim)) return false;
  if (args.rope != nullptr && args.rope_pairs % (args.interleaved ? 2 : 4) != 0) return false;
  const bool floats = aligned(args.x, 16) && args.x_stride % 4 == 0 && args.k_column % 4 == 0 &&
                      args.v_column % 4 == 0 && aligned(args.bias, 16) && aligned(args.rope, 16) &&
                      aligned(args.q_norm.w, 16) && aligned(args.k_norm.w, 16) && aligned(args.v_norm.w, 16);
  const bool pages = !args.append || (aligned(args.kv.k, vector) && aligned(args.kv.v, vector) &&
                                      args.kv.k_page_stride % vector == 0 && args.kv.v_page_stride % vector == 0);
  return floats && pages && aligned(args.q, vector) && args.q_stride % 4 == 0;
}

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

Status qkv_finish_cuda(cuda::Stream& stream, const QkvArgs& args, RowsForm form) {
  const bool takes = many_takes(args),
             many = form == RowsForm::kAuto ? takes && args.rows >= kManyRows : form == RowsForm::kMany;
  if (many && !takes)
    return fail(ErrorCode::kUnsupported,
                "qkv_finish for many rows takes heads of one length up to 128 by vectors of four; these are {} and {} "
                "long, or not aligned so: let it choose the form",
                args.kv.k_dim, args.kv.v_dim);
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel(many ? "qkv_finish_many_sm70" : "qkv_finish_sm70"));
  const int heads = args.heads + (args.append ? 2 * args.kv.kv_heads : 0);
  const auto q_width = static_cast<size_t>(args.heads) * static_cast<size_t>(args.kv.k_dim);
  const auto rows = static_cast<unsigned>(args.rows), all = static_cast<unsigned>(heads);
  const unsigned few_grid = rows * ((all + kWarps - 1) / kWarps);
  const unsigned many_grid = (rows * ((all + kManyHeads - 1) / kManyHeads) + kWarps - 1) / kWarps;
  return cuda::launch(
      stream, *kernel,
      {.grid = {many ? many_grid : few_grid},
       .block = {32 * kWarps},
       .dynamic_smem = many ? 0 : kWarps * ((std::max(args.kv.k_dim, args.kv.v_dim) + 3) / 4 * 4) * 4,
       .dependent_launch = dependent(stream),
       .outputs = {{{args.q, (static_cast<size_t>(args.rows - 1) * static_cast<size_t>(args.q_stride) + q_width) *
                                 static_cast<size_t>(store_bytes(args.type))}}}},
      args);
}

}  // namespace galvani::kernels
