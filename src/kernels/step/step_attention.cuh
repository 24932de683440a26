#pragma once
// Attention of a decode step: queries turned, the new key and value appended, and the row's keys, in one phase.
//
// A block works on a segment of the keys for one kv head. It turns that head's queries itself (segments repeat a little
// arithmetic instead of waiting for each other), and the block of the last segment appends first. Segments are merged
// by whichever block of a kv head is last.
#include "kernels/attention/attention_decode.cuh"
#include "kernels/rope/rope_cuda.cuh"
#include "kernels/step/step_cuda_args.h"
#include "kernels/step/step_product.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Segments of a row's visible keys: few enough that each has a block, none shorter than a round of the warps.
struct StepSegments {
  int first, last, length, count;
  GALVANI_DEVICE StepSegments(int position, int window, int kv_heads) {
    first = window > 0 ? max(0, position - window + 1) : 0;
    last = position;
    const int keys = last - first + 1, most = max(1, static_cast<int>(gridDim.x) / kv_heads);
    length = ((keys + most - 1) / most + kStepSegment - 1) / kStepSegment * kStepSegment;
    count = (keys + length - 1) / length;
  }
};

/// D / 32 floats of a lane, side by side.
template <int kPer>
GALVANI_DEVICE void step_floats(const float* from, float (&x)[kPer]) {
  if constexpr (kPer == 4) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  } else {
    const float2 v = __ldcg(reinterpret_cast<const float2*>(from));
    x[0] = v.x, x[1] = v.y;
  }
}

/// One head of q, k or v by a warp: bias, norm, clip and rope in that order, as qkv_finish does it; to `shared`, and to
/// `page` where that is not null. A lane has D / 32 elements side by side, so that the other half of a pair is in the
/// lane or 16 lanes on. All loads are under way before one is used.
template <typename T, int D>
GALVANI_DEVICE void step_head(const QkvArgs& args, int column, const NormWeights* norm, bool rotated, T* shared,
                              T* page) {
  constexpr int kPer = D / 32;
  const int lane = lane_id(), at = kPer * lane, pair = args.interleaved ? at / 2 : at % (D / 2);
  float x[kPer], bias[kPer], weight[kPer];
  float2 turn[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) bias[j] = 0, weight[j] = 1, turn[j] = make_float2(1, 0);
  step_floats(args.x + column + at, x);
  if (rotated)
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      turn[j] = load_early(reinterpret_cast<const float2*>(args.rope) + pair + (args.interleaved ? j / 2 : j));
  if (norm != nullptr && norm->w != nullptr) step_floats(norm->w + at, weight);
  if (args.bias != nullptr) step_floats(args.bias + column + at, bias);
#pragma unroll
  for (int j = 0; j < kPer; ++j) x[j] += bias[j];
  if (norm != nullptr) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) squares += x[j] * x[j];
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / D + norm->eps);
    const float one = norm->w != nullptr && norm->plus_one ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < kPer; ++j) x[j] = x[j] * inverse * (weight[j] + one);
  }
  if (args.clip > 0)
#pragma unroll
    for (int j = 0; j < kPer; ++j) x[j] = clipped(x[j], args.clip);
  if (rotated && args.interleaved) {
#pragma unroll
    for (int j = 0; j < kPer; j += 2) {
      const float even = x[j], odd = x[j + 1];
      x[j] = even * turn[j].x - odd * turn[j].y;
      x[j + 1] = odd * turn[j].x + even * turn[j].y;
    }
  } else if (rotated) {
    const bool second = lane >= kWarp / 2;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const float other = __shfl_xor_sync(kFullMask, x[j], kWarp / 2);
      x[j] = x[j] * turn[j].x + (second ? other : -other) * turn[j].y;
    }
  }
  if constexpr (kPer == 4) {
    const uint2 v = make_uint2(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]));
    *reinterpret_cast<uint2*>(shared + at) = v;
    if (page != nullptr) *reinterpret_cast<uint2*>(page + at) = v;
  } else {
    const unsigned v = pack2<T>(x[0], x[1]);
    *reinterpret_cast<unsigned*>(shared + at) = v;
    if (page != nullptr) *reinterpret_cast<unsigned*>(page + at) = v;
  }
}

