#pragma once
/// Prefill on 9.0a: flash attention with wgmma. Two warpgroups hold 64 queries each; the copy engine brings keys and
/// values into a ring of shared memory, as tensor maps describe their pages, for a third one. The scores of a step and
/// the weighted values of the step before are issued together, and scores are weighed while those values are still
/// being added; up to 128 dims the two warpgroups take turns in issuing, so that one's softmax falls into the other's
/// products. NVRTC compiles it alone.
///
/// Same formula, roundings and masks as attention_prefill.cuh, whose softmax and store it shares; a step is two pages
/// (one at heads of 256) that begin at multiples of a step, so largest scores are found, and weights rounded, in other
/// portions, and a row's bits still depend on nothing but what it sees. Source of the schedule: Shah et al. 2024
/// (FlashAttention-3).
#include "kernels/attention/attention_prefill.cuh"
#include "kernels/attention/attention_wgmma_mma.cuh"
#include "kernels/common/copy.cuh"
#include "kernels/common/tensor_map.h"
#include "kernels/common/wgmma.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {

namespace hw = ::galvani::kernels::GALVANI_CUDA_NS;
namespace tc = ::galvani::kernels::GALVANI_CUDA_NS::attention_wgmma;

constexpr int kWgmmaRows = 128, kWgmmaThreads = 384;

/// What a width has room for, and what was fastest on an H200.
template <int D>
struct WgmmaPlan {
  static constexpr int kStages = 2;
  static constexpr int kKeys = D <= 128 ? 128 : 64;  ///< of a step
  static constexpr int kTile = kKeys * D * 2;        ///< bytes of a step's K, and of its V
  static constexpr bool kTakeTurns = D <= 128;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
};
/// Queries, a ring of K and V, 1 KB to align them, barriers.
template <int D>
constexpr int wgmma_shared_bytes() {
  return 1024 + kWgmmaRows * D * 2 + WgmmaPlan<D>::kStages * 2 * WgmmaPlan<D>::kTile + 256;
}

/// Byte offset of chunk c (16 bytes) of row r in a tile of kRows rows: blocks of 64 columns, 128-byte rows, swizzled.
template <int kRows>
__device__ __forceinline__ int wgmma_offset(int r, int c) {
  return (c >> 3) * kRows * 128 + r * 128 + (((c & 7) ^ (r & 7)) << 4);
}

/// Row r of what wgmma_load reads: rows `stride` elements apart, those from 64 on at `second` if that is not null.
template <typename T>
struct WgmmaRows {
  const T *first, *second;
  long long stride;
  __device__ __forceinline__ const T* row(int r) const {
    return second != nullptr && r >= kPage ? second + (r - kPage) * stride : first + r * stride;
  }
};
/// Copies rows [0, rows) into tiles of kRows rows, `end` rows in all; those beyond `rows` become zeros. The caller's
/// threads are thread, thread + threads, …
template <typename T, int D, int kRows>
__device__ __forceinline__ void wgmma_load(unsigned tile, const WgmmaRows<T>& from, int rows, int end, int thread,
                                           int threads) {
  constexpr int kChunks = D / 8;
#pragma unroll 1
  for (int i = thread; i < end * kChunks; i += threads) {
    const int r = i / kChunks, c = i % kChunks;
    hw::cp_async_16_zfill(tile + r / kRows * kRows * D * 2 + wgmma_offset<kRows>(r % kRows, c),
                          from.row(r < rows ? r : 0) + c * 8, r < rows ? 16 : 0);
  }
  hw::cp_async_commit();
  hw::cp_async_wait<0>();
  hw::fence_async_shared();
}

/// Shared addresses; a ring's barriers are 8 bytes apart.
struct WgmmaShared {
  unsigned queries, ring;
  unsigned k_full, v_full, k_empty, v_empty, queries_full;
};

/// The steps in which a tile's rows see something.
template <int D>
struct WgmmaSteps {
  int first, count;
  __device__ __forceinline__ WgmmaSteps(const AttentionTileRows& tile, int window) {
    first = (window > 0 ? max(0, tile.position - window + 1) : 0) / WgmmaPlan<D>::kKeys;
    count = (tile.position + tile.count - 1) / WgmmaPlan<D>::kKeys - first + 1;
  }
};

/// The copying warpgroup: its first warp asks for step after step, the others bring the queries.
template <typename T, int D>
__device__ __forceinline__ void wgmma_produce(const AttentionTilesArgs& args, const TensorMap& k_map,
                                              const TensorMap& v_map, const AttentionTileRows& tile, int head,
                                              const WgmmaShared& shared) {
  constexpr int kStages = WgmmaPlan<D>::kStages, kKeys = WgmmaPlan<D>::kKeys, kTile = WgmmaPlan<D>::kTile;
  constexpr int kPages = kKeys / kPage;  // of a step
  const int lane = threadIdx.x & 31, kv_head = head / (args.heads / args.kv.kv_heads);
  if (threadIdx.x >= 32) {
    const T* q = static_cast<const T*>(args.q) + tile.row * args.q_stride + static_cast<long long>(head) * D;
    wgmma_load<T, D, 64>(shared.queries, {q, nullptr, args.q_stride}, tile.count, kWgmmaRows, threadIdx.x - 32, 96);
    hw::barrier_arrive(shared.queries_full);
    return;
  }
  const int* blocks = args.tables.blocks + static_cast<long long>(tile.sequence) * args.tables.max_blocks;
  const WgmmaSteps<D> steps(tile, args.score.window);
  const int last_page = (tile.position + tile.count - 1) / kPage;  // stands for one after it, which nobody sees
  const auto copy = [&](unsigned to, const TensorMap& map, const int(&block)[kPages], unsigned barrier) {
    hw::barrier_arrive_expect(barrier, kTile);
#pragma unroll
    for (int c = 0; c < D / 64; ++c)
#pragma unroll
      for (int i = 0; i < kPages; ++i)
        hw::tensor_copy_3d(to + c * kKeys * 128 + i * kPage * 128, &map, c * 64, kv_head * kPage, block[i], barrier);
  };
  int slot = 0, some_blocks = 0;
  unsigned phase = 1;
  for (int step = 0; step < steps.count; ++step) {
    constexpr int kSome = 32 / kPages;
    if (step % kSome == 0) some_blocks = blocks[min((steps.first + step) * kPages + lane, last_page)];
    int block[kPages];
#pragma unroll
    for (int i = 0; i < kPages; ++i) block[i] = __shfl_sync(0xffffffffu, some_blocks, step % kSome * kPages + i);
    const unsigned to = shared.ring + 2 * slot * kTile;
    hw::barrier_wait(shared.k_empty + 8 * slot, phase);
    if (lane == 0) copy(to, k_map, block, shared.k_full + 8 * slot);
    hw::barrier_wait(shared.v_empty + 8 * slot, phase);
    const int written = tile.length - (steps.first + step) * kKeys;
    if (written >= kKeys || written == kPage) {
      if (lane == 0) copy(to + kTile, v_map, block, shared.v_full + 8 * slot);
    } else {  // later rows may hold anything, and 0 · NaN is not 0
      const T* v = reinterpret_cast<const T*>(args.kv.v) + static_cast<long long>(kv_head) * kPage * D;
      const long long stride = args.kv.v_page_stride / 2;
      const WgmmaRows<T> rows{v + block[0] * stride, kPages > 1 ? v + block[kPages - 1] * stride : nullptr, D};
      wgmma_load<T, D, kKeys>(to + kTile, rows, written, kKeys, lane, 32);
      __syncwarp();
      if (lane == 0) hw::barrier_arrive(shared.v_full + 8 * slot);
    }
    if (++slot == kStages) slot = 0, phase ^= 1;
  }
}

