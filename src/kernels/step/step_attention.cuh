#pragma once
// Attention of a decode step: queries turned, the new key and value appended, and the row's keys, in one phase.
//
// A block works on a segment of the keys for one kv head. It turns that head's queries itself (segments repeat a little
// arithmetic instead of waiting for each other), and the block of the last segment appends first. Segments are merged
// by whichever block of a kv head is last.
#include "kernels/attention/attention_decode.cuh"
#include "kernels/rope/rope_cuda.cuh"
#include "kernels/step/step_keys.cuh"
#include "kernels/step/step_product.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

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

/// Where a warp of step_qkv appends its key or value; null for queries. Found before the wait: two trips to memory.
template <typename T, int D>
GALVANI_DEVICE T* step_append_to(const StepAttention& a, const StepRow& row, const int* blocks, int kv_head,
                                 bool append, int warp) {
  if (!append || !a.qkv.append || warp < a.group || warp >= a.group + 2) return nullptr;
  const PagedKv& kv = a.qkv.kv;
  const bool is_v = warp > a.group;
  const long long block = load_early(blocks + row.position / attn::kPage);
  const char* const base = is_v ? kv.v + block * kv.v_page_stride : kv.k + block * kv.k_page_stride;
  return reinterpret_cast<T*>(const_cast<char*>(base)) + (kv_head * attn::kPage + row.position % attn::kPage) * D;
}

/// Queries of one kv head to `to` [group][D], and where it appends its key and value behind them and to their pages. A
/// warp a head; page: step_append_to.
template <typename T, int D>
GALVANI_DEVICE void step_qkv(const QkvArgs& args, int kv_head, int group, T* page, T* to, int warp) {
  if (warp >= group && page == nullptr) return;
  if (warp < group)
    return step_head<T, D>(args, (kv_head * group + warp) * D, args.q_normed ? &args.q_norm : nullptr,
                           args.rope != nullptr, to + warp * D, nullptr);
  const bool is_v = warp > group;
  const NormWeights* const norm =
      is_v ? (args.v_normed ? &args.v_norm : nullptr) : (args.k_normed ? &args.k_norm : nullptr);
  step_head<T, D>(args, (is_v ? args.v_column : args.k_column) + kv_head * D, norm, !is_v && args.rope != nullptr,
                  to + warp * D, page);
}

/// Sixteen keys and 64 dims of their values in registers, as attention_decode.cuh has them.
template <typename T, int D>
struct StepKeys {
  uint4 k[D / 32][2], v[1][4];

  GALVANI_DEVICE void load(const T* page_k, const T* page_v, int lane) {
    attn::load_keys<T, D, D>(k, page_k, lane);
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < 4; ++i) v[0][i] = load_streamed(page_v + (2 * t + (i & 1) + 8 * (i >> 1)) * D + 8 * g);
  }
  /// Or registers that only some warps load would be alive since the kernel's beginning, and others be spilled for
  /// them.
  GALVANI_DEVICE void clear() {
#pragma unroll
    for (int c = 0; c < D / 32; ++c) k[c][0] = k[c][1] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[0][i] = make_uint4(0, 0, 0, 0);
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

/// Of a row's sums in shared memory, kStepRowPad apart: pairs of dims in an order that eight lanes' stores side by side
/// have no bank twice, 8 · g + 2 · j + 64 · part at 2 · g + 16 · j + 64 · part.
GALVANI_DEVICE int step_dim(int at) { return (at & ~63) + (at & 15) * 4 + (at >> 3 & 6); }

/// What the warps found, in the order of the warps: the segment's sums, or where there is no other the output.
template <typename T, int D>
GALVANI_DEVICE void step_merge_warps(const StepAttention& a, const float* sums, const float* stats, int head, int group,
                                     int segment, bool only) {
  constexpr int kRow = D + kStepRowPad;
  for (int i = static_cast<int>(threadIdx.x); i < group * (D / 2); i += kStepWarps * kWarp) {
    const int row = i / (D / 2), at = 2 * (i % (D / 2)), dim = step_dim(at);
    float peak = only && a.sinks != nullptr ? a.sinks[head + row] * attn::kLog2E : attn::minus_infinity();
    const float sink = peak;
    float2 stat[kStepKeyWarps];
#pragma unroll
    for (int w = 0; w < kStepKeyWarps; ++w) {
      stat[w] = *reinterpret_cast<const float2*>(stats + (w * 8 + row) * 2);
      peak = fmaxf(peak, stat[w].x);
    }
    float2 total = make_float2(0, 0);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kStepKeyWarps; ++w) {
      const float own = stat[w].x, part = stat[w].y;
      // A warp without keys has zeros; no branch, so that all loads are under way at once.
      const float factor = own == attn::minus_infinity() && part == 0 ? 0.0f : exp2_fast(own - peak);
      const float2 x = *reinterpret_cast<const float2*>(sums + (w * group + row) * kRow + at);
      total.x += x.x * factor, total.y += x.y * factor;
      sum += part * factor;
    }
    if (!only) {
      const long long slot = static_cast<long long>(segment) * a.qkv.heads + head + row;
      *reinterpret_cast<float2*>(a.part_out + slot * D + dim) = total;
      if (dim == 0) *reinterpret_cast<float2*>(a.part_stat + slot * 2) = make_float2(peak, sum);
      continue;
    }
    if (a.sinks != nullptr) sum += exp2_fast(sink - peak);
    const float inverse = 1.0f / sum;
    const int to = (head + row) * D + dim;
    const unsigned values = pack2<T>(total.x * inverse, total.y * inverse);
    if (a.relay != nullptr)
      store_relaxed(reinterpret_cast<unsigned*>(static_cast<T*>(a.relay) + step_relay_at(to)), values);
    *reinterpret_cast<unsigned*>(static_cast<T*>(a.out) + to) = values;
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
    const int to = row * D + dim;
    const uint2 values =
        make_uint2(pack2<T>(total.x * inverse, total.y * inverse), pack2<T>(total.z * inverse, total.w * inverse));
    if (a.relay != nullptr) {
      unsigned* const relay = reinterpret_cast<unsigned*>(static_cast<T*>(a.relay) + step_relay_at(to));
      store_relaxed(relay, values.x), store_relaxed(relay + 1, values.y);
    }
    *reinterpret_cast<uint2*>(static_cast<T*>(a.out) + to) = values;
  }
}

