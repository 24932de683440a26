#pragma once
/// What the CUDA kernels between the q/k/v product and attention take. Device pointers; strides in elements. Formulas:
/// norm.h, rope.h, attention.h (pages).
#include "kernels/attention/attention_cuda_args.h"
#include "kernels/norm/norm_cuda_args.h"

namespace galvani::kernels {

/// cos and sin of a step's positions: table[row · pairs + i] = (s·cos a, s·sin a), a = position · inv_freq[i].
struct RopeTableArgs {
  const int* positions = nullptr;  ///< [rows]; below 0: no row, the entry is not written
  const float* inv_freq = nullptr;
  int rows = 0, pairs = 0;
  float attention_scale = 1;
  float* table = nullptr;  ///< [rows, pairs, 2]
};

/// From x = q, k, v side by side: bias, per-head norms, clip, and rope on q and k; q to `q`, k and v to their pages.
/// The order is exec/layers.h's: norms, clip, rope.
struct QkvArgs {
  const float* x = nullptr;  ///< q in columns 0 … heads · k_dim
  long long x_stride = 0;
  int k_column = 0, v_column = 0;  ///< where k and v begin; the same when v is k's projection
  const float* bias = nullptr;     ///< one a column of x, or null
  int rows = 0, heads = 0;
  bool append = true;  ///< false: q alone; the pages hold another layer's keys and values
  bool q_normed = false, k_normed = false, v_normed = false;
  NormWeights q_norm, k_norm, v_norm;
  float clip = 0;               ///< 0 = none
  const float* rope = nullptr;  ///< a RopeTableArgs table, or null
  int rope_pairs = 0;
  bool interleaved = false;
  void* q = nullptr;  ///< [rows, heads · k_dim] of `type`
  long long q_stride = 0;
  PagedKv kv;  ///< written
  StoreType type = StoreType::kF32;
  BlockTables tables;
  const int* positions = nullptr;  ///< below 0: no row, its q becomes 0 and nothing is appended
  const int* sequence = nullptr;
};

}  // namespace galvani::kernels
