#pragma once
/// Attention over paged keys and values on a GPU: attention.h's formula and pages, the arms of attention_cuda_plan.h.
///
/// Arithmetic: queries and keys are products of the pages' type (f32 pages: f32 products) with f32 sums; softmax f32;
/// weights are rounded to the pages' type before they meet the values, sums are f32. A row's result depends on its own
/// queries and past and on the split alone. Tokens beyond a row never reach it; with the tiles arm, a NaN in a later
/// token of the same chunk may.
#include <span>
#include <string>
#include <vector>

#include "cuda/stream.h"
#include "kernels/attention/attention_cuda_args.h"
#include "kernels/attention/attention_cuda_plan.h"

namespace galvani::kernels {

/// What a chunk of m rows of such a layer runs on this part, as text: "kernel=NAME …" or "refused: why".
std::string attention_cuda_plan_str(const DeviceCaps& caps, const AttentionCudaShape& shape, int64_t m);

/// A launch as GALVANI_TRACE=plan prints it: the layer, the rows (0: as many tiles as the chunks need), the kernel.
std::string attention_cuda_launch_str(const AttentionCudaChoice& choice, const PagedKv& kv, int heads,
                                      const ScoreArgs& score, int rows);

/// Writes the schedule of AttentionRowsArgs (2 + rows ints) for these positions; returns the segments of all rows.
int attention_schedule(std::span<const int> positions, int window, int segment, int* out);

/// Cuts rows [row, row + count) of one sequence at `position` into tiles of at most `rows` rows, appended to `tiles`.
void attention_tiles(int row, int count, int position, int sequence, int rows, std::vector<AttentionTileRows>& tiles);
/// Longest first, so that the last ones to start are short.
void sort_attention_tiles(std::vector<AttentionTileRows>& tiles, int window);

/// Decode: the keys of every row in segments, then the merge. `choice` from plan_attention_decode.
Status attention_decode_cuda(cuda::Stream& stream, const AttentionCudaChoice& choice, const AttentionRowsArgs& args);
/// `choice` from plan_attention_simt; schedule and parts of args are not used.
Status attention_simt_cuda(cuda::Stream& stream, const AttentionCudaChoice& choice, const AttentionRowsArgs& args);
/// `choice` from plan_attention_tiles; args.tiles holds `tiles` of them.
Status attention_tiles_cuda(cuda::Stream& stream, const AttentionCudaChoice& choice, const AttentionTilesArgs& args,
                            int tiles);

}  // namespace galvani::kernels