/// Queries of one kv head to `to` [group][D], and where `append` its key and value behind them and to their pages. A
/// warp a head.
template <typename T, int D>
GALVANI_DEVICE void step_qkv(const QkvArgs& args, int kv_head, int group, bool append, int position, T* to, int warp) {
  if (warp >= group + (append && args.append ? 2 : 0)) return;
  if (warp < group)
    return step_head<T, D>(args, (kv_head * group + warp) * D, args.q_normed ? &args.q_norm : nullptr,
                           args.rope != nullptr, to + warp * D, nullptr);
  const bool is_v = warp > group;
  const long long sequence = load_early(args.sequence);
  const long long block = load_early(args.tables.blocks + sequence * args.tables.max_blocks + position / attn::kPage);
  const char* const base = is_v ? args.kv.v + block * args.kv.v_page_stride : args.kv.k + block * args.kv.k_page_stride;
  const NormWeights* const norm =
      is_v ? (args.v_normed ? &args.v_norm : nullptr) : (args.k_normed ? &args.k_norm : nullptr);
  step_head<T, D>(args, (is_v ? args.v_column : args.k_column) + kv_head * D, norm, !is_v && args.rope != nullptr,
                  to + warp * D,
                  reinterpret_cast<T*>(const_cast<char*>(base)) + (kv_head * attn::kPage + position % attn::kPage) * D);
}

/// Sixteen keys and 64 dims of their values in registers, as attention_decode.cuh has them.
template <typename T, int D>
struct StepKeys {
  uint4 k[D / 32][2], v[1][4];

  GALVANI_DEVICE void load(const T* page_k, const T* page_v, int lane) {
    attn::load_keys<T, D, D>(k, page_k, lane);
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[0][i] = *reinterpret_cast<const uint4*>(page_v + (2 * t + (i & 1) + 8 * (i >> 1)) * D + 8 * g);
  }
  /// The key and value that this step has made, `at` of the sixteen; new_v: its dims that the warp has.
  GALVANI_DEVICE void put(int at, const T* new_k, const T* new_v, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (at == g + 8 * half)
#pragma unroll
        for (int c = 0; c < D / 32; ++c) k[c][half] = *reinterpret_cast<const uint4*>(new_k + 32 * c + 8 * t);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (at == 2 * t + (i & 1) + 8 * (i >> 1)) v[0][i] = *reinterpret_cast<const uint4*>(new_v + 8 * g);
  }
  /// What the row does not see may hold anything, and 0 · NaN is not 0.
  GALVANI_DEVICE void hide(int key0, int first, int last, int lane) {
    if (key0 >= first && key0 + 15 <= last) return;
    const int t = lane & 3;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key0 + 2 * t + (i & 1) + 8 * (i >> 1);
      if (key < first || key > last) v[0][i] = make_uint4(0, 0, 0, 0);
    }
  }
};

/// What the warps found, in the order of the warps: the segment's sums, or where there is no other the output.
template <typename T, int D>
GALVANI_DEVICE void step_merge_warps(const StepAttention& a, const float* sums, const float* stats, int head, int group,
                                     int segment, bool only) {
  constexpr int kRow = D + 4;
  for (int i = static_cast<int>(threadIdx.x); i < group * (D / 4); i += kStepWarps * kWarp) {
    const int row = i / (D / 4), dim = 4 * (i % (D / 4));
    float peak = only && a.sinks != nullptr ? a.sinks[head + row] * attn::kLog2E : attn::minus_infinity();
    const float sink = peak;
#pragma unroll
    for (int w = 0; w < kStepKeyWarps; ++w) peak = fmaxf(peak, stats[(w * 8 + row) * 2]);
    float4 total = make_float4(0, 0, 0, 0);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kStepKeyWarps; ++w) {
      const float own = stats[(w * 8 + row) * 2], part = stats[(w * 8 + row) * 2 + 1];
      if (own == attn::minus_infinity() && part == 0) continue;  // a warp without keys
      const float factor = exp2_fast(own - peak);
      const float4 x = *reinterpret_cast<const float4*>(sums + (w * group + row) * kRow + dim);
      total.x += x.x * factor, total.y += x.y * factor, total.z += x.z * factor, total.w += x.w * factor;
      sum += part * factor;
    }
    if (!only) {
      const long long slot = static_cast<long long>(segment) * a.qkv.heads + head + row;
      *reinterpret_cast<float4*>(a.part_out + slot * D + dim) = total;
      if (dim == 0) *reinterpret_cast<float2*>(a.part_stat + slot * 2) = make_float2(peak, sum);
      continue;
    }
    if (a.sinks != nullptr) sum += exp2_fast(sink - peak);
    const float inverse = 1.0f / sum;
    *reinterpret_cast<uint2*>(static_cast<T*>(a.out) + static_cast<long long>(head + row) * D + dim) =
        make_uint2(pack2<T>(total.x * inverse, total.y * inverse), pack2<T>(total.z * inverse, total.w * inverse));
  }
}

