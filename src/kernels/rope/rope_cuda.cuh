#pragma once
/// Rope tables, and the kernel between the q/k/v product and attention. NVRTC compiles it alone.
#include "kernels/common/four.cuh"
#include "kernels/common/norm_weight.cuh"
#include "kernels/rope/rope_cuda_args.h"

namespace galvani::kernels {

/// Grid: (rows, enough blocks for the pairs); block: any. All but the store happens before the wait.
__device__ __forceinline__ void rope_table(const RopeTableArgs& args) {
  release_next();
  const int row = blockIdx.x, position = load_early(args.positions + row);
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  const bool mine = i < args.pairs && position >= 0;
  const float frequency = mine ? load_early(args.inv_freq + i) : 0.0f;
  float sine = 0, cosine = 0;
  if (position > 1 << 17) {  // rope.h: f32 would be off by more than 1e-3 rad
    double s, c;
    sincos(static_cast<double>(position) * static_cast<double>(frequency), &s, &c);
    sine = static_cast<float>(s);
    cosine = static_cast<float>(c);
  } else {
    sincosf(static_cast<float>(position) * frequency, &sine, &cosine);
  }
  wait_for_previous();
  if (!mine) return;
  float* out = args.table + (static_cast<long long>(row) * args.pairs + i) * 2;
  out[0] = cosine * args.attention_scale;
  out[1] = sine * args.attention_scale;
}

constexpr int kQkvWarps = 4;

/// What one warp works on: one head of q, k or v of one row.
struct QkvHead {
  int row, dim, column;  ///< column: of x and bias
  bool rotated;          ///< q and k, where there is a table
  bool normed;
  const NormWeights* norm;
  void* out;
  long long at;   ///< element of `out`
  bool writes;    ///< false: no row of k or v
  bool is_there;  ///< false: position below 0
};

/// Which head this warp has and where it goes: tables of the step alone, before wait_for_previous().
__device__ __forceinline__ QkvHead qkv_head(const QkvArgs& args, int row, int head) {
  const int k_dim = args.kv.k_dim, v_dim = args.kv.v_dim, kv_heads = args.kv.kv_heads;
  const bool is_q = head < args.heads, is_v = head >= args.heads + kv_heads;
  const int kv_head = is_q ? 0 : head - args.heads - (is_v ? kv_heads : 0);
  const int position = load_early(args.positions + row);
  QkvHead h;
  h.row = row, h.dim = is_v ? v_dim : k_dim;
  h.column = is_q ? head * k_dim : is_v ? args.v_column + kv_head * v_dim : args.k_column + kv_head * k_dim;
  h.rotated = !is_v && args.rope != nullptr;
  h.normed = is_q ? args.q_normed : is_v ? args.v_normed : args.k_normed;
  h.norm = is_q ? &args.q_norm : is_v ? &args.v_norm : &args.k_norm;
  h.is_there = position >= 0;
  h.writes = is_q || h.is_there;
  h.out = args.q;
  h.at = row * args.q_stride + static_cast<long long>(head) * k_dim;
  if (!is_q && h.is_there) {
    const long long sequence = load_early(args.sequence + row);
    const long long page = load_early(args.tables.blocks + sequence * args.tables.max_blocks + position / 64);
    h.out =
        const_cast<char*>(is_v ? args.kv.v + page * args.kv.v_page_stride : args.kv.k + page * args.kv.k_page_stride);
    h.at = (static_cast<long long>(kv_head) * 64 + position % 64) * h.dim;
  }
  return h;
}

__device__ __forceinline__ float clipped(float y, float clip) {
  return y < -clip ? -clip : y > clip ? clip : y;  // NaN stays NaN
}

/// y · cosine + other · sine, fused in this order wherever it is compiled.
__device__ __forceinline__ float turned(float y, float cosine, float other, float sine) {
  return fmaf(other, sine, y * cosine);
}

/// Any dim and alignment, one element a lane and step.
__device__ __forceinline__ void qkv_by_ones(const QkvArgs& args, const QkvHead& h, float* values) {
  const int lane = threadIdx.x & 31, dim = h.dim;
  wait_for_previous();
  if (!h.writes) return;
  const float* x = args.x + h.row * args.x_stride + h.column;
  float squares = 0;
  for (int i = lane; i < dim; i += 32) {
    const float y = x[i] + (args.bias != nullptr ? args.bias[h.column + i] : 0.0f);
    values[i] = y;
    squares += y * y;
  }
  if (h.normed) {
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + h.norm->eps);
    for (int i = lane; i < dim; i += 32) values[i] = values[i] * inverse * norm_weight(*h.norm, i);
  }
  if (args.clip > 0)
    for (int i = lane; i < dim; i += 32) values[i] = clipped(values[i], args.clip);
  __syncwarp();
  const float* table = args.rope + static_cast<long long>(h.row) * args.rope_pairs * 2;
  for (int i = lane; i < dim; i += 32) {
    float y = values[i];
    if (h.rotated && i < 2 * args.rope_pairs) {
      const bool second = args.interleaved ? (i & 1) != 0 : i >= args.rope_pairs;
      const int pair = args.interleaved ? i >> 1 : (second ? i - args.rope_pairs : i);
      const int other = args.interleaved ? i ^ 1 : (second ? pair : pair + args.rope_pairs);
      const float cosine = table[2 * pair], sine = table[2 * pair + 1];
      y = second ? y * cosine + values[other] * sine : y * cosine - values[other] * sine;
    }
    store_as(h.out, h.at + i, h.is_there ? y : 0.0f, args.type);
  }
}