/// Waits for the grid where q, k and v are needed: keys and values of the steps before do not depend on this one, so
/// the first of them are in registers by then. D / 64 warps share sixteen keys, each with 64 dims of the values.
template <typename T, int D>
GALVANI_DEVICE void step_attention(const StepArgs& s, const StepAttention& a, unsigned char* smem, int warp, int lane,
                                   unsigned target) {
  constexpr int kRow = D + kStepRowPad;
  const int key_warp = warp % kStepKeyWarps, part = warp / kStepKeyWarps;  // part: of the dims
  const QkvArgs& args = a.qkv;
  const int kv_heads = args.kv.kv_heads, group = a.group;
  T* const heads = reinterpret_cast<T*>(smem + s.x_at);  // queries, then the new key and value
  float* const sums = reinterpret_cast<float*>(heads + (kStepMostGroup + 2) * D);
  float* const stats = sums + kStepKeyWarps * group * kRow;
  unsigned* const flag = reinterpret_cast<unsigned*>(stats + kStepKeyWarps * 8 * 2);
  StepAsk first_keys;
  StepRow row;
  if (a.asked != 0) {
    first_keys = reinterpret_cast<const StepAsk*>(smem + s.ask_at)[warp];
    row = *reinterpret_cast<const StepRow*>(smem + s.row_at);
  } else {
    row = {load_early(args.positions), load_early(args.sequence)};
    first_keys.ask(a, row, warp, lane);
  }
  const int position = row.position;
  const int* const blocks = args.tables.blocks + static_cast<long long>(row.sequence) * args.tables.max_blocks;
  const StepSegments segments(position, a.score.window, a.most);
  const int items = segments.count * kv_heads;
  bool waited = false;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const StepItem own(a, item);
    const int kv_head = own.kv_head, segment = own.segment, head = kv_head * group;
    const int first = segments.first + segment * segments.length,
              last = min(segments.last, first + segments.length - 1);
    const T* const k_base = reinterpret_cast<const T*>(args.kv.k) + kv_head * attn::kPage * D;
    const T* const v_base = reinterpret_cast<const T*>(args.kv.v) + kv_head * attn::kPage * D + 64 * part;
    int key0 = (first & ~15) + 16 * key_warp;
    const bool reads = part < D / 64 && key0 <= last;
    StepKeys<T, D> keys;
    int page = first_keys.page[0], next = first_keys.page[1];  // of these keys and the next
    if (waited && reads) {
      page = load_early(blocks + key0 / attn::kPage);
      if (key0 + kStepRound <= last) next = load_early(blocks + (key0 + kStepRound) / attn::kPage);
    }
    const auto load = [&] {
      const int in = key0 % attn::kPage * D;
      keys.load(k_base + page * (args.kv.k_page_stride / 2) + in, v_base + page * (args.kv.v_page_stride / 2) + in,
                lane);
    };
    T* const to_page = step_append_to<T, D>(a, row, blocks, kv_head, segment == segments.count - 1, warp);
    // What this step appends is not among them yet, but in shared memory when it is wanted.
    keys.clear();
    if (reads) load();
    if (!waited) step_wait(s.arrived, target, true), waited = true;
    step_qkv<T, D>(args, kv_head, group, to_page, heads, warp);
    __syncthreads();
    if (part < D / 64) {
      attn::DecodeState<T, D, 64> state;
      attn::load_queries(state, heads, group, lane);
      while (key0 <= last) {
        // Those after the next come from memory: a round for it.
        int beyond = 0;
        if (key0 + 2 * kStepRound <= last) {
          beyond = load_early(blocks + (key0 + 2 * kStepRound) / attn::kPage);
          step_ask_page(a, kv_head, key0 + 2 * kStepRound, beyond, part, lane);
        }
        if (args.append && key0 + 15 >= position)
          keys.put(position - key0, heads + group * D, heads + (group + 1) * D + 64 * part, lane);
        keys.hide(key0, first, last, lane);
        float score[4];
        attn::scores(state, keys.k, score);
        unsigned p[2];
        attn::weigh(state, score, a.score, key0, first, last, lane, p);
        attn::add_values(state, keys.v, p);
        key0 += kStepRound;
        if (key0 > last) break;
        page = next, next = beyond;
        load();
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
          *reinterpret_cast<float2*>(to + 2 * g + 16 * j) = make_float2(state.o[j][h], state.o[j][2 + h]);
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
  if (!waited) step_wait(s.arrived, target, true);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