/// The segments of one kv head, in order.
template <typename T, int D>
GALVANI_DEVICE void step_merge_segments(const StepAttention& a, int head, int group, int segments) {
  for (int i = static_cast<int>(threadIdx.x); i < group * (D / 4); i += kStepWarps * kWarp) {
    const int row = head + i / (D / 4), dim = 4 * (i % (D / 4)), heads = a.qkv.heads;
    const float sink = a.sinks != nullptr ? a.sinks[row] * attn::kLog2E : attn::minus_infinity();
    // A running peak, so that each segment is one trip to memory, four of them under way at once.
    float peak = sink, sum = a.sinks != nullptr ? 1.0f : 0.0f;
    float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int s = 0; s < segments; ++s) {
      const long long slot = static_cast<long long>(s) * heads + row;
      const float2 stat = __ldcg(reinterpret_cast<const float2*>(a.part_stat + slot * 2));
      const float4 x = __ldcg(reinterpret_cast<const float4*>(a.part_out + slot * D + dim));
      const float higher = fmaxf(peak, stat.x);
      const float keep = peak == higher ? 1.0f : exp2_fast(peak - higher), factor = exp2_fast(stat.x - higher);
      total.x = total.x * keep + x.x * factor, total.y = total.y * keep + x.y * factor;
      total.z = total.z * keep + x.z * factor, total.w = total.w * keep + x.w * factor;
      sum = sum * keep + stat.y * factor;
      peak = higher;
    }
    const float inverse = 1.0f / sum;
    *reinterpret_cast<uint2*>(static_cast<T*>(a.out) + static_cast<long long>(row) * D + dim) =
        make_uint2(pack2<T>(total.x * inverse, total.y * inverse), pack2<T>(total.z * inverse, total.w * inverse));
  }
}