/// Whether qkv_by_fours can (wider heads than 256 would take registers from all): four elements of a lane lie in one
/// vector everywhere, and in one half of the pairs.
__device__ __forceinline__ bool qkv_fours(const QkvArgs& args, const QkvHead& h) {
  const int pairs = h.rotated ? args.rope_pairs : 0;
  return h.dim % 4 == 0 && h.dim <= 256 && pairs % (args.interleaved ? 2 : 4) == 0 && h.column % 4 == 0 &&
         by_fours(args.x, args.x_stride) && by_fours(args.bias, 0) && by_fours(args.rope, 0) &&
         (!h.normed || by_fours(h.norm->w, 0)) && by_fours(h.out, 0, args.type) && h.at % 4 == 0;
}

/// cos and sin of elements i … i + 3, from pairs (cos, sin): the halves of four pairs, or two whole pairs.
__device__ __forceinline__ void turns_of(const float* table, int i, int pairs, bool interleaved, Four& cosine,
                                         Four& sine) {
  const int pair = interleaved ? i / 2 : i < pairs ? i : i - pairs;
  const Four a = vector_four(table + 2 * pair), b = interleaved ? a : vector_four(table + 2 * pair + 4);
  cosine = {{a.v[0], interleaved ? a.v[0] : a.v[2], interleaved ? a.v[2] : b.v[0], b.v[2]}};
  sine = {{a.v[1], interleaved ? a.v[1] : a.v[3], interleaved ? a.v[3] : b.v[1], b.v[3]}};
}

/// Lane l has elements 4l … 4l + 3 and those 128 apart. Bias and weights are asked for before the wait, x and the table
/// together after it. values: shared memory of h.dim floats.
template <int kFours>
__device__ __forceinline__ void qkv_by_fours(const QkvArgs& args, const QkvHead& h, float* values) {
  const int lane = threadIdx.x & 31, dim = h.dim, pairs = h.rotated ? args.rope_pairs : 0;
  const auto at = [lane](int k) { return 4 * lane + 128 * k; };
  Four x[kFours], bias[kFours], weight[kFours];
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    bias[k] = four_times(0), weight[k] = four_times(1);
    if (at(k) >= dim) continue;
    if (args.bias != nullptr) bias[k] = vector_four<true>(args.bias + h.column + at(k));
    if (h.normed && h.norm->w != nullptr) weight[k] = vector_four<true>(h.norm->w + at(k));
  }
  wait_for_previous();
  if (!h.writes) return;
  const float* row = args.x + h.row * args.x_stride + h.column;
  const float* table = args.rope + static_cast<long long>(h.row) * pairs * 2;
  Four cosine[kFours], sine[kFours];
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    x[k] = at(k) < dim ? vector_four(row + at(k)) : four_times(0);
    if (at(k) >= 2 * pairs) continue;
    turns_of(table, at(k), pairs, args.interleaved, cosine[k], sine[k]);
  }
