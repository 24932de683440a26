#pragma once
/// Attention of many consecutive rows of a sequence (prefill): flash attention with mma.sync. A block holds the queries
/// of one head at kWarps · 16 · kTiles consecutive positions and walks the pages they see; a page is one K and one V
/// tile of 64 tokens in shared memory. NVRTC compiles it alone.
///
/// Source: Dao 2023 (FlashAttention-2): running maximum and sum per row, keys of the next page on their way during
/// softmax and P·V, values during Q·K. Rows are 16-byte chunks, chunk c of row r stored at c ^ (r % 8), so that
/// ldmatrix meets no bank twice. A row's arithmetic depends on its own queries and on the pages it sees only: pages
/// that are masked for it whole multiply its sums by 1 and add 0.
#include "kernels/attention/attention_device.cuh"
#include "kernels/common/copy.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {

template <int D, int kWarps, int kTiles>
constexpr int prefill_shared_bytes() {
  return (kWarps * 16 * kTiles + 2 * kPage) * D * 2;
}

/// 16 bytes from global to shared memory, or zeros; arrives with copies_wait().
__device__ __forceinline__ void copy16(void* to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  cp_async_16_zfill(shared_address(to), from, valid ? 16 : 0);
#else
  *static_cast<uint4*>(to) = valid ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}
__device__ __forceinline__ void copies_wait() {
#if __CUDA_ARCH__ >= 800
  cp_async_commit();
  cp_async_wait<0>();
#endif
}

/// Byte offset of chunk c (16 bytes) of row r in a tile of D 16-bit elements a row.
template <int D>
__device__ __forceinline__ int tile_offset(int r, int c) {
  return r * (D * 2) + ((c ^ (r & 7)) << 4);
}

/// Rows [0, rows) of a [kRows][D] tile, `stride` elements apart; the others become zeros.
template <typename T, int D, int kRows, int kThreads>
__device__ __forceinline__ void load_tile(char* tile, const T* from, long long stride, int rows) {
  constexpr int kChunks = D / 8;
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int index = i * kThreads + threadIdx.x, r = index / kChunks, c = index % kChunks;
    copy16(tile + tile_offset<D>(r, c), from + (r < rows ? r * stride + c * 8 : 0), r < rows);
  }
}

template <typename T, int D, int kTiles>
struct PrefillState {
  float o[kTiles][D / 8][4];
  float peak[kTiles][2], sum[kTiles][2];
};

/// s = Q · Kᵀ of the warp's rows and a page.
template <typename T, int D, int kTiles>
__device__ __forceinline__ void page_scores(float (&s)[kTiles][8][4], unsigned q_tile, unsigned k_tile, int warp_row,
                                            int lane) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int n = 0; n < 8; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
  const int matrix = lane >> 3, in_matrix = lane & 7;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    unsigned a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
      ldmatrix_x4(a[m],
                  q_tile + tile_offset<D>(warp_row + m * 16 + (matrix & 1) * 8 + in_matrix, 2 * k + (matrix >> 1)));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      unsigned b[4];
      ldmatrix_x4(b, k_tile + tile_offset<D>(n * 16 + (matrix >> 1) * 8 + in_matrix, 2 * k + (matrix & 1)));
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma_m16n8k16<T>(s[m][2 * n], a[m], {b[0], b[1]});
        mma_m16n8k16<T>(s[m][2 * n + 1], a[m], {b[2], b[3]});
      }
    }
  }
}

/// o += P · V with P = s packed to T.
template <typename T, int D, int kTiles>
__device__ __forceinline__ void add_page(PrefillState<T, D, kTiles>& state, const float (&s)[kTiles][8][4],
                                         unsigned v_tile, int lane) {
  const int matrix = lane >> 3, in_matrix = lane & 7;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    unsigned a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      a[m][0] = pack2<T>(s[m][2 * k][0], s[m][2 * k][1]);
      a[m][1] = pack2<T>(s[m][2 * k][2], s[m][2 * k][3]);
      a[m][2] = pack2<T>(s[m][2 * k + 1][0], s[m][2 * k + 1][1]);
      a[m][3] = pack2<T>(s[m][2 * k + 1][2], s[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      unsigned b[4];
      ldmatrix_x4_trans(b, v_tile + tile_offset<D>(k * 16 + (matrix & 1) * 8 + in_matrix, 2 * n + (matrix >> 1)));
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma_m16n8k16<T>(state.o[m][2 * n], a[m], {b[0], b[1]});
        mma_m16n8k16<T>(state.o[m][2 * n + 1], a[m], {b[2], b[3]});
      }
    }
  }
}

/// Scores to weights; `factor`: what the sums so far are to be multiplied with, which is done for all but the values
/// (rescale()). `key` is the first of 8 · kKeys8 positions, `position` the warp's first row's; `masked` when some
/// row of the warp may not see all of them, `capped` when args.softcap is set: constants where the caller has them.
template <typename T, int D, int kTiles, int kKeys8>
__device__ __forceinline__ void page_softmax(PrefillState<T, D, kTiles>& state, float (&s)[kTiles][kKeys8][4],
                                             float (&factor)[kTiles][2], const ScoreArgs& args, int key, int position,
                                             bool masked, bool capped, int lane) {
  const int g = lane >> 2, t = lane & 3;
  const float to_log2 = capped ? 1.0f : args.scale * kLog2E;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (capped) {
#pragma unroll
        for (int n = 0; n < kKeys8; ++n) {
          s[m][n][2 * half] = score_log2(s[m][n][2 * half], args);
          s[m][n][2 * half + 1] = score_log2(s[m][n][2 * half + 1], args);
        }
      }
      if (masked) {
        const int row = position + m * 16 + half * 8 + g;
        const int oldest = args.window > 0 ? row - args.window : -1;  // the youngest key it does not see
#pragma unroll
        for (int n = 0; n < kKeys8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int at = key + 8 * n + 2 * t + i;
            if (at > row || at <= oldest) s[m][n][2 * half + i] = minus_infinity();
          }
        }
      }
      float peak = minus_infinity();
#pragma unroll
      for (int n = 0; n < kKeys8; ++n) peak = fmaxf(peak, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
      // In units of log 2; scale is positive, so the largest score stays the largest.
      peak = fmaxf(state.peak[m][half], peak * to_log2);
      const float base = peak == minus_infinity() ? 0.0f : peak;  // no key seen yet: 2^−∞, not 2^(−∞ + ∞)
      factor[m][half] = exp2_fast(state.peak[m][half] - base);
      state.peak[m][half] = peak;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kKeys8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          s[m][n][2 * half + i] = exp2_fast(fmaf(s[m][n][2 * half + i], to_log2, -base));
          sum += s[m][n][2 * half + i];
        }
      }
      state.sum[m][half] = state.sum[m][half] * factor[m][half] + sum;
    }
  }
}

template <typename T, int D, int kTiles>
__device__ __forceinline__ void rescale(PrefillState<T, D, kTiles>& state, const float (&factor)[kTiles][2]) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    // Peaks soon stop moving; multiplying by 1 changes nothing.
    if (!__any_sync(0xffffffffu, factor[m][0] != 1.0f || factor[m][1] != 1.0f)) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      state.o[m][n][0] *= factor[m][0];
      state.o[m][n][1] *= factor[m][0];
      state.o[m][n][2] *= factor[m][1];
      state.o[m][n][3] *= factor[m][1];
    }
  }
}

template <typename T, int D, int kTiles>
__device__ __forceinline__ void store_rows(PrefillState<T, D, kTiles>& state, const AttentionTilesArgs& args,
                                           const AttentionTileRows& tile, int head, int warp_row, int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state.sum[m][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      float factor = 1;
      if (args.sinks != nullptr) {
        const float sink = args.sinks[head] * kLog2E, peak = fmaxf(state.peak[m][half], sink);
        factor = exp2_fast(state.peak[m][half] - peak);
        sum = sum * factor + exp2_fast(sink - peak);
      }
      const float inverse = factor / sum;
      const int r = warp_row + m * 16 + half * 8 + g;
      if (r >= tile.count) continue;
      const long long at = (tile.row + r) * args.out_stride + static_cast<long long>(head) * D + 2 * t;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        store_pair_as(args.out, at + 8 * n, state.o[m][n][2 * half] * inverse, state.o[m][n][2 * half + 1] * inverse,
                      args.out_type);
    }
  }
}

/// Grid: (tiles, heads); block: 32 · kWarps; tiles of at most kWarps · 16 · kTiles rows.
template <typename T, int D, int kWarps, int kTiles>
__device__ __forceinline__ void attention_prefill(const AttentionTilesArgs& args) {
  GALVANI_DYNAMIC_SHARED(char, prefill_shared, 128);
  constexpr int kRows = kWarps * 16 * kTiles, kThreads = kWarps * 32;
  char* q_tile = prefill_shared;
  char* k_tile = q_tile + kRows * D * 2;
  char* v_tile = k_tile + kPage * D * 2;
  const int lane = threadIdx.x & 31, warp_row = (threadIdx.x >> 5) * 16 * kTiles, head = blockIdx.y;
  const AttentionTileRows tile = args.tiles[blockIdx.x];
  const int kv_head = head / (args.heads / args.kv.kv_heads);
  const int* blocks = args.tables.blocks + static_cast<long long>(tile.sequence) * args.tables.max_blocks;
  const int window = args.score.window;
  const int visible = window > 0 ? max(0, tile.position - window + 1) : 0;
  const int last_page = (tile.position + tile.count - 1) / kPage;
  const T* k_base = reinterpret_cast<const T*>(args.kv.k) + static_cast<long long>(kv_head) * kPage * D;
  const T* v_base = reinterpret_cast<const T*>(args.kv.v) + static_cast<long long>(kv_head) * kPage * D;
  const long long k_stride = args.kv.k_page_stride / 2, v_stride = args.kv.v_page_stride / 2;

  PrefillState<T, D, kTiles> state;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < D / 8; ++n) state.o[m][n][0] = state.o[m][n][1] = state.o[m][n][2] = state.o[m][n][3] = 0;
    state.peak[m][0] = state.peak[m][1] = minus_infinity();
    state.sum[m][0] = state.sum[m][1] = 0;
  }
  const T* q = static_cast<const T*>(args.q) + tile.row * args.q_stride + static_cast<long long>(head) * D;
  load_tile<T, D, kRows, kThreads>(q_tile, q, args.q_stride, tile.count);
  load_tile<T, D, kPage, kThreads>(k_tile, k_base + blocks[visible / kPage] * k_stride, D, kPage);
  const unsigned q_shared = shared_address(q_tile), k_shared = shared_address(k_tile),
                 v_shared = shared_address(v_tile);
  const int position = tile.position + warp_row;  // of the warp's first row
  for (int page = visible / kPage; page <= last_page; ++page) {
    const int key = page * kPage;
    copies_wait();
    __syncthreads();  // K is there, and nobody reads the last V any more
    load_tile<T, D, kPage, kThreads>(v_tile, v_base + blocks[page] * v_stride, D, tile.length - key);
    float s[kTiles][8][4];
    page_scores<T, D, kTiles>(s, q_shared, k_shared, warp_row, lane);
    copies_wait();
    __syncthreads();
    if (page < last_page) load_tile<T, D, kPage, kThreads>(k_tile, k_base + blocks[page + 1] * k_stride, D, kPage);
    const bool masked = key + kPage - 1 > position || (window > 0 && key <= position + 16 * kTiles - 1 - window);
    float factor[kTiles][2];
    page_softmax(state, s, factor, args.score, key, position, masked, args.score.softcap > 0, lane);
    rescale(state, factor);
    add_page<T, D, kTiles>(state, s, v_shared, lane);
  }
  store_rows(state, args, tile, head, warp_row, lane);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn
