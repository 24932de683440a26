#pragma once
/// Prefill on 9.0a: flash attention with wgmma. Two warpgroups hold 64 queries each; a third one copies pages into a
/// ring of shared memory. The scores of a page and the weighted values of the page before are one batch of products;
/// while one warpgroup weighs its scores, the tensor cores have the other's batch. NVRTC compiles it alone.
///
/// Same formula, roundings and masks as attention_prefill.cuh, whose softmax and store it shares; sums inside a product
/// are taken in another order. Source of the schedule: Shah et al. 2024 (FlashAttention-3).
#include "kernels/attention/attention_prefill.cuh"
#include "kernels/attention/attention_wgmma_mma.cuh"
#include "kernels/common/copy.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {

namespace hw = ::galvani::kernels::GALVANI_CUDA_NS;
namespace tc = ::galvani::kernels::GALVANI_CUDA_NS::attention_wgmma;

constexpr int kWgmmaRows = 128, kWgmmaThreads = 384;

template <int D>
constexpr int wgmma_stages() {
  return D <= 128 ? 3 : 2;
}
/// Queries, a ring of pages of K and V, 1 KB to align them, barriers.
template <int D>
constexpr int wgmma_shared_bytes() {
  return 1024 + kWgmmaRows * D * 2 + wgmma_stages<D>() * 2 * kPage * D * 2 + 256;
}

/// Byte offset of chunk c (16 bytes) of row r in a tile of `rows` rows: blocks of 64 columns, 128-byte rows, swizzled.
__device__ __forceinline__ int wgmma_offset(int rows, int r, int c) {
  return (c >> 3) * rows * 128 + r * 128 + (((c & 7) ^ (r & 7)) << 4);
}

/// Copies [rows][D] into a tile of kTileRows rows; the rest becomes zeros. 128 threads.
template <typename T, int D, int kTileRows>
__device__ __forceinline__ void wgmma_load(unsigned tile, const T* from, long long stride, int rows, int thread) {
  constexpr int kChunks = D / 8;
#pragma unroll 4
  for (int i = 0; i < kTileRows * kChunks / 128; ++i) {
    const int index = i * 128 + thread, r = index / kChunks, c = index % kChunks;
    hw::cp_async_16_zfill(tile + wgmma_offset(kTileRows, r, c), from + (r < rows ? r * stride + c * 8 : 0),
                          r < rows ? 16 : 0);
  }
}

struct WgmmaBarriers {
  unsigned k_full, v_full, k_empty, v_empty, queries;  // shared addresses; a ring's are 8 bytes apart
};

/// The copying warpgroup: queries, then page after page; copies of the next pages are under way while one is announced.
template <typename T, int D>
__device__ __forceinline__ void wgmma_produce(const AttentionTilesArgs& args, const AttentionTileRows& tile, int head,
                                              unsigned q_tile, unsigned ring, const WgmmaBarriers& barriers) {
  constexpr int kStages = wgmma_stages<D>(), kTile = kPage * D * 2;
  const int thread = threadIdx.x & 127, kv_head = head / (args.heads / args.kv.kv_heads);
  const int* blocks = args.tables.blocks + static_cast<long long>(tile.sequence) * args.tables.max_blocks;
  const int window = args.score.window, visible = window > 0 ? max(0, tile.position - window + 1) : 0;
  const int first = visible / kPage, last = (tile.position + tile.count - 1) / kPage;
  const T* k_base = reinterpret_cast<const T*>(args.kv.k) + static_cast<long long>(kv_head) * kPage * D;
  const T* v_base = reinterpret_cast<const T*>(args.kv.v) + static_cast<long long>(kv_head) * kPage * D;
  const T* q = static_cast<const T*>(args.q) + tile.row * args.q_stride + static_cast<long long>(head) * D;
  wgmma_load<T, D, 64>(q_tile, q, args.q_stride, min(64, tile.count), thread);
  wgmma_load<T, D, 64>(q_tile + 64 * D * 2, q + 64 * args.q_stride, args.q_stride, max(0, tile.count - 64), thread);
  // Groups of copies in order: queries and K(0); V(0); K(1); V(1); …  Each is announced once the one after it is out.
  const int pages = last - first + 1;
  for (int item = 0; item <= 2 * pages; ++item) {
    const int page = item / 2, slot = page % kStages;
    if (item < 2 * pages) {
      const bool is_v = item & 1;
      if (page >= kStages)
        hw::barrier_wait((is_v ? barriers.v_empty : barriers.k_empty) + 8 * slot, (page / kStages - 1) & 1);
      const long long block = blocks[first + page];
      const unsigned to = ring + (2 * slot + is_v) * kTile;
      if (is_v)
        wgmma_load<T, D, kPage>(to, v_base + block * (args.kv.v_page_stride / 2), D,
                                tile.length - (first + page) * kPage, thread);
      else
        wgmma_load<T, D, kPage>(to, k_base + block * (args.kv.k_page_stride / 2), D, kPage, thread);
    }
    hw::cp_async_commit();
    if (item == 0) continue;
    hw::cp_async_wait<1>();
    hw::fence_async_shared();
    const int done = item - 1, done_slot = done / 2 % kStages;
    hw::barrier_arrive((done & 1 ? barriers.v_full : barriers.k_full) + 8 * done_slot);
  }
}

template <typename T, int D>
__device__ __forceinline__ void wgmma_scores(float (&s)[8][4], unsigned q_tile, unsigned k_tile) {
  hw::wgmma_fence();
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const unsigned at = (k >> 2) * 64 * 128 + (k & 3) * 32;
    tc::scores<T>(s, hw::wgmma_descriptor(q_tile + at), hw::wgmma_descriptor(k_tile + at), k > 0);
  }
  hw::wgmma_commit();
}

/// o += P · V. Values of up to 128 dims a product.
template <typename T, int D>
__device__ __forceinline__ void wgmma_add(float (&o)[D / 8][4], const unsigned (&p)[4][4], unsigned v_tile) {
  constexpr int kN = D < 128 ? D : 128;
  hw::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int n = 0; n < D / kN; ++n)
      tc::add_values<T, kN>(reinterpret_cast<float(&)[kN / 8][4]>(o[n * (kN / 8)]), p[k],
                            tc::descriptor_values(v_tile + n * (kN / 64) * kPage * 128 + k * 16 * 128, kPage * 128));
  }
  hw::wgmma_commit();
}

template <typename T, int D>
__device__ __forceinline__ void wgmma_consume(const AttentionTilesArgs& args, const AttentionTileRows& tile, int head,
                                              unsigned q_tile, unsigned ring, const WgmmaBarriers& barriers) {
  constexpr int kStages = wgmma_stages<D>(), kTile = kPage * D * 2;
  const int lane = threadIdx.x & 31, group = threadIdx.x / 128 - 1;
  const int warp_row = group * 64 + (threadIdx.x / 32 & 3) * 16;
  const int window = args.score.window, visible = window > 0 ? max(0, tile.position - window + 1) : 0;
  const int first = visible / kPage, last = (tile.position + tile.count - 1) / kPage, pages = last - first + 1;
  const int position = tile.position + warp_row;
  PrefillState<T, D, 1> state;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) state.o[0][n][0] = state.o[0][n][1] = state.o[0][n][2] = state.o[0][n][3] = 0;
  state.peak[0][0] = state.peak[0][1] = minus_infinity();
  state.sum[0][0] = state.sum[0][1] = 0;
  q_tile += group * 64 * D * 2;

  const auto weigh = [&](float(&s)[1][8][4], int page, unsigned(&p)[4][4]) {
    const int key = (first + page) * kPage;
    const bool masked = key + kPage - 1 > position || (window > 0 && key <= position + 15 - window);
    page_softmax(state, s, args.score, key, position, masked, lane);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      p[k][0] = pack2<T>(s[0][2 * k][0], s[0][2 * k][1]);
      p[k][1] = pack2<T>(s[0][2 * k][2], s[0][2 * k][3]);
      p[k][2] = pack2<T>(s[0][2 * k + 1][0], s[0][2 * k + 1][1]);
      p[k][3] = pack2<T>(s[0][2 * k + 1][2], s[0][2 * k + 1][3]);
    }
  };
  float s[1][8][4];
  unsigned p[4][4];
  hw::barrier_wait(barriers.k_full, 0);
  wgmma_scores<T, D>(s[0], q_tile, ring);
  hw::wgmma_wait<0>();
  hw::barrier_arrive(barriers.k_empty);
  weigh(s, 0, p);
  for (int page = 1; page < pages; ++page) {
    const int slot = page % kStages, before = (page - 1) % kStages;
    hw::barrier_wait(barriers.k_full + 8 * slot, page / kStages & 1);
    wgmma_scores<T, D>(s[0], q_tile, ring + 2 * slot * kTile);
    hw::barrier_wait(barriers.v_full + 8 * before, (page - 1) / kStages & 1);
    wgmma_add<T, D>(state.o[0], p, ring + (2 * before + 1) * kTile);
    hw::wgmma_wait<0>();
    hw::barrier_arrive(barriers.k_empty + 8 * slot);
    hw::barrier_arrive(barriers.v_empty + 8 * before);
    weigh(s, page, p);
  }
  const int before = (pages - 1) % kStages;
  hw::barrier_wait(barriers.v_full + 8 * before, (pages - 1) / kStages & 1);
  wgmma_add<T, D>(state.o[0], p, ring + (2 * before + 1) * kTile);
  hw::wgmma_wait<0>();
  store_rows(state, args, tile, head, warp_row, lane);
}

/// Grid: (tiles, heads); block: kWgmmaThreads; tiles of at most kWgmmaRows rows.
template <typename T, int D>
__device__ __forceinline__ void attention_wgmma(const AttentionTilesArgs& args) {
  GALVANI_DYNAMIC_SHARED(char, wgmma_shared_memory, 1024);
  constexpr int kStages = wgmma_stages<D>(), kTile = kPage * D * 2;
  const unsigned base = (hw::shared_address(wgmma_shared_memory) + 1023) & ~1023u;
  const unsigned q_tile = base, ring = q_tile + kWgmmaRows * D * 2, barrier = ring + kStages * 2 * kTile;
  const WgmmaBarriers barriers{barrier, barrier + 32, barrier + 64, barrier + 96, barrier + 128};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hw::barrier_init(barriers.k_full + 8 * i, 128);
      hw::barrier_init(barriers.v_full + 8 * i, 128);
      hw::barrier_init(barriers.k_empty + 8 * i, 256);
      hw::barrier_init(barriers.v_empty + 8 * i, 256);
    }
    hw::fence_barrier_init();
  }
  __syncthreads();
  const AttentionTileRows tile = args.tiles[blockIdx.x];
  const int head = blockIdx.y;
  if (threadIdx.x < 128) {
    hw::registers_down<40>();
    wgmma_produce<T, D>(args, tile, head, q_tile, ring, barriers);
  } else {
    hw::registers_up<232>();
    wgmma_consume<T, D>(args, tile, head, q_tile, ring, barriers);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn
