#pragma once
/// Which CUDA kernel computes a product and how it is launched: a pure function of the device, the problem and measured
/// crossovers.
#include <cstdint>
#include <string>

#include "device/device_caps.h"
#include "kernels/common/arithmetic.h"
#include "kernels/qmatmul/qmatmul_cuda_args.h"

namespace galvani::kernels {

enum class WeightKind : uint8_t { kAffine, kMxfp4, kMxfp8, kNvfp4, kTrellis };
/// What a packed format holds.
constexpr WeightKind weight_kind_of(const A16Format& f) {
  if (f.code == A16Code::kE4M3) return WeightKind::kMxfp8;
  if (f.code == A16Code::kE2M1) return f.scale == A16Scale::kE5M3 ? WeightKind::kNvfp4 : WeightKind::kMxfp4;
  return WeightKind::kAffine;
}
/// What happens to x before the product (rotations that some quantisers need).
enum class InputTransform : uint8_t { kNone, kHadamard128 };

/// In the order in which they are asked.
enum class QmatmulCudaArm : uint8_t {
  kFewBulk,   ///< up to 8 tokens, weights by bulk copies, clusters (9.0 and newer)
  kFewAsync,  ///< the same with cp.async (8.0, bf16 and f16)
  kFewPlain,  ///< the same with plain loads (7.5, f16)
  kStream,    ///< 9 to 64 tokens, x streamed beside the weights, wgmma (9.0a)
  kWgmma,     ///< many tokens, 9.0a
  kExpand,    ///< many tokens: to a dense matrix in the workspace, then cuBLASLt
  kMma,       ///< any number of tokens, mma.sync
};
constexpr int kQmatmulCudaArms = 7;

/// What a plan otherwise chooses itself; −1 = its own choice. For measuring: values that do not fit are refused.
struct QmatmulCudaTuning {
  int split_log2 = -1;    ///< few, stream: blocks that share K, as a power of two
  int stages = -1;        ///< few, stream: slots of the ring at most
  int ahead = -1;         ///< few, stream: slots filled before x is asked for
  int chunk = -1;         ///< few, one token: units of a copy, 4 or 8
  int one = -1;           ///< few: 1 = the kernel of one token for one, 0 = never
  int tokens = -1;        ///< stream, wgmma: of a tile
  int wgmma_splits = -1;  ///< wgmma: blocks that share the K of a tile, 1 to 4
  int step = -1;          ///< stream: units of a stage
};

struct QmatmulCudaProblem {
  int64_t m = 1, n = 0, k = 0;
  WeightKind kind = WeightKind::kAffine;
  A16Format format;
  /// Float codes: every weight (but for the matrix's factor) is exact in the arithmetic's type (A16FloatForm).
  bool exact_weights = true;
  Arithmetic arithmetic = Arithmetic::kBF16;
  InputTransform input = InputTransform::kNone;
  bool x_aligned = true;  ///< x and its rows start at multiples of 16 bytes
  bool y_16 = false, add = false;
  bool gated = false;           ///< y is [m, n / 2], gate and up by a gated activation
  bool y_aligned = true;        ///< y and its rows start at multiples of 16 bytes
  int64_t workspace_bytes = 0;  ///< what the expand arm may hold; 0 forbids it
  int forced = -1;              ///< a QmatmulCudaArm, or -1
  QmatmulCudaTuning tuning;
};

/// Where one arm overtakes another on a part: measured, or these defaults.
struct QmatmulCudaCrossovers {
  int64_t many_from = 9;                ///< tokens from which the many-token arms are asked first
  int64_t stream_upto = 64;             ///< tokens up to which streaming x beats 128-row tiles
  int64_t expand_from = 256;            ///< tokens from which expanding beats mma.sync
  int64_t expand_from_wgmma = 1 << 30;  ///< and wgmma
  bool measured = false;
};

struct QmatmulCudaPlan {
  bool ok = false;
  QmatmulCudaArm arm = QmatmulCudaArm::kMma;
  const char* reason = "";  ///< of the last refusal when not ok
  int tokens = 0;           ///< of a tile
  FewShape few;             ///< kFew*: everything but the pointers
  QmatmulWgmmaArgs wgmma{};
  StreamShape stream;  ///< kStream: everything but the pointers
  int grid_x = 0, grid_y = 1, threads = 0, smem = 0, cluster = 1;
  bool dependent_launch = false;
  int64_t workspace_bytes = 0;       ///< kExpand: one matrix
  std::string kernel() const;        ///< its name in the kernel tables
  std::string parts_kernel() const;  ///< kWgmma with splits: what adds them
  /// Whether y += costs about what y = does, so that nobody should add later.
  bool adds_cheaply() const { return arm == QmatmulCudaArm::kWgmma && wgmma.end == WgmmaEnd::kVectors; }
  A16Format format;
  Arithmetic arithmetic = Arithmetic::kBF16;
};

constexpr const char* qmatmul_cuda_arm_name(QmatmulCudaArm arm) {
  switch (arm) {
    case QmatmulCudaArm::kFewBulk: return "few-bulk";
    case QmatmulCudaArm::kFewAsync: return "few-async";
    case QmatmulCudaArm::kFewPlain: return "few-plain";
    case QmatmulCudaArm::kStream: return "stream";
    case QmatmulCudaArm::kWgmma: return "wgmma";
    case QmatmulCudaArm::kExpand: return "expand";
    case QmatmulCudaArm::kMma: return "mma";
  }
  return "?";
}
/// What a kernel's name calls the codes: q2 … q8, e2m1, e4m3.
std::string a16_code_name(const A16Format& format);
constexpr bool qmatmul_cuda_is_few(QmatmulCudaArm arm) { return arm <= QmatmulCudaArm::kFewPlain; }

/// Whether the arm can apply a gated activation to its sums.
constexpr bool qmatmul_cuda_gates(QmatmulCudaArm arm) { return arm == QmatmulCudaArm::kWgmma; }
/// Why no arm could for `p`; null when it is the arm alone that decides.
constexpr const char* qmatmul_cuda_gate_declines(const QmatmulCudaProblem& p) {
  if (!p.y_16 || p.add) return "a gated result has the type of x and replaces what was there";
  if (p.n % (2 * kA16Rows) != 0) return "gate and up must be whole tiles of 16 rows each";
  return p.y_aligned ? nullptr : "a gated result and its rows must start at multiples of 16 bytes";
}

constexpr int kFewTokens = 8, kStreamTokens = 64;

/// The kernel arguments that follow from the problem; pointers and strides are the launch's.
constexpr QmatmulArgs qmatmul_cuda_args(const QmatmulCudaProblem& p) {
  QmatmulArgs a{};
  a.n = static_cast<int>(p.n), a.m = static_cast<int>(p.m), a.k = static_cast<int>(p.k);
  a.units = static_cast<int>(a16_units(p.k)), a.row_tiles = static_cast<int>(a16_row_tiles(p.n));
  a.unit_bytes = a16_unit_bytes(p.format), a.subgroups = a16_subgroups(p.format.group);
  a.scale = static_cast<int>(p.format.scale), a.add = p.add, a.x_aligned = p.x_aligned, a.y_16 = p.y_16;
  return a;
}

/// Units of a copy for one token: eight halve the ring's bookkeeping where the codes are few enough that it shows.
constexpr int qmatmul_cuda_one_chunk(const QmatmulCudaProblem& p) {
  const bool may = p.format.bits <= 4;  // instances
  return may && (p.tuning.chunk > 0 ? p.tuning.chunk == 8 : p.format.bits <= 3) ? 8 : 4;
}

/// How many blocks share K: the fewest units on the busiest block, where x's copy and a cluster's exchange are counted
/// as units too (README.md, "few tokens").
constexpr FewShape qmatmul_cuda_few(const DeviceCaps& caps, const QmatmulCudaProblem& p, QmatmulCudaArm arm) {
  const QmatmulArgs args = qmatmul_cuda_args(p);
  const int most = arm == QmatmulCudaArm::kFewBulk && caps.has(Feature::kCluster) ? 2 : 0;
  const QmatmulCudaTuning& t = p.tuning;
  FewShape best;
  int64_t best_cost = 0;
  for (int log2 = 0; log2 <= most; ++log2) {
    if (t.split_log2 >= 0 && t.split_log2 != log2) continue;
    // Clusters of four leave SMs free where a GPC's number of SMs is no multiple of four.
    const int blocks = log2 == 2 ? caps.sms / 11 * 10 : caps.sms;
    const bool one = p.m == 1 && arm == QmatmulCudaArm::kFewBulk && p.kind == WeightKind::kAffine &&
                     (t.one < 0 ? p.format.bits <= 5 : t.one == 1);
    const int chunk = one ? qmatmul_cuda_one_chunk(p) : kFewChunk;
    const auto shape_of = [&](int most_stages) {
      return few_shape(args, 1, log2, blocks, caps.smem_optin, arm == QmatmulCudaArm::kFewPlain ? 1 : 2, most_stages,
                       chunk, one);
    };
    FewShape shape = shape_of(t.stages > 0 ? t.stages : one ? 3 : 4);
    // What is asked for early makes x late: of short parts (ahead is 1) two slots are enough, and one before x.
    const bool short_part = shape.ok && shape.args.ahead == 1;
    if (t.stages <= 0 && arm == QmatmulCudaArm::kFewBulk && p.m > 1 && short_part) shape = shape_of(2);
    if (!shape.ok) continue;
    if (t.ahead >= 0) shape.args.ahead = t.ahead < shape.args.stages ? t.ahead : shape.args.stages;
    const int64_t tiles = shape.args.tiles + (shape.args.tiles_rest > 0);
    const int64_t units = tiles * shape.args.slice;
    const int64_t cost = units + p.m * shape.args.slice / 4 + (log2 > 0 ? 55 + units / 16 : 0);
    if (!best.ok || cost < best_cost) best = shape, best_cost = cost;
  }
  return best;
}

/// Tokens of a streaming tile. f16 has the widest alone; 32 is there for 4 bits with bf16 scales.
constexpr int qmatmul_cuda_stream_tokens(const QmatmulCudaProblem& p) {
  const bool bf16 = p.arithmetic == Arithmetic::kBF16, may16 = bf16 && p.m <= 16;
  const bool may32 = bf16 && p.format.bits == 4 && p.format.scale == A16Scale::kBF16 && p.m <= 32;
  const int wanted = p.tuning.tokens;
  if (wanted < 0) return may16 ? 16 : may32 ? 32 : 64;
  return (wanted == 16 && may16) || (wanted == 32 && may32) || wanted == 64 ? wanted : 0;
}

/// What a stream takes, in nanoseconds, as measured on an H200 (README.md): 3 us; the bytes into the busiest block at
/// 35 a nanosecond, x (from the L2) as 5/8 of its own, or, if that is longer, the units of the busiest warp, each the
/// longer the more parts of K a block takes side by side; and for a cluster 1.5 us and what its blocks exchange.
constexpr int64_t qmatmul_cuda_stream_ns(const QmatmulCudaProblem& p, const StreamShape& shape, int tokens) {
  constexpr int kUnit[3][3] = {{310, 350, 430}, {355, 405, 450}, {440, 600, 730}};  // [tokens][parts: 1, 2, 4]
  const QmatmulStreamArgs& a = shape.args;
  const int64_t tiles = a.tiles + (a.tiles_rest > 0), passes = (tiles + a.pass_tiles - 1) / a.pass_tiles;
  const int64_t bytes = a.slice * (tiles * a16_unit_bytes(p.format) + passes * p.m * kA16Cols * 2 * 5 / 8);
  const int64_t units = passes * ((a.slice + a.parts - 1) / a.parts);
  const int64_t multiplied = units * kUnit[tokens / 32][a.parts / 2];
  const int64_t join = a.split_log2 > 0 ? 1500 + tiles * tokens * 17 / 2 : 0;
  return 3000 + (bytes / 35 > multiplied ? bytes / 35 : multiplied) + join;
}

/// Blocks that share K and units of a stage: what takes the least time.
constexpr StreamShape qmatmul_cuda_stream(const DeviceCaps& caps, const QmatmulCudaProblem& p) {
  const QmatmulArgs args = qmatmul_cuda_args(p);
  const QmatmulCudaTuning& t = p.tuning;
  const int tokens = qmatmul_cuda_stream_tokens(p);
  StreamShape best;
  if (tokens == 0) return best;
  int64_t best_cost = 0;
  for (int log2 = 0; log2 <= 2; ++log2) {
    if (t.split_log2 >= 0 && t.split_log2 != log2) continue;
    const int blocks = log2 == 2 ? caps.sms / 11 * 10 : caps.sms;  // as in qmatmul_cuda_few
    const auto shape_of = [&](int step) {
      return stream_shape(args, tokens, log2, blocks, caps.smem_optin, step, t.stages > 0 ? t.stages : 16,
                          t.ahead >= 0 ? t.ahead : 1);
    };
    // The longest stages of which two fit: what a stage costs besides its products counts for more than deep rings.
    StreamShape shape = shape_of(t.step > 0 ? t.step : tokens == 64 ? 4 : 8);
    for (int step = shape.args.step / 2; t.step <= 0 && !shape.ok && step > 0; step /= 2) shape = shape_of(step);
    if (!shape.ok) continue;
    const int64_t cost = qmatmul_cuda_stream_ns(p, shape, tokens);
    if (!best.ok || cost < best_cost) best = shape, best_cost = cost;
  }
  return best;
}

/// A tile of 128 rows: its tokens, the blocks that share its K, and what the plan counts for it.
struct WgmmaTile {
  int tokens = 64, splits = 1;
  int64_t ns = 0;
};
/// Units of a block's part.
constexpr int qmatmul_cuda_wgmma_slice(const QmatmulCudaProblem& p, const WgmmaTile& tile) {
  const int step = wgmma_step(tile.tokens), units = static_cast<int>(a16_units(p.k));
  return ((units + tile.splits - 1) / tile.splits + step - 1) / step * step;
}
/// Whether every block has some of K, and the parts have room. A gate needs whole sums where a tile ends.
constexpr bool qmatmul_cuda_wgmma_fits(const QmatmulCudaProblem& p, const WgmmaTile& tile) {
  if (tile.splits == 1) return true;
  if (p.gated) return false;
  return tile.splits <= kMostParts && tile.splits * p.m * p.n * 4 <= kPartsBytes &&
         int64_t{qmatmul_cuda_wgmma_slice(p, tile)} * (tile.splits - 1) < a16_units(p.k);
}

/// The least time: waves of blocks by a tile's nanoseconds a unit of K, and for the parts 1 us and
/// 0.55 ns a KB, as measured on an H200 (README.md).
constexpr WgmmaTile qmatmul_cuda_wgmma_tile(const DeviceCaps& caps, const QmatmulCudaProblem& p) {
  struct Cost {
    int tokens, ns;
  };
  const QmatmulCudaTuning& t = p.tuning;
  const bool f16 = p.arithmetic == Arithmetic::kF16;  // one instance
  const bool free = t.tokens != 64 && t.tokens != 128 && t.tokens != 256;
  WgmmaTile best;
  for (const auto& [tokens, ns] : {Cost{64, 320}, {128, 460}, {256, 750}})
    for (int splits = 1; splits <= kMostParts; ++splits) {
      if (f16 ? tokens != 128 : !free && tokens != t.tokens) continue;
      if (t.wgmma_splits > 0 && splits != 1 && splits != t.wgmma_splits) continue;
      WgmmaTile tile{tokens, splits, 0};
      if (!qmatmul_cuda_wgmma_fits(p, tile)) continue;
      const int64_t tiles = ((p.n + kWgmmaRows - 1) / kWgmmaRows) * ((p.m + tokens - 1) / tokens);
      tile.ns = (tiles * splits + caps.sms - 1) / caps.sms * qmatmul_cuda_wgmma_slice(p, tile) * ns;
      if (splits > 1) tile.ns += 1000 + splits * p.m * p.n * 4 * 55 / 100000;
      if (splits > 1 && splits == t.wgmma_splits) tile.ns = 1;  // asked for
      if (best.ns == 0 || tile.ns <= best.ns) best = tile;
    }
  return best;
}

/// Whether tiles of 128 rows beat streams of 64 tokens, which read all of x in every block: where the tiles fill the
/// part, as real models' matrices mostly do, and not where they take two waves. Streams of 16 and 32 tokens are faster
/// everywhere, and so are those of f16, whose only tile has 128 tokens. What a tile takes besides its units is 1 us, 2
/// more with parts.
constexpr bool qmatmul_cuda_tiles_beat_stream(const DeviceCaps& caps, const QmatmulCudaProblem& p) {
  const int tokens = qmatmul_cuda_stream_tokens(p);
  if (tokens != 64 || p.arithmetic == Arithmetic::kF16) return false;
  const StreamShape stream = qmatmul_cuda_stream(caps, p);
  if (!stream.ok) return false;
  const WgmmaTile tile = qmatmul_cuda_wgmma_tile(caps, p);
  return tile.ns + (tile.splits > 1 ? 2000 : 1000) < qmatmul_cuda_stream_ns(p, stream, tokens);
}

/// Why `arm` does not compute `p` here; null when it can. Reasons are for people.
constexpr const char* qmatmul_cuda_declines(QmatmulCudaArm arm, const DeviceCaps& caps, const QmatmulCudaProblem& p,
                                            const QmatmulCudaCrossovers& x) {
  if (p.forced >= 0 && p.forced != static_cast<int>(arm)) return "another arm was asked for";
  if (p.kind == WeightKind::kTrellis) return "trellis codes have no GPU product so far";
  if (!a16_valid(p.format))
    return "it takes affine codes of 2, 3, 4, 5, 6 or 8 bits in groups of 16, 32, 64 or 128, mxfp4, mxfp8 and nvfp4";
  if (p.kind != weight_kind_of(p.format)) return "the packed format holds another kind of weights";
  if (p.input != InputTransform::kNone) return "no arm transforms its input yet, and no checkpoint asks for it";
  if (p.arithmetic == Arithmetic::kF32) return "its products are f16 or bf16, and f32 was asked for";
  const bool bf16 = p.arithmetic == Arithmetic::kBF16, free = p.forced < 0;
  if (bf16 && !caps.has(Feature::kBf16)) return "this part has no bf16 arithmetic";
  if (p.y_16 && p.add) return "adding to y is for f32 outputs";
  if (p.gated && qmatmul_cuda_gate_declines(p) != nullptr) return qmatmul_cuda_gate_declines(p);
  if (qmatmul_cuda_is_few(arm)) {
    if (p.m > kFewTokens) return "it takes at most 8 tokens";
    if (arm == QmatmulCudaArm::kFewBulk && !caps.has(Feature::kBulkCopy | Feature::kCluster))
      return "it needs bulk copies and clusters (9.0)";
    if (arm == QmatmulCudaArm::kFewAsync && !caps.has(Feature::kCpAsync)) return "it needs cp.async (8.0)";
    if (arm == QmatmulCudaArm::kFewPlain && bf16) return "it is f16 alone";
    if (arm == QmatmulCudaArm::kFewPlain && p.format.bits == 8)
      return "it has no 8-bit instance: its rings would not fit into 64 KiB";
    if (arm == QmatmulCudaArm::kFewPlain && !caps.has(Feature::kLdmatrix)) return "it needs m16n8k8 products (7.5)";
    if (!qmatmul_cuda_few(caps, p, arm).ok) return "x and the rings do not fit into a block's shared memory";
    return nullptr;
  }
  if (free && p.m < x.many_from && arm != QmatmulCudaArm::kMma) {
    for (const QmatmulCudaArm few : {QmatmulCudaArm::kFewBulk, QmatmulCudaArm::kFewAsync, QmatmulCudaArm::kFewPlain})
      if (qmatmul_cuda_declines(few, caps, p, x) == nullptr) return "the few-token arms are faster at this many tokens";
    return "it is for more tokens than this";
  }
  if (!p.exact_weights && arm != QmatmulCudaArm::kMma)
    return "it forms weights in x's type, and this matrix's scales are too far apart for that to be exact";
  switch (arm) {
    case QmatmulCudaArm::kStream:
      if (p.kind != WeightKind::kAffine) return "it has no instance for float codes";
      if (p.m > kStreamTokens) return "it takes at most 64 tokens";
      if (!caps.has(Feature::kWgmma)) return "it needs wgmma (9.0a)";
      if (!p.x_aligned) return "the tensor copy engine needs x and its rows at multiples of 16 bytes";
      if (free && (p.m > x.stream_upto || qmatmul_cuda_tiles_beat_stream(caps, p)))
        return "tiles of 128 rows are faster at this many tokens";
      return qmatmul_cuda_stream(caps, p).ok ? nullptr : "no such tile, or no such ring fits into shared memory";
    case QmatmulCudaArm::kWgmma:
      if (!caps.has(Feature::kWgmma)) return "it needs wgmma (9.0a)";
      if (!p.x_aligned) return "the tensor copy engine needs x and its rows at multiples of 16 bytes";
      if (free && p.m >= x.expand_from_wgmma && p.workspace_bytes >= p.n * p.k * 2)
        return "expanding is faster at this many tokens";
      return nullptr;
    case QmatmulCudaArm::kExpand:
      if (p.workspace_bytes == 0) return "it was forbidden (--expand-mib 0)";
      if (p.workspace_bytes < p.n * p.k * 2) return "the matrix in 16 bits is larger than --expand-mib allows";
      if (p.k % 8 != 0) return "cuBLASLt needs columns in multiples of 8";
      if (!caps.has(Feature::kLdmatrix)) return "it needs 7.5";
      if (free && p.m < x.expand_from) return "fused products are faster at this many tokens";
      return nullptr;
    default: return caps.has(Feature::kLdmatrix) ? nullptr : "it needs m16n8k8 products (7.5)";
  }
}

/// The first arm that does not decline. Gated: the same arm, and not ok where it applies no gates: the product and then
/// the gate is what is fastest there.
QmatmulCudaPlan qmatmul_cuda_plan(const DeviceCaps& caps, const QmatmulCudaProblem& p,
                                  const QmatmulCudaCrossovers& crossovers = {});
/// Bytes that the expand arm's workspace needs for this matrix: those of its 16-bit form where that arm is the plan of
/// some number of tokens (of p.m apart), forced arms included, else 0. p.workspace_bytes: the most it may be.
int64_t qmatmul_cuda_expands(const DeviceCaps& caps, QmatmulCudaProblem p,
                             const QmatmulCudaCrossovers& crossovers = {});
/// Every arm with its verdict, one a line.
std::string qmatmul_cuda_explain(const DeviceCaps& caps, const QmatmulCudaProblem& p,
                                 const QmatmulCudaCrossovers& crossovers = {});

}  // namespace galvani::kernels