#pragma unroll
  for (int k = 0; k < kFours; ++k) add_four(x[k], bias[k]);
  if (h.normed) {
    const float inverse = 1.0f / sqrtf(warp_sum(squares_of(x)) / static_cast<float>(dim) + h.norm->eps);
    const Four one = four_times(h.norm->w != nullptr && h.norm->plus_one ? 1.0f : 0.0f);
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
      add_four(weight[k], one);
      weigh_four(x[k], inverse, weight[k]);
    }
  }
  if (args.clip > 0)
#pragma unroll
    for (int k = 0; k < kFours; ++k)
#pragma unroll
      for (int j = 0; j < 4; ++j) x[k].v[j] = clipped(x[k].v[j], args.clip);
  if (pairs > 0 && !args.interleaved) {
#pragma unroll
    for (int k = 0; k < kFours; ++k)
      if (at(k) < dim) store_vector_four(values, at(k), x[k], StoreType::kF32);
    __syncwarp();
  }
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    Four y = x[k];
    if (at(k) < 2 * pairs) {
      const bool back = at(k) >= pairs;
      const Four other = args.interleaved ? Four{{x[k].v[1], x[k].v[0], x[k].v[3], x[k].v[2]}}
                                          : vector_four(values + (back ? at(k) - pairs : at(k) + pairs));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool second = args.interleaved ? j % 2 != 0 : back;
        y.v[j] = turned(y.v[j], cosine[k].v[j], second ? other.v[j] : -other.v[j], sine[k].v[j]);
      }
    }
    if (!h.is_there) y = four_times(0);
    if (at(k) < dim) store_vector_four(h.out, h.at + at(k), y, args.type);
  }
}

/// Many rows: kHeads heads a warp, all their loads before any of their stores, with cos, sin and the page's place once.
/// The same arithmetic in the same order as qkv_by_fours. What the host has looked at: k_dim = v_dim ≤ 128, and
/// qkv_fours' conditions for every head. Grid: a warp for each kHeads heads of a row; block: 32 · kQkvWarps.
template <int kHeads>
__device__ __forceinline__ void qkv_finish_many(const QkvArgs& args) {
  release_next();
  const int lane = threadIdx.x & 31, dim = args.kv.k_dim, kv_heads = args.kv.kv_heads, i = 4 * lane;
  const int heads = args.heads + (args.append ? 2 * kv_heads : 0), groups = (heads + kHeads - 1) / kHeads;
  const int warp = static_cast<int>(blockIdx.x) * kQkvWarps + (threadIdx.x >> 5);
  const int r = warp / groups, first = (warp - r * groups) * kHeads;
  const bool mine = i < dim && r < args.rows;
  const int row = min(r, args.rows - 1), position = load_early(args.positions + row);
  long long page = 0;
  if (first + kHeads > args.heads && position >= 0) {
    const long long sequence = load_early(args.sequence + row);
    page = load_early(args.tables.blocks + sequence * args.tables.max_blocks + position / 64);
  }
  wait_for_previous();
  const float* const x_row = args.x + row * args.x_stride;
  const auto column_of = [&](int head) {
    const int k = head - args.heads;
    return k < 0 ? head * dim : k < kv_heads ? args.k_column + k * dim : args.v_column + (k - kv_heads) * dim;
  };
  Four x[kHeads], cosine = four_times(1), sine = four_times(0);
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
    x[h] = mine && first + h < heads ? vector_four(x_row + column_of(first + h) + i) : four_times(0);
  const int pairs = args.rope != nullptr ? args.rope_pairs : 0;
  if (i < 2 * pairs)
    turns_of(args.rope + static_cast<long long>(row) * pairs * 2, i, pairs, args.interleaved, cosine, sine);
  const bool back = i >= pairs;
  const int other_lane = back ? lane - pairs / 4 : lane + pairs / 4;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = first + h;
    if (head >= heads) break;
    const bool is_q = head < args.heads, is_v = head >= args.heads + kv_heads;
    const bool normed = is_q ? args.q_normed : is_v ? args.v_normed : args.k_normed;
    Four y[1] = {x[h]};
    if (args.bias != nullptr && mine) add_four(y[0], vector_four(args.bias + column_of(head) + i));
    if (normed) {
      const NormWeights& n = is_q ? args.q_norm : is_v ? args.v_norm : args.k_norm;
      const float inverse = 1.0f / sqrtf(warp_sum(squares_of(y)) / static_cast<float>(dim) + n.eps);
      Four weight = n.w != nullptr && mine ? vector_four(n.w + i) : four_times(1);
      add_four(weight, four_times(n.w != nullptr && n.plus_one ? 1.0f : 0.0f));
      weigh_four(y[0], inverse, weight);
    }
    if (args.clip > 0)
#pragma unroll
      for (int j = 0; j < 4; ++j) y[0].v[j] = clipped(y[0].v[j], args.clip);
    if (!is_v && pairs > 0) {
      Four other = {{y[0].v[1], y[0].v[0], y[0].v[3], y[0].v[2]}};
      if (!args.interleaved)
#pragma unroll
        for (int j = 0; j < 4; ++j) other.v[j] = __shfl_sync(0xffffffffu, y[0].v[j], other_lane);
      if (i < 2 * pairs)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const bool second = args.interleaved ? j % 2 != 0 : back;
          y[0].v[j] = turned(y[0].v[j], cosine.v[j], second ? other.v[j] : -other.v[j], sine.v[j]);
        }
    }
    if (position < 0) y[0] = four_times(0);
    if (!mine || (!is_q && position < 0)) continue;
    if (is_q) {
      store_vector_four(args.q, row * args.q_stride + head * dim + i, y[0], args.type);
      continue;
    }
    const int kv_head = head - args.heads - (is_v ? kv_heads : 0);
    char* const out =
        const_cast<char*>(is_v ? args.kv.v + page * args.kv.v_page_stride : args.kv.k + page * args.kv.k_page_stride);
    store_vector_four(out, (static_cast<long long>(kv_head) * 64 + position % 64) * dim + i, y[0], args.type);
  }
}

/// One warp a (row, head of q, k or v), k and v when appending. Grid: row_thread's of 32 threads a head; block: 32 ·
/// kQkvWarps; dynamic shared memory: kQkvWarps · max(k_dim, v_dim) floats, each warp's rounded up to four.
__device__ __forceinline__ void qkv_finish(const QkvArgs& args) {
  GALVANI_DYNAMIC_SHARED(float, qkv_shared, 16);
  release_next();
  const int warp = threadIdx.x >> 5, heads = args.heads + (args.append ? 2 * args.kv.kv_heads : 0);
  const RowThread at = row_thread(32 * heads);
  const int head = at.thread >> 5;
  if (head >= heads) {
    wait_for_previous();
    return;
  }
  const QkvHead h = qkv_head(args, static_cast<int>(at.row), head);
  float* values = qkv_shared + warp * ((max(args.kv.k_dim, args.kv.v_dim) + 3) / 4 * 4);
  if (!qkv_fours(args, h))
    qkv_by_ones(args, h, values);
  else if (h.dim <= 128)
    qkv_by_fours<1>(args, h, values);
  else
    qkv_by_fours<2>(args, h, values);
}

}  // namespace galvani::kernels