/// A warp of the two that multiply and weigh: 16 queries of a warpgroup's 64.
template <typename T, int D, bool kCapped>
struct WgmmaConsumer {
  using Plan = WgmmaPlan<D>;
  static constexpr int kTile = Plan::kTile, kKeys = Plan::kKeys;
  const AttentionTilesArgs& args;
  const WgmmaShared& shared;
  const WgmmaSteps<D> steps;
  const int group, lane, position;  // of the warp's first row
  int slot = 0;                     // of the step weighed last
  unsigned phase = 0;
  PrefillState<T, D, 1> state;
  float s[1][kKeys / 8][4], factor[1][2];
  unsigned p[kKeys / 16][4];

  __device__ __forceinline__ WgmmaConsumer(const AttentionTilesArgs& call, const AttentionTileRows& tile,
                                           const WgmmaShared& memory)
      : args(call),
        shared(memory),
        steps(tile, call.score.window),
        group(static_cast<int>(threadIdx.x) / 128 - 1),
        lane(static_cast<int>(threadIdx.x) & 31),
        position(tile.position + static_cast<int>(threadIdx.x) / 32 * 16 - 64) {
#pragma unroll
    for (int n = 0; n < D / 8; ++n) state.o[0][n][0] = state.o[0][n][1] = state.o[0][n][2] = state.o[0][n][3] = 0;
    state.peak[0][0] = state.peak[0][1] = minus_infinity();
    state.sum[0][0] = state.sum[0][1] = 0;
  }

  __device__ __forceinline__ void my_turn() {
    if constexpr (Plan::kTakeTurns) hw::named_barrier(1 + group, 256);
  }
  __device__ __forceinline__ void your_turn(bool wanted) {
    if constexpr (Plan::kTakeTurns)
      if (wanted) hw::named_barrier_arrive(2 - group, 256);
  }
  __device__ __forceinline__ void release(unsigned barrier) {
    if (lane == 0) hw::barrier_arrive(barrier);
  }
  __device__ __forceinline__ void scores(unsigned k_tile) {
    // Or the compiler keeps a descriptor for each 16 dims of the queries in registers, and spills.
    const unsigned queries = hw::not_hoisted(shared.queries + group * 64 * D * 2);
    hw::wgmma_fence();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const unsigned block = k >> 2, in_block = (k & 3) * 32;
      tc::scores<T, kKeys>(s[0], hw::wgmma_descriptor(queries + block * 64 * 128 + in_block),
                           hw::wgmma_descriptor(k_tile + block * kKeys * 128 + in_block), k > 0);
    }
    hw::wgmma_commit();
  }
  /// o += P · V. Values of up to 128 dims a product.
  __device__ __forceinline__ void add(unsigned v_tile) {
    constexpr int kN = D < 128 ? D : 128;
    hw::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int n = 0; n < D / kN; ++n)
        tc::add_values<T, kN>(reinterpret_cast<float(&)[kN / 8][4]>(state.o[0][n * (kN / 8)]), p[k],
                              tc::descriptor_values(v_tile + n * (kN / 64) * kKeys * 128 + k * 16 * 128, kKeys * 128));
    }
    hw::wgmma_commit();
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      p[k][0] = pack2<T>(s[0][2 * k][0], s[0][2 * k][1]);
      p[k][1] = pack2<T>(s[0][2 * k][2], s[0][2 * k][3]);
      p[k][2] = pack2<T>(s[0][2 * k + 1][0], s[0][2 * k + 1][1]);
      p[k][3] = pack2<T>(s[0][2 * k + 1][2], s[0][2 * k + 1][3]);
    }
  }

  /// Scores and weights of the first step.
  __device__ __forceinline__ void begin() {
    if (group == 1) your_turn(true);
    hw::barrier_wait(shared.queries_full, 0);
    hw::barrier_wait(shared.k_full, 0);
    my_turn();
    scores(shared.ring);
    your_turn(true);
    hw::wgmma_wait<0>();
    release(shared.k_empty);
    page_softmax(state, s, factor, args.score, steps.first * kKeys, position, true, kCapped, lane);
    pack();
  }
  /// Values of the step before, scores and weights of this one.
  template <bool kMasked>
  __device__ __forceinline__ void step(int index) {
    const int before = slot;
    const unsigned phase_before = phase;
    if (++slot == Plan::kStages) slot = 0, phase ^= 1;
    hw::barrier_wait(shared.k_full + 8 * slot, phase);
    hw::barrier_wait(shared.v_full + 8 * before, phase_before);
    my_turn();
    scores(shared.ring + 2 * slot * kTile);
    add(shared.ring + (2 * before + 1) * kTile);
    your_turn(group == 0 || index + 1 < steps.count);  // nobody waits after the last one's
    hw::wgmma_wait<1>();
    release(shared.k_empty + 8 * slot);
    page_softmax(state, s, factor, args.score, (steps.first + index) * kKeys, position, kMasked, kCapped, lane);
    hw::wgmma_wait<0>();
    release(shared.v_empty + 8 * before);
    rescale(state, factor);
    pack();
  }
  __device__ __forceinline__ void finish() {
    hw::barrier_wait(shared.v_full + 8 * slot, phase);
    add(shared.ring + (2 * slot + 1) * kTile);
    hw::wgmma_wait<0>();
  }
};

