#include "kernels/attention/attention_cuda.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "cuda/blas.h"
#include "cuda/launch.h"
#include "kernels/common/tensor_map.h"

namespace galvani::kernels {
namespace {
bool dependent(const cuda::CudaDevice& device) { return device.caps().has(Feature::kDependentLaunch); }
std::string choice_str(const AttentionCudaChoice& choice) {
  return fmt::format("kernel={} rows={} threads={} shared={}", choice.kernel, choice.rows, choice.threads,
                     choice.shared_bytes);
}
/// The kernel of a choice; a refused one is an error that says why.
Result<const cuda::Kernel*> kernel_of(cuda::CudaDevice& device, const AttentionCudaChoice& choice) {
  if (choice.kernel == nullptr)
    return fail(ErrorCode::kUnsupported, "attention that the plan has refused for {}: {}", device.name(),
                choice.refusal);
  return device.kernel(choice.kernel);
}
/// [pages, kv_heads · 64, dim], boxes of a page and head × 64 dims. How many pages there are is not known here; what is
/// asked for comes from block tables, so the map reaches over any memory a part may have.
Result<TensorMap> map_of_pages(cuda::CudaDevice& device, const char* pages, long long page_stride, int kv_heads,
                               int dim) {
  constexpr int64_t kReach = int64_t{1} << 38;
  GALVANI_TRY(const auto bytes, cuda::tensor_map_3d(device, pages, kReach / page_stride, page_stride / 2,
                                                    int64_t{kv_heads} * 64, dim, dim, 64));
  TensorMap map;
  std::memcpy(map.bytes, bytes.data(), sizeof(map.bytes));
  return map;
}
}  // namespace

std::string attention_cuda_plan_str(const DeviceCaps& caps, const AttentionCudaShape& shape, int64_t m) {
  const auto text = choice_str;
  if (m >= kTileMinRows) {
    const auto tiles = plan_attention_tiles(caps, shape, static_cast<int>(std::min<int64_t>(m, 1 << 20)));
    if (tiles.kernel != nullptr) return text(tiles);
  }
  const auto decode = plan_attention_decode(caps, shape);
  if (decode.kernel != nullptr) return text(decode) + " then kernel=attention_merge_sm75";
  const auto simt = plan_attention_simt(caps, shape);
  if (simt.kernel != nullptr) return fmt::format("{} ({})", text(simt), decode.refusal);
  return fmt::format("refused: {}; {}", decode.refusal, simt.refusal);
}

std::string attention_cuda_launch_str(const AttentionCudaChoice& choice, const PagedKv& kv, int heads,
                                      const ScoreArgs& score, int rows) {
  return fmt::format("attention {} heads, {} kv x {}/{}{}{}{}: {}", heads, kv.kv_heads, kv.k_dim, kv.v_dim,
                     score.window > 0 ? fmt::format(", window {}", score.window) : "",
                     score.softcap > 0 ? ", softcap" : "", rows > 0 ? fmt::format(", {} rows", rows) : ", chunks",
                     choice_str(choice));
}

int attention_schedule(std::span<const int> positions, int window, int segment, int* out) {
  out[0] = segment;
  int segments = 0;
  for (size_t r = 0; r < positions.size(); ++r) {
    out[1 + r] = segments;
    segments += attention_segments(positions[r], window, segment);
  }
  out[1 + positions.size()] = segments;
  return segments;
}

void attention_tiles(int row, int count, int position, int sequence, int rows, std::vector<AttentionTileRows>& tiles) {
  for (int i = 0; i < count; i += rows)
    tiles.push_back({row + i, std::min(rows, count - i), position + i, sequence, position + count});
}

void sort_attention_tiles(std::vector<AttentionTileRows>& tiles, int window) {
  const auto pages = [window](const AttentionTileRows& tile) {
    const int first = window > 0 ? std::max(0, tile.position - window + 1) : 0;
    return (tile.position + tile.count - 1) / 64 - first / 64;
  };
  std::stable_sort(tiles.begin(), tiles.end(), [&](const auto& a, const auto& b) { return pages(a) > pages(b); });
}

Status attention_decode_cuda(cuda::Stream& stream, const AttentionCudaChoice& choice, const AttentionRowsArgs& args) {
  cuda::CudaDevice& device = stream.device();
  GALVANI_TRY(const cuda::Kernel* decode, kernel_of(device, choice));
  device.trace_plan([&] {
    return attention_cuda_launch_str(choice, args.kv, args.heads, args.score, args.rows) +
           " then kernel=attention_merge_sm75";
  });
  GALVANI_TRY(const cuda::Kernel* merge, device.kernel("attention_merge_sm75"));
  const auto blocks = static_cast<unsigned>(device.caps().sms * choice.blocks_per_sm);
  GALVANI_TRY_VOID(cuda::launch(stream, *decode,
                                {.grid = {blocks},
                                 .block = {static_cast<unsigned>(choice.threads)},
                                 .dynamic_smem = choice.shared_bytes,
                                 .dependent_launch = dependent(device)},
                                args));
  const auto rows = static_cast<unsigned>(args.rows), heads = static_cast<unsigned>(args.heads);
  return cuda::launch(stream, *merge,
                      {.grid = {rows, heads},
                       .block = {static_cast<unsigned>(attention_merge_threads(args.kv.v_dim))},
                       .dependent_launch = dependent(device)},
                      args);
}

Status attention_simt_cuda(cuda::Stream& stream, const AttentionCudaChoice& choice, const AttentionRowsArgs& args) {
  GALVANI_TRY(const cuda::Kernel* kernel, kernel_of(stream.device(), choice));
  stream.device().trace_plan(
      [&] { return attention_cuda_launch_str(choice, args.kv, args.heads, args.score, args.rows); });
  const auto rows = static_cast<unsigned>(args.rows), heads = static_cast<unsigned>(args.heads);
  return cuda::launch(stream, *kernel,
                      {.grid = {rows, heads},
                       .block = {static_cast<unsigned>(choice.threads)},
                       .dynamic_smem = choice.shared_bytes,
                       .dependent_launch = dependent(stream.device())},
                      args);
}

Status attention_tiles_cuda(cuda::Stream& stream, const AttentionCudaChoice& choice, const AttentionTilesArgs& args,
                            int tiles) {
  GALVANI_TRY(const cuda::Kernel* kernel, kernel_of(stream.device(), choice));
  stream.device().trace_plan([&] { return attention_cuda_launch_str(choice, args.kv, args.heads, args.score, 0); });
  const auto grid = static_cast<unsigned>(tiles), heads = static_cast<unsigned>(args.heads);
  const cuda::LaunchConfig config{.grid = {grid, heads},
                                  .block = {static_cast<unsigned>(choice.threads)},
                                  .dynamic_smem = choice.shared_bytes,
                                  .dependent_launch = dependent(stream.device())};
  if (choice.keys == 0) return cuda::launch(stream, *kernel, config, args);
  const PagedKv& kv = args.kv;
  GALVANI_TRY(const TensorMap k, map_of_pages(stream.device(), kv.k, kv.k_page_stride, kv.kv_heads, kv.k_dim));
  GALVANI_TRY(const TensorMap v, map_of_pages(stream.device(), kv.v, kv.v_page_stride, kv.kv_heads, kv.v_dim));
  return cuda::launch(stream, *kernel, config, args, k, v);
}

}  // namespace galvani::kernels