/// Waits for the grid where q, k and v are needed: keys and values of the steps before do not depend on this one, so
/// the first of them are in the L2 by then. D / 64 warps share sixteen keys, each with 64 dims of the values.
template <typename T, int D>
GALVANI_DEVICE void step_attention(const StepAttention& a, unsigned char* scratch, const unsigned* arrived,
                                   unsigned target) {
  constexpr int kRow = D + 4;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = lane_id();
  const int key_warp = warp % kStepKeyWarps, part = warp / kStepKeyWarps;  // part: of the dims
  const QkvArgs& args = a.qkv;
  const int kv_heads = args.kv.kv_heads, group = args.heads / kv_heads;
  T* const heads = reinterpret_cast<T*>(scratch);  // queries, then the new key and value
  float* const sums = reinterpret_cast<float*>(heads + (kStepMostGroup + 2) * D);
  float* const stats = sums + kStepKeyWarps * group * kRow;
  unsigned* const flag = reinterpret_cast<unsigned*>(stats + kStepKeyWarps * 8 * 2);
  const int position = load_early(args.positions);
  const StepSegments segments(position, a.score.window, kv_heads);
  const int* const blocks =
      args.tables.blocks + static_cast<long long>(load_early(args.sequence)) * args.tables.max_blocks;
  const int items = segments.count * kv_heads;
  bool waited = false;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int kv_head = item % kv_heads, segment = item / kv_heads, head = kv_head * group;
    const int first = segments.first + segment * segments.length,
              last = min(segments.last, first + segments.length - 1);
    const T* const k_base = reinterpret_cast<const T*>(args.kv.k) + kv_head * attn::kPage * D;
    const T* const v_base = reinterpret_cast<const T*>(args.kv.v) + kv_head * attn::kPage * D + 64 * part;
    int key0 = (first & ~15) + 16 * key_warp;
    const bool reads = part < D / 64 && key0 <= last;
    StepKeys<T, D> keys;
    int page = 0;  // of the next keys
    if (reads) page = load_early(blocks + key0 / attn::kPage);
    const auto load = [&] {
      const int in = key0 % attn::kPage * D;
      keys.load(k_base + page * (args.kv.k_page_stride / 2) + in, v_base + page * (args.kv.v_page_stride / 2) + in,
                lane);
      if (key0 + kStepRound <= last) page = load_early(blocks + (key0 + kStepRound) / attn::kPage);
    };
    // Keys of the steps before come from memory: the first rounds' are in the L2 by the time they are wanted, and each
    // round asks for the one after the next. A lane a line of 128 bytes: D / 64 warps, or one, have keys and values.
    const auto ask = [&](int from) {
      if (from > last || part >= D / 64) return;
      constexpr int kLines = 16 * D / 64;
      const bool values = D == 128 ? part == 1 : lane >= kLines;
      const char* const page =
          (values ? args.kv.v : args.kv.k) +
          load_early(blocks + from / attn::kPage) * (values ? args.kv.v_page_stride : args.kv.k_page_stride);
      prefetch_l2(page + ((kv_head * attn::kPage + from % attn::kPage) * D + lane % kLines * 64) * 2);
    };
    if (!waited) ask(key0), ask(key0 + kStepRound);
    if (!waited) step_wait(arrived, target), waited = true;
    step_qkv<T, D>(args, kv_head, group, segment == segments.count - 1, position, heads, warp);
    __syncthreads();
    if (part < D / 64) {
      attn::DecodeState<T, D, 64> state;
      attn::load_queries(state, heads, group, lane);
      for (; key0 <= last; key0 += kStepRound) {
        load();
        ask(key0 + 2 * kStepRound);
        if (args.append && key0 + 15 >= position)
          keys.put(position - key0, heads + group * D, heads + (group + 1) * D + 64 * part, lane);
        keys.hide(key0, first, last, lane);
        float score[4];
        attn::scores(state, keys.k, score);
        unsigned p[2];
        attn::weigh(state, score, a.score, key0, first, last, lane, p);
        attn::add_values(state, keys.v, p);
      }
      const int g = lane >> 2, t = lane & 3;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) state.sum[h] += __shfl_xor_sync(kFullMask, state.sum[h], step);
        const int row = 2 * t + h;
        if (row >= group) continue;
        if (g == 0 && part == 0)
          stats[(key_warp * 8 + row) * 2] = state.peak[h], stats[(key_warp * 8 + row) * 2 + 1] = state.sum[h];
        float* const to = sums + (key_warp * group + row) * kRow + 64 * part;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          *reinterpret_cast<float2*>(to + 8 * g + 2 * j) = make_float2(state.o[j][h], state.o[j][2 + h]);
      }
    }
    __syncthreads();
    step_merge_warps<T, D>(a, sums, stats, head, group, segment, segments.count == 1);
    if (segments.count > 1) {
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        const unsigned before = atomicAdd(a.arrived + kv_head, 1u);
        *flag = before + 1 == static_cast<unsigned>(segments.count);
        if (*flag) a.arrived[kv_head] = 0;
        __threadfence();
      }
      __syncthreads();
      if (*flag) step_merge_segments<T, D>(a, head, group, segments.count);
    }
    if (item + static_cast<int>(gridDim.x) < items) __syncthreads();
  }
  if (!waited) step_wait(arrived, target);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
