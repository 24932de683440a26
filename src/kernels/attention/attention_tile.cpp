#include "kernels/attention/attention_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_tile.cpp"
#include "hwy/foreach_target.h"

#include "kernels/attention/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kNoPeak = -std::numeric_limits<float>::infinity();

/// Keys [begin, end) of a page.
struct Range {
  int begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

HWY_INLINE Range visible(const AttentionCall& call, int32_t position, int page) {
  const int32_t first = page * kPageTokens;
  return {static_cast<int>(std::max(0, call.first_visible(position) - first)),
          static_cast<int>(std::min<int32_t>(kPageTokens, position + 1 - first))};
}

/// A page of K as columns and of V as rows, in f32.
struct Page {
  const float* k_columns;
  const float* v_rows;
  int64_t v_stride;
  Ahead next;  ///< the next page's K, for tiles of one block; others are not waiting for memory
};

Page load_page(const AttentionCall& call, const AttentionTile& tile, int page, Range keys, AttentionScratch& scratch) {
  const KvLayer& layer = *call.layer;
  const int64_t bytes = dtype_bytes(layer.dtype), block = tile.blocks[page];
  const int64_t first = int64_t{tile.kv_head} * kPageTokens;
  const std::byte* k = layer.k + block * layer.k_page_stride + first * layer.k_dim * bytes;
  const std::byte* v = layer.v_in_k ? k : layer.v + block * layer.v_page_stride + first * layer.v_dim * bytes;
  const int64_t v_width = layer.v_in_k ? layer.k_dim : layer.v_dim;
  const bool f32 = layer.dtype == DType::kF32, few = int64_t{tile.count} * call.group <= kBlockRows;

  const auto transpose = layer.dtype == DType::kF32   ? transpose_page<DType::kF32>
                         : layer.dtype == DType::kF16 ? transpose_page<DType::kF16>
                                                      : transpose_page<DType::kBF16>;
  transpose(k, layer.k_dim, keys.begin, keys.end, scratch.k_columns,
            few && !layer.v_in_k ? Ahead{v, layer.v_dim * bytes} : Ahead{});
  Ahead next;
  if (few && page < (tile.first_position + tile.count - 1) / kPageTokens)
    next = {layer.k + tile.blocks[page + 1] * layer.k_page_stride + first * layer.k_dim * bytes, layer.k_dim * bytes};

  const int64_t padded = call.padded_v();
  // Inside K the columns between v_dim and `padded` are K's own; what they add up to is not written out.
  if (f32 && padded <= v_width) return {scratch.k_columns, reinterpret_cast<const float*>(v), v_width, next};
  if (padded == v_width) {
    to_f32(v + keys.begin * padded * bytes, layer.dtype, (keys.end - keys.begin) * padded,
           scratch.v_rows + keys.begin * padded);
  } else {
    for (int j = keys.begin; j < keys.end; ++j) {
      to_f32(v + j * v_width * bytes, layer.dtype, layer.v_dim, scratch.v_rows + j * padded);
      std::fill(scratch.v_rows + j * padded + layer.v_dim, scratch.v_rows + (j + 1) * padded, 0.0f);
    }
  }
  return {scratch.k_columns, scratch.v_rows, padded, next};
}

/// 2^x of one number, by the same code as the vectors'.
HWY_INLINE float exp2_one(float x) {
  const F32 d;
  return hn::GetLane(exp2_nonpositive(d, hn::Set(d, x)));
}

/// What a peak is subtracted as: where no score is above −inf, −inf − −inf would be NaN.
HWY_INLINE float origin_of(float peak) { return peak == kNoPeak ? 0.0f : peak; }

/// Caps a row's scores, sets those outside `keys` to −inf, and returns the largest. [begin, end): the vectors of the
/// page that hold scores.
HWY_INLINE float mask_row(float* scores, Range keys, int begin, int end, float softcap) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const F32Vec none = hn::Set(d, kNoPeak);
  const bool masked = keys.begin > begin * kLanes || keys.end < end * kLanes;
  F32Vec largest = none;
  for (int v = begin; v < end; ++v) {
    F32Vec s = hn::LoadU(d, scores + v * kLanes);
    if (softcap > 0) s = hn::Mul(hn::Set(d, softcap * kLog2E), tanh(d, hn::Div(s, hn::Set(d, softcap))));
    if (masked) {
      const auto index = hn::Iota(di, v * kLanes);
      const auto seen = hn::And(hn::Gt(index, hn::Set(di, keys.begin - 1)), hn::Lt(index, hn::Set(di, keys.end)));
      s = hn::IfThenElse(hn::RebindMask(d, seen), s, none);
    }
    if (masked || softcap > 0) hn::StoreU(s, d, scores + v * kLanes);
    largest = hn::Max(s, largest);
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// scores ← 2^(score − peak); returns their sum.
HWY_INLINE float weigh_row(float* scores, int begin, int end, float peak) {
  const F32 d;
  const F32Vec shift = hn::Set(d, origin_of(peak));
  F32Vec total = hn::Zero(d);
  for (int v = begin; v < end; ++v) {
    const F32Vec p = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, scores + v * kLanes), shift));
    hn::StoreU(p, d, scores + v * kLanes);
    total = hn::Add(total, p);
  }
  return hn::GetLane(hn::SumOfLanes(d, total));
}

