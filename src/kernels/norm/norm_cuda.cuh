#pragma once
/// RMS norms of f32 rows, with the residual add before them. One block a row, read once: in registers, or in shared
/// memory where it is too long. NVRTC compiles it alone.
#include "kernels/common/four.cuh"
#include "kernels/common/norm_weight.cuh"
#include "kernels/norm/norm_cuda_args.h"

namespace galvani::kernels {

/// w'[i … i + 3] of norm.h, before wait_for_previous().
__device__ __forceinline__ Four norm_weight_four(const NormWeights& n, int i, int dim, bool fours) {
  if (n.w == nullptr) return four_times(1);
  Four w = load_four<true>(n.w, i, dim, fours);
#pragma unroll
  for (int j = 0; j < 4; ++j) w.v[j] += n.plus_one ? 1.0f : 0.0f;
  return w;
}

/// 1 / sqrt(mean of squares + eps) over the block; `sums` as block_sum_once asks.
__device__ __forceinline__ float norm_inverse(float squares, int dim, float eps, float* sums) {
  return 1.0f / sqrtf(block_sum_once(squares, sums) / static_cast<float>(dim) + eps);
}

/// Thread t has elements 4t … 4t + 3 and those kFours times 4 · blockDim apart. All that the row needs is asked for
/// before anything is stored; what no kernel writes, before the wait. Sixteen elements leave registers for x and the
/// addend alone: the rest is loaded where it is used.
template <int kFours>
__device__ __forceinline__ void norm_in_registers(const NormArgs& args) {
  __shared__ float sums[2][32];
  constexpr bool kEarly = kFours <= 2;
  const int dim = args.dim;
  const auto at = [](int k) { return 4 * static_cast<int>(threadIdx.x + k * blockDim.x); };
  const bool add = args.add != nullptr, w_fours = by_fours(args.norm.w, 0), post_fours = by_fours(args.post_norm.w, 0),
             bias_fours = by_fours(args.bias, 0);
  const auto weight_at = [&](int k) { return norm_weight_four(args.norm, at(k), dim, w_fours); };
  const auto post_at = [&](int k) { return norm_weight_four(args.post_norm, at(k), dim, post_fours); };
  const auto bias_at = [&](int k) { return load_four<true>(args.bias, at(k), dim, bias_fours); };
  Four weight[kFours], post[kFours], bias[kFours], x[kFours], z[kFours];
  if constexpr (kEarly) {
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
      if (args.normalise) weight[k] = weight_at(k);
      if (args.post) post[k] = post_at(k);
      if (args.bias != nullptr) bias[k] = bias_at(k);
    }
  }
  const long long r = blockIdx.x, from = args.gather != nullptr ? load_early(args.gather + r) : r;
  wait_for_previous();

  float* const row = args.x + from * args.x_stride;
  const bool x_fours = by_fours(args.x, args.x_stride), add_fours = by_fours(args.add, args.add_stride);
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    x[k] = load_four(row, at(k), dim, x_fours);
    if (add) z[k] = load_four(args.add + r * args.add_stride, at(k), dim, add_fours);
  }
  if (add) {
    if (args.bias != nullptr) {
#pragma unroll
      for (int k = 0; k < kFours; ++k) add_four(z[k], kEarly ? bias[k] : bias_at(k));
    }
    float inverse = 1;
    if (args.post) inverse = norm_inverse(squares_of(z), dim, args.post_norm.eps, sums[0]);
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
      if (args.post) weigh_four(z[k], inverse, kEarly ? post[k] : post_at(k));
      add_four(x[k], z[k]);
      store_four_as(row, 0, at(k), dim, x[k], StoreType::kF32, x_fours);
    }
  }
  if (args.out == nullptr) return;
  float inverse = 1;
  if (args.normalise) inverse = norm_inverse(squares_of(x), dim, args.norm.eps, sums[1]);
  const bool out_fours = by_fours(args.out, args.out_stride, args.out_type);
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    if (args.normalise) weigh_four(x[k], inverse, kEarly ? weight[k] : weight_at(k));
    store_four_as(args.out, r * args.out_stride, at(k), dim, x[k], args.out_type, out_fours);
  }
}

/// Dynamic shared memory: dim floats.
__device__ __forceinline__ void norm_in_shared(const NormArgs& args) {
  GALVANI_DYNAMIC_SHARED(float, norm_row, 4);
  __shared__ float reduce[33];
  wait_for_previous();
  const long long r = blockIdx.x, from = args.gather != nullptr ? args.gather[r] : r;
  float* x = args.x + from * args.x_stride;
  const float dim = static_cast<float>(args.dim);
  if (args.add != nullptr) {
    const float* add = args.add + r * args.add_stride;
    float squares = 0;
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) {
      const float z = add[i] + (args.bias != nullptr ? args.bias[i] : 0.0f);
      norm_row[i] = z;
      squares += z * z;
    }
    float inverse = 1;
    if (args.post) inverse = 1.0f / sqrtf(block_sum(squares, reduce) / dim + args.post_norm.eps);
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) {  // its own elements only: no barrier
      const float z = args.post ? norm_row[i] * inverse * norm_weight(args.post_norm, i) : norm_row[i];
      const float sum = x[i] + z;
      x[i] = sum;
      norm_row[i] = sum;
    }
  } else {
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) norm_row[i] = x[i];
  }
  if (args.out == nullptr) return;
  float inverse = 1;
  if (args.normalise) {
    float squares = 0;
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) squares += norm_row[i] * norm_row[i];
    inverse = 1.0f / sqrtf(block_sum(squares, reduce) / dim + args.norm.eps);
  }
  for (int i = threadIdx.x; i < args.dim; i += blockDim.x) {
    const float y = args.normalise ? norm_row[i] * inverse * norm_weight(args.norm, i) : norm_row[i];
    store_as(args.out, r * args.out_stride + i, y, args.out_type);
  }
}

/// Many rows of at most kNormEight, without `add` and gather, all by fours: each block takes rows in turn and asks for
/// the next before it sums one. Block: as for rms_norm_rows, so that a row has the same bits here and there.
__device__ __forceinline__ void rms_norm_many(const NormArgs& args) {
  __shared__ float sums[2][32];
  start_dependent();
  const int dim = args.dim;
  const auto at = [](int k) { return 4 * static_cast<int>(threadIdx.x + k * blockDim.x); };
  const auto load = [&](Four(&x)[2], int r) {
#pragma unroll
    for (int k = 0; k < 2; ++k) x[k] = at(k) < dim ? vector_four(args.x + r * args.x_stride + at(k)) : four_times(0);
  };
  Four next[2];
  int turn = 0, r = static_cast<int>(blockIdx.x);
  load(next, r);
  while (r < args.rows) {
    Four x[2] = {next[0], next[1]};
    const int row = r;
    r += static_cast<int>(gridDim.x);
    if (r < args.rows) load(next, r);
    const float inverse = norm_inverse(squares_of(x), dim, args.norm.eps, sums[turn]);
    turn ^= 1;  // who is still adding the last row's sums up has passed that row's barrier, not this one's
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (at(k) >= dim) continue;
      weigh_four(x[k], inverse, norm_weight_four(args.norm, at(k), dim, true));
      store_vector_four(args.out, row * args.out_stride + at(k), x[k], args.out_type);
    }
  }
}

/// Grid: rows; block: a multiple of 32 that has a thread for each eight (kNormEight) or sixteen elements, or 1024
/// (results depend on it, so it follows from dim alone). Dynamic shared memory: dim floats beyond kNormSixteen.
__device__ __forceinline__ void rms_norm_rows(const NormArgs& args) {
  release_next();
  if (args.dim <= kNormEight)
    norm_in_registers<2>(args);
  else if (args.dim <= kNormSixteen)
    norm_in_registers<4>(args);
  else
    norm_in_shared(args);
}

}  // namespace galvani::kernels
