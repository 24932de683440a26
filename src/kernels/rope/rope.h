#pragma once
/// Rotary position embedding on rows of heads, f32, in place.
///
/// Pair i < rotary_dim/2 is turned by the angle a = position · inv_freq[i]; c = s·cos a, n = s·sin a, s =
/// attention_scale (yarn's factor, else 1):
///   half-split  (a, b) = (x[i], x[i + rotary_dim/2])   Hugging Face safetensors of every family but DeepSeek
///   interleaved (a, b) = (x[2i], x[2i + 1])            DeepSeek; un-permuted llama q/k of a GGUF file
///   a' = a·c − b·n,  b' = b·c + a·n.   Dims from rotary_dim on are left alone.
/// Source: Su et al. 2021, eq. 34, with the pairings above. The angle is rounded to f32 as the references do, and
/// computed in f64 above position 2^17, where f32 would be off by more than 1e-3 rad.
#include <cstdint>
#include <vector>

namespace galvani::kernels {

/// cos and sin of a step's positions, built once and shared by all layers with the same frequencies.
struct RopeTable {
  int64_t rows = 0;
  int64_t rotary_dim = 0;           ///< even; twice the number of pairs
  std::vector<float> cosine, sine;  ///< [rows, rotary_dim/2], attention_scale multiplied in
};

/// positions: [rows], ≥ 0. inv_freq: [rotary_dim/2]. Reuses the table's memory.
void rope_build(RopeTable& table, const int32_t* positions, int64_t rows, const float* inv_freq, int64_t rotary_dim,
                float attention_scale);

enum class RopePairing { kHalfSplit, kInterleaved };

/// Turns x [table.rows, heads, head_dim] (rows row_stride elements apart, heads head_dim apart), head_dim ≥ rotary_dim.
/// Row r uses the table's row first_row + r; rows must not leave the table.
void rope_apply(const RopeTable& table, RopePairing pairing, float* x, int64_t first_row, int64_t rows, int64_t heads,
                int64_t head_dim, int64_t row_stride);

/// rope_build and rope_apply in one call, for one-off uses.
void rope_half_split(float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
                     const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale);
void rope_interleaved(float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
                      const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale);

/// The same in f64 (the angle included) into y [rows, heads, head_dim] contiguous. For tests.
void rope_ref(RopePairing pairing, const float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
              const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale, double* y);

}  // namespace galvani::kernels
