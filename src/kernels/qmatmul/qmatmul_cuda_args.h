#pragma once
/// What the CUDA kernels of qmatmul are given, and how they lay out shared memory. Shared by host and device code, so
/// no include but the constexpr layout, gates and a tensor map, and no standard library.
#include "kernels/common/gate.h"
#include "kernels/common/tensor_map.h"
#include "kernels/qmatmul/a16_float.h"

namespace galvani::kernels {

/// y[m, n] (+)= Σ_k x[m, k] · W[n, k] with W in A16.
struct QmatmulArgs {
  const unsigned char* w;  ///< A16 units, 16-byte aligned
  const void* x;           ///< activations, [m, k], row stride x_stride elements
  void* y;                 ///< [m, n], row stride y_stride elements: f32, or the activations' type if y_16
  long long x_stride, y_stride;
  int n, m, k;
  int units;       ///< a16_units(k)
  int row_tiles;   ///< a16_row_tiles(n)
  int unit_bytes;  ///< a16_unit_bytes
  int subgroups;   ///< scale pairs of a row in a unit: 1, 2, 4
  int scale;       ///< A16Scale; at the launch of float codes the f32 bits of the matrix's factor, see qmatmul_factor
  int add;         ///< y += instead of y =; f32 alone
  int y_16;        ///< y has the activations' type
  int x_aligned;   ///< rows of x can be read 16 bytes at a time
};

/// A gated launch: y[m, n / 2] = gate'(x·W[row], x·W[n / 2 + row]) in the activations' type, n / 2 in whole row tiles.
/// The kernel sees the row tiles of both halves in turn (qmatmul_gate_tile), so that neighbouring warps have what
/// belongs together.
struct QmatmulGate {
  int on;  ///< else the rest is nothing
  Gate kind;
  float alpha, limit;  ///< Gate::kSwigluClamped
};
/// The stored row tile of logical row tile `tile`: gate, up, gate, up, ...
constexpr int qmatmul_gate_tile(int tile, int row_tiles) { return (tile >> 1) + (tile & 1) * (row_tiles >> 1); }

/// The few-token kernel's share-out. All offsets are bytes of dynamic shared memory; the rings come first.
struct QmatmulFewArgs {
  QmatmulArgs p;
  int split_log2;              ///< blocks that share K (the cluster size) as a power of two
  int tiles, tiles_rest;       ///< row tiles of each group of blocks; the first `tiles_rest` groups have one more
  int slice;                   ///< units of a block's K slice; the last one's may be shorter
  int chunks[2];               ///< chunks of a row tile: in a full slice, in the last
  unsigned chunks_inverse[2];  ///< ceil(2^32 / chunks), which divides exactly as far as needed
  int ahead;                   ///< slots that are asked for before x may be read
  int stages;                  ///< slots of each warp's ring: 1 to 4
  int x_row;                   ///< bytes between two rows of x in shared memory
  int x_at, sum_at, red_at, part_at, barrier_at;
  int zero_at;  ///< one token: zeros, few_zero_bytes of them behind x
};

constexpr int kFewWarps = 16;
/// Units that one copy brings and one wait hands over.
constexpr int kFewChunk = 4;
/// One token: a matrix row of zeros for every unit of a chunk, in other banks than x's.
constexpr int few_zero_bytes(int chunk) { return chunk * kA16Cols * 2 + 128; }
/// Units a warp has in registers at once: independent products to interleave.
constexpr int few_batch(int bits) { return bits == 2 ? 4 : bits <= 4 ? 2 : 1; }

/// How a wgmma tile ends: by single stores; f32 by vectors (n a multiple of 4, y and its rows at multiples of 16
/// bytes); to a gated activation.
enum class WgmmaEnd : int { kSingle, kVectors, kGate };

/// Many tokens by wgmma: 128 rows × tokens a tile, walked by as many blocks as there are SMs.
struct QmatmulWgmmaArgs {
  QmatmulArgs p;
  int row_blocks, token_blocks;  ///< tiles along n and m
  int stages;
  int splits;  ///< blocks that share the K of one tile; above 1 a block has one tile, and y is [splits, m, n] in f32
  int slice;   ///< units of a block's part, a whole number of stages
  // With one field more ptxas serialises the products (C7513, README.md).
  WgmmaEnd end;
  Gate gate;
  float alpha, limit;
  int end_at;  ///< kWgmmaEndBytes of dynamic shared memory behind the ring
};
/// What adds those parts into y.
struct QmatmulPartsArgs {
  QmatmulArgs p;
  const float* sums;  ///< [parts, m, n]
  int parts;
};
constexpr int kMostParts = 4, kPartsThreads = 256, kPartsColumns = 4 * kPartsThreads;
/// What the parts of one product may take.
constexpr long long kPartsBytes = 16ll << 20;
constexpr int kWgmmaRows = 128, kWgmmaThreads = 384;
/// Shared memory behind the ring for the ends of tiles. Vectors: two buffers of each warpgroup, sixteen tokens of 64
/// rows and four more floats against bank conflicts. A gate: two buffers of each warp, eight floats a lane.
constexpr int kWgmmaEndTokens = 16, kWgmmaEndStride = kWgmmaRows / 2 + 4;
constexpr int kWgmmaEndBytes = 2 * 2 * kWgmmaEndTokens * kWgmmaEndStride * 4;
static_assert(kWgmmaEndBytes >= 8 * 2 * 8 * 32 * 4);
/// Units of K in one stage: 32 KB of x whatever the tile's width.
constexpr int wgmma_step(int tokens) { return 256 / tokens; }
constexpr int wgmma_stage_bytes(int tokens, int unit_bytes) {
  // x first, 1024-byte aligned; the weights of eight row tiles behind it.
  const int bytes = wgmma_step(tokens) * (tokens * 128 + kWgmmaRows / kA16Rows * unit_bytes);
  return (bytes + 1023) / 1024 * 1024;
}

/// Up to 64 tokens with x streamed beside the weights (qmatmul_stream.cuh): a block's sixteen multiplying warps are
/// four warpgroups; `columns` of them stand side by side over the row tiles of a pass, `parts` share the units of a
/// stage.
struct QmatmulStreamArgs {
  QmatmulArgs p;
  int split_log2;         ///< blocks that share K (the cluster size) as a power of two
  int tiles, tiles_rest;  ///< row tiles of each group of blocks; the first `tiles_rest` groups have one more
  int pass_tiles;         ///< row tiles that a block works on at once: 1 to 16
  int columns, parts;     ///< columns · parts ≤ 4; columns · 4 ≥ pass_tiles
  int slice;              ///< units of a block's K slice; the last one's may be shorter
  int step;               ///< units of a stage
  int stages, stage_bytes;
  int ahead;    ///< stages whose weights are asked for before x may be read
  int part_at;  ///< partial sums [part][row tile][token][16], bytes of dynamic shared memory
};
constexpr int kStreamWarps = 16, kStreamThreads = (kStreamWarps + 1) * 32, kStreamMostStages = 16;

struct StreamShape {
  QmatmulStreamArgs args{};
  int groups = 0, smem = 0;
  bool ok = false;
};

/// `tokens` of the tile (16, 32, 64), `step` units a stage. Not ok when fewer than two stages fit.
constexpr StreamShape stream_shape(const QmatmulArgs& p, int tokens, int split_log2, int blocks, int smem_limit,
                                   int step, int max_stages, int ahead) {
  StreamShape s;
  QmatmulStreamArgs& a = s.args;
  const int splits = 1 << split_log2;
  s.groups = blocks / splits < p.row_tiles ? blocks / splits : p.row_tiles;
  a.slice = (p.units + splits - 1) / splits;
  if (s.groups < 1 || p.units - a.slice * (splits - 1) < 1) return s;
  a.p = p, a.split_log2 = split_log2, a.step = step;
  a.tiles = p.row_tiles / s.groups, a.tiles_rest = p.row_tiles % s.groups;
  const int most = a.tiles + (a.tiles_rest > 0), passes = (most + kStreamWarps - 1) / kStreamWarps;
  a.pass_tiles = (most + passes - 1) / passes;
  a.columns = (a.pass_tiles + 3) / 4, a.parts = 4 / a.columns;
  a.stage_bytes = (step * (tokens * 128 + a.pass_tiles * p.unit_bytes) + 1023) / 1024 * 1024;
  const int sums = a.parts > 1 || splits > 1 ? a.parts * a.pass_tiles * tokens * kA16Rows * 4 : 0;
  a.stages = (smem_limit - 1024 - sums) / a.stage_bytes;
  if (a.stages > max_stages) a.stages = max_stages;
  if (a.stages > kStreamMostStages) a.stages = kStreamMostStages;
  if (a.stages < 2) return s;
  a.ahead = ahead < a.stages ? ahead : a.stages;
  a.part_at = a.stages * a.stage_bytes;
  s.smem = a.part_at + sums;
  s.ok = true;
  return s;
}

constexpr int kMmaWarps = 4, kMmaThreads = kMmaWarps * 32, kMmaTokens = 64, kMmaRowTiles = 2;
constexpr int kExpandWarps = 8;

/// A16 to a row-major matrix.
struct A16ExpandArgs {
  const unsigned char* w;
  void* out;         ///< [n, k], row stride `stride` elements
  long long stride;  ///< even
  int n, k, units, row_tiles, unit_bytes, subgroups, scale;
};

struct FewShape {
  QmatmulFewArgs args{};
  int groups = 0;  ///< clusters (or blocks) that share the row tiles
  int smem = 0;    ///< bytes a block
  int chunk = kFewChunk;
  bool one = false;  ///< for the kernel of one token
  bool ok = false;
};

/// Shared memory of a few-token launch: x's slice with 16 bytes after each row (so that eight rows lie in different
/// banks), the sums of its subgroups where weights have a bias, two partial tiles a warp, the tiles a cluster
/// exchanges, and what is left as rings of at most `max_stages` slots of `chunk` units. Not ok when fewer than
/// `min_stages` fit into `smem_limit`. `one`: for the kernel of one token, whose x is zeros up to whole chunks and
/// further.
constexpr FewShape few_shape(const QmatmulArgs& p, int tiles, int split_log2, int blocks, int smem_limit,
                             int min_stages, int max_stages, int chunk = kFewChunk, bool one = false) {
  FewShape s;
  QmatmulFewArgs& a = s.args;
  const int splits = 1 << split_log2;
  s.groups = blocks / splits;
  if (s.groups > p.row_tiles) s.groups = p.row_tiles;
  a.slice = (p.units + splits - 1) / splits;
  const int last = p.units - a.slice * (splits - 1);
  if (s.groups < 1 || last < 1) return s;
  a.p = p;
  a.split_log2 = split_log2;
  a.tiles = p.row_tiles / s.groups, a.tiles_rest = p.row_tiles % s.groups;
  const long long most_tiles = a.tiles + (a.tiles_rest > 0);
  for (int i = 0; i < 2; ++i) {
    a.chunks[i] = ((i == 0 ? a.slice : last) + chunk - 1) / chunk;
    a.chunks_inverse[i] = static_cast<unsigned>((0x100000000ll + a.chunks[i] - 1) / a.chunks[i] - (a.chunks[i] == 1));
    if (most_tiles * a.chunks[i] * kFewWarps >= 0x7fffffffll / kFewWarps) return s;
    if (most_tiles * a.chunks[i] * a.chunks[i] >= 0x100000000ll) return s;
  }
  const int padded = one ? a.chunks[0] * chunk : a.slice;  // units
  a.x_row = padded * kA16Cols * 2 + 16;
  const int slot = kFewWarps * chunk * p.unit_bytes;
  const bool has_bias = !a16_is_float(static_cast<A16Scale>(p.scale));
  const int x = one ? padded * kA16Cols * 2 + few_zero_bytes(chunk) : p.m * a.x_row;
  const int sums = has_bias ? padded * p.subgroups * (one ? 1 : 8 * tiles) * 4 : 0,
            red = kFewWarps * 2 * p.m * kA16Rows * 4;
  const long long part = splits > 1 ? most_tiles * p.m * kA16Rows * 4 : 0, fixed = x + sums + red + part;
  int stages = max_stages;
  while (stages >= min_stages && fixed + stages * (slot + kFewWarps * 8) > smem_limit) --stages;
  if (stages < min_stages) return s;
  a.stages = stages;
  // What is asked for before x makes x late, which short parts feel; long parts and many tokens gain more from rings
  // that are full by then (README.md).
  const bool long_part = most_tiles * a.chunks[0] > (one && chunk == kFewChunk ? 12 : 16) * kFewWarps;
  a.ahead = !long_part ? 1 : p.m > 1 ? stages : (stages + 1) / 2;
  a.x_at = stages * slot;
  a.zero_at = a.x_at + padded * kA16Cols * 2;
  a.sum_at = a.x_at + x;
  a.red_at = a.sum_at + sums;
  a.part_at = a.red_at + red;
  a.barrier_at = a.part_at + static_cast<int>(part);
  s.smem = a.barrier_at + 8 * kFewWarps * stages;
  s.chunk = chunk, s.one = one;
  s.ok = true;
  return s;
}

}  // namespace galvani::kernels