template <typename T, int D, bool kCapped>
__device__ __forceinline__ void wgmma_consume(const AttentionTilesArgs& args, const AttentionTileRows& tile, int head,
                                              const WgmmaShared& shared) {
  WgmmaConsumer<T, D, kCapped> my(args, tile, shared);
  my.begin();
  // Steps that all of the warpgroup's rows see whole lie between those that the window and the diagonal cut.
  constexpr int kKeys = WgmmaPlan<D>::kKeys;
  const int window = args.score.window, position = tile.position + my.group * 64, count = my.steps.count;
  const int cut = window > 0 ? max(0, position + 63 - window + kKeys) / kKeys - my.steps.first : 0;
  const int whole = (position + 1) / kKeys - my.steps.first;
  int step = 1;
  for (; step < min(cut, count); ++step) my.template step<true>(step);
  for (; step < min(whole, count); ++step) my.template step<false>(step);
  for (; step < count; ++step) my.template step<true>(step);
  my.finish();
  store_rows(my.state, args, tile, head, static_cast<int>(threadIdx.x) / 32 * 16 - 64, my.lane);
}

/// Grid: (tiles, heads); block: kWgmmaThreads; tiles of at most kWgmmaRows rows. k_map, v_map: [pages, kv_heads · 64,
/// D], boxes of 64 rows. Calls wait_for_previous().
template <typename T, int D>
__device__ __forceinline__ void attention_wgmma(const AttentionTilesArgs& args, const TensorMap& k_map,
                                                const TensorMap& v_map) {
  GALVANI_DYNAMIC_SHARED(char, wgmma_shared_memory, 1024);
  constexpr int kStages = WgmmaPlan<D>::kStages, kTile = WgmmaPlan<D>::kTile;
  const unsigned queries = (hw::shared_address(wgmma_shared_memory) + 1023) & ~1023u;
  const unsigned ring = queries + kWgmmaRows * D * 2, barrier = ring + kStages * 2 * kTile;
  const WgmmaShared shared{queries, ring, barrier, barrier + 32, barrier + 64, barrier + 96, barrier + 128};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hw::barrier_init(shared.k_full + 8 * i, 1);
      hw::barrier_init(shared.v_full + 8 * i, 1);
      hw::barrier_init(shared.k_empty + 8 * i, 8);  // warps
      hw::barrier_init(shared.v_empty + 8 * i, 8);
    }
    hw::barrier_init(shared.queries_full, 96);
    hw::fence_barrier_init();
  }
  __syncthreads();
  wait_for_previous();
  const AttentionTileRows tile = args.tiles[blockIdx.x];
  const int head = blockIdx.y;
  if (threadIdx.x < 128) {
    hw::registers_down<WgmmaPlan<D>::kProducerRegisters>();
    wgmma_produce<T, D>(args, k_map, v_map, tile, head, shared);
  } else {
    hw::registers_up<WgmmaPlan<D>::kConsumerRegisters>();
    if (args.score.softcap > 0)
      wgmma_consume<T, D, true>(args, tile, head, shared);
    else
      wgmma_consume<T, D, false>(args, tile, head, shared);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn
