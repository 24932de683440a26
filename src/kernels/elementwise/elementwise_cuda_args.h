#pragma once
/// What the CUDA element-wise kernels take; formulas are elementwise.h's. Device pointers; strides in elements.
#include "kernels/common/gate.h"
#include "kernels/common/store_type.h"

namespace galvani::kernels {

/// out[r, i] = gate'(gate[r, i] + gate_bias[i], up[r, i] + up_bias[i]). `out` may be `up` (same stride and type).
struct GatedArgs {
  const float* gate = nullptr;  ///< [rows, dim]
  const void* up = nullptr;     ///< [rows, dim] of up_type
  StoreType up_type = StoreType::kF32;
  long long gate_stride = 0, up_stride = 0;
  const float* gate_bias = nullptr;  ///< [dim] or null, and so up_bias
  const float* up_bias = nullptr;
  int rows = 0, dim = 0;
  Gate kind = Gate::kSilu;
  float alpha = 0, limit = 0;  ///< kSwigluClamped
  void* out = nullptr;         ///< [rows, dim]
  long long out_stride = 0;
  StoreType out_type = StoreType::kF32;
};

/// x[r, i] = cap((x[r, i] + bias[i]) · scale) with cap·tanh(x / cap) when cap > 0; the logits' last step.
struct FinishArgs {
  float* x = nullptr;  ///< [rows, dim]
  long long stride = 0;
  int rows = 0, dim = 0;
  const float* bias = nullptr;  ///< [dim] or null
  float scale = 1;
  float cap = 0;
};

/// Adds to counters[0] the values of x that are NaN or infinite, to counters[1] those beyond ±largest.
struct CountArgs {
  const float* x = nullptr;  ///< [rows, dim]
  long long stride = 0;
  int rows = 0, dim = 0;
  float largest = 0;
  unsigned long long* counters = nullptr;
};

/// x[r] = table[token of r] · scale. The table is dense (bits 0) or affine codes in MLX's layout.
struct EmbedArgs {
  const int* tokens = nullptr;  ///< [rows], inside the table (the host has looked); below 0: the row becomes 0
  int rows = 0, dim = 0;
  const void* table = nullptr;       ///< dense: [vocab, dim]; affine: rows of dim · bits / 32 words
  StoreType type = StoreType::kF32;  ///< dense elements, or scales and biases
  int bits = 0, group = 0;
  const void* scales = nullptr;  ///< [vocab, dim / group]
  const void* biases = nullptr;
  float scale = 1;
  float* out = nullptr;  ///< [rows, dim], contiguous
};

}  // namespace galvani::kernels