/// Turns the scores of `rows` rows into weights, 0 where not visible; updates peak and sum; decay[r] is the factor by
/// which what was summed before has to be multiplied. Three short passes over the rows, whose latencies overlap.
HWY_INLINE void softmax_rows(float* scores, int rows, const Range* ranges, int begin, int end, float softcap,
                             float* peak, float* sum, float* decay) {
  const F32 d;
  HWY_ALIGN float change[hn::MaxLanes(F32()) + kBlockRows] = {};
  for (int r = 0; r < rows; ++r) {
    const float larger = std::max(peak[r], mask_row(scores + r * kPageTokens, ranges[r], begin, end, softcap));
    change[r] = peak[r] - origin_of(larger);
    peak[r] = larger;
  }
  for (int r = 0; r < rows; r += kLanes) hn::StoreU(exp2_nonpositive(d, hn::LoadU(d, change + r)), d, change + r);
  for (int r = 0; r < rows; ++r) {
    decay[r] = change[r];
    sum[r] = sum[r] * decay[r] + weigh_row(scores + r * kPageTokens, begin, end, peak[r]);
  }
}

/// Rows [row, row + rows) of the tile against one page. ranges: what each of them sees of it.
void attend_block(const AttentionCall& call, int64_t row, int rows, const Range* ranges, const Page& page,
                  AttentionScratch& scratch, const AttentionSums& sums) {
  Range any = ranges[0], all = ranges[0];
  for (int r = 1; r < rows; ++r) {
    any = {std::min(any.begin, ranges[r].begin), std::max(any.end, ranges[r].end)};
    all = {std::max(all.begin, ranges[r].begin), std::min(all.end, ranges[r].end)};
  }
  const int64_t k_dim = call.layer->k_dim, padded = call.padded_v();
  const int begin = any.begin / kLanes, end = (any.end + kLanes - 1) / kLanes;
  score_rows(scratch.q + row * k_dim, rows, k_dim, page.k_columns, begin, end, scratch.scores);

  float decay[kBlockRows];
  softmax_rows(scratch.scores, rows, ranges, begin, end, call.params->softcap, sums.peak + row, sums.sum + row, decay);
  float* acc = sums.acc + row * padded;
  if (any.begin == all.begin && any.end == all.end) {
    value_rows(scratch.scores, decay, rows, page.v_rows, page.v_stride, any.begin, any.end, acc, padded, page.next);
    return;
  }
  // Keys that only some rows see are added row by row: an unseen key's weight is 0, but 0 · NaN would not be.
  constexpr float kOnes[kBlockRows] = {1, 1, 1, 1, 1, 1};
  if (all.empty()) all = {kPageTokens, kPageTokens};
  for (int r = 0; r < rows; ++r)
    value_rows(scratch.scores + r * kPageTokens, decay + r, 1, page.v_rows, page.v_stride, ranges[r].begin,
               std::min(all.begin, ranges[r].end), acc + r * padded, padded);
  if (all.empty()) return;
  value_rows(scratch.scores, kOnes, rows, page.v_rows, page.v_stride, all.begin, all.end, acc, padded);
  for (int r = 0; r < rows; ++r)
    if (ranges[r].end > all.end)
      value_rows(scratch.scores + r * kPageTokens, kOnes, 1, page.v_rows, page.v_stride, all.end, ranges[r].end,
                 acc + r * padded, padded);
}

/// All rows of the tile that see the page.
void attend_page(const AttentionCall& call, const AttentionTile& tile, int page, AttentionScratch& scratch,
                 const AttentionSums& sums) {
  const int64_t rows = int64_t{tile.count} * call.group;
  const auto range_of = [&](int64_t row) {
    return visible(call, tile.first_position + static_cast<int32_t>(row / call.group), page);
  };
  Range any{kPageTokens, 0};
  for (int32_t i = 0; i < tile.count; ++i) {
    const Range keys = range_of(int64_t{i} * call.group);
    if (!keys.empty()) any = {std::min(any.begin, keys.begin), std::max(any.end, keys.end)};
  }
  if (any.empty()) return;
  const Page loaded = load_page(call, tile, page, any, scratch);
  for (int64_t row = 0; row < rows;) {
    Range ranges[kBlockRows];
    ranges[0] = range_of(row);
    if (ranges[0].empty()) {
      ++row;
      continue;
    }
    int count = 1;
    while (count < kBlockRows && row + count < rows && !(ranges[count] = range_of(row + count)).empty()) ++count;
    attend_block(call, row, count, ranges, loaded, scratch, sums);
    row += count;
  }
}

/// Scaled copy of the tile's queries: [rows, k_dim]. Scores are kept in units of log 2, so that weights are powers of
/// 2; a cap applies to scores in natural units, mask_row converts them afterwards.
void gather_queries(const AttentionCall& call, const AttentionTile& tile, float* target) {
  const int64_t width = int64_t{call.group} * call.layer->k_dim;
  const F32 d;
  const float scale = call.params->scale * (call.params->softcap > 0 ? 1.0f : kLog2E);
  const F32Vec factor = hn::Set(d, scale);
  for (int32_t i = 0; i < tile.count; ++i, target += width) {
    const float* source = call.q + (tile.row + i) * call.q_stride + tile.kv_head * width;
    int64_t j = 0;
    for (; j + kLanes <= width; j += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, source + j), factor), d, target + j);
    for (; j < width; ++j) target[j] = source[j] * scale;
  }
}

void attend_segment(const AttentionCall& call, const AttentionTile& tile, int segment, AttentionScratch& scratch,
                    const AttentionSums& sums) {
  const int64_t rows = int64_t{tile.count} * call.group;
  std::fill_n(sums.peak, rows, kNoPeak);
  std::fill_n(sums.sum, rows, 0.0f);
  std::fill_n(sums.acc, rows * call.padded_v(), 0.0f);
  const int last_page = (tile.first_position + tile.count - 1) / kPageTokens;
  const int end = std::min((segment + 1) * kSegmentPages, last_page + 1);
  for (int page = segment * kSegmentPages; page < end; ++page) attend_page(call, tile, page, scratch, sums);
}

/// Adds a segment to the total of every row that sees it. The first one a row sees is copied.
void merge_segment(const AttentionCall& call, const AttentionTile& tile, int segment, const AttentionSums& part,
                   const AttentionSums& total) {
  const F32 d;
  const int64_t padded = call.padded_v();
  for (int32_t i = 0; i < tile.count; ++i) {
    const int32_t position = tile.first_position + i;
    const int first = call.first_visible(position) / kSegmentTokens;
    if (segment < first || segment > position / kSegmentTokens) continue;
    for (int64_t row = int64_t{i} * call.group; row < int64_t{i + 1} * call.group; ++row) {
      float* acc = total.acc + row * padded;
      const float* more = part.acc + row * padded;
      if (segment == first) {
        total.peak[row] = part.peak[row];
        total.sum[row] = part.sum[row];
        std::copy_n(more, padded, acc);
        continue;
      }
      const float peak = std::max(total.peak[row], part.peak[row]), origin = origin_of(peak);
      const float old = exp2_one(total.peak[row] - origin), fresh = exp2_one(part.peak[row] - origin);
      total.peak[row] = peak;
      total.sum[row] = total.sum[row] * old + part.sum[row] * fresh;
      const F32Vec a = hn::Set(d, old), b = hn::Set(d, fresh);
      for (int64_t j = 0; j < padded; j += kLanes)
        hn::StoreU(hn::MulAdd(hn::LoadU(d, more + j), b, hn::Mul(hn::LoadU(d, acc + j), a)), d, acc + j);
    }
  }
}

/// Divides by the sums, the sink added, and writes the tile's rows of out.
void finish(const AttentionCall& call, const AttentionTile& tile, const AttentionSums& total) {
  const F32 d;
  const int64_t v_dim = call.layer->v_dim, padded = call.padded_v();
  for (int64_t row = 0; row < int64_t{tile.count} * call.group; ++row) {
    const int64_t head = tile.kv_head * int64_t{call.group} + row % call.group;
    float factor = 1.0f / total.sum[row];
    if (call.params->sinks) {
      const float sink = call.params->sinks[head] * kLog2E;
      const float origin = origin_of(std::max(total.peak[row], sink));
      const float decay = exp2_one(total.peak[row] - origin);
      factor = decay / (total.sum[row] * decay + exp2_one(sink - origin));
    }
    float* out = call.out + (tile.row + row / call.group) * call.out_stride + head * v_dim;
    const float* acc = total.acc + row * padded;
    const F32Vec f = hn::Set(d, factor);
    int64_t j = 0;
    for (; j + kLanes <= v_dim; j += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, acc + j), f), d, out + j);
    for (; j < v_dim; ++j) out[j] = acc[j] * factor;
  }
}

void tile_whole(const AttentionCall& call, const AttentionTile& tile, AttentionScratch& scratch) {
  gather_queries(call, tile, scratch.q);
  for (int segment = call.first_segment(tile); segment <= call.last_segment(tile); ++segment) {
    attend_segment(call, tile, segment, scratch, scratch.segment);
    merge_segment(call, tile, segment, scratch.segment, scratch.total);
  }
  finish(call, tile, scratch.total);
}

void tile_segment(const AttentionCall& call, const AttentionTile& tile, int segment, AttentionScratch& scratch,
                  const AttentionSums& sums) {
  gather_queries(call, tile, scratch.q);
  attend_segment(call, tile, segment, scratch, sums);
}

void tile_merge(const AttentionCall& call, const AttentionTile& tile, const AttentionSums* parts,
                AttentionScratch& scratch) {
  const int first = call.first_segment(tile);
  for (int segment = first; segment <= call.last_segment(tile); ++segment)
    merge_segment(call, tile, segment, parts[segment - first], scratch.total);
  finish(call, tile, scratch.total);
}

void store_elements(std::byte* target, DType dtype, const float* source, int64_t count) {
  if (dtype == DType::kF32) {
    std::memcpy(target, source, static_cast<size_t>(count) * 4);
    return;
  }
  auto* bits = reinterpret_cast<uint16_t*>(target);
  if (dtype == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) bits[i] = f32_to_bf16(source[i]);
    return;
  }
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  // Elsewhere Highway emulates the conversion and rounds towards zero.
  const F32 d;
  const hn::Rebind<hwy::float16_t, F32> dh;
  auto* halves = reinterpret_cast<hwy::float16_t*>(target);
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, source + i)), dh, halves + i);
#endif
  for (; i < count; ++i) bits[i] = f32_to_f16(source[i]);
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {
HWY_EXPORT(tile_whole);
HWY_EXPORT(tile_segment);
HWY_EXPORT(tile_merge);
HWY_EXPORT(store_elements);
}  // namespace

void AttentionScratch::reserve(const AttentionCall& call, int64_t rows) {
  const int64_t k_dim = call.layer->k_dim, padded = call.padded_v();
  const auto round = [](int64_t n) { return (n + 15) / 16 * 16; };
  const int64_t page = kPageTokens * (round(k_dim) + padded), scores_size = kBlockRows * kPageTokens;
  const size_t total_size =
      static_cast<size_t>(round(rows * k_dim) + page + scores_size + 2 * (2 * round(rows) + rows * padded) + 16);
  if (memory_.size() < total_size) memory_.resize(total_size);
  const auto misaligned = reinterpret_cast<uintptr_t>(memory_.data()) % 64 / sizeof(float);
  float* next = memory_.data() + (misaligned ? 16 - misaligned : 0);
  const auto take = [&](int64_t n) {
    float* p = next;
    next += round(n);
    return p;
  };
  q = take(rows * k_dim);
  k_columns = take(kPageTokens * k_dim);
  v_rows = take(kPageTokens * padded);
  scores = take(scores_size);
  segment = {take(rows), take(rows), take(rows * padded)};
  total = {take(rows), take(rows), take(rows * padded)};
}

void attention_tile(const AttentionCall& call, const AttentionTile& tile, AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(tile_whole)(call, tile, scratch);
}
void attention_tile_segment(const AttentionCall& call, const AttentionTile& tile, int segment,
                            AttentionScratch& scratch, const AttentionSums& sums) {
  HWY_DYNAMIC_DISPATCH(tile_segment)(call, tile, segment, scratch, sums);
}
void attention_tile_merge(const AttentionCall& call, const AttentionTile& tile, const AttentionSums* parts,
                          AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(tile_merge)(call, tile, parts, scratch);
}
void attention_store(std::byte* target, DType dtype, const float* source, int64_t count) {
  HWY_DYNAMIC_DISPATCH(store_elements)(target, dtype, source, count);
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
