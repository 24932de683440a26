#pragma once
/// Causal grouped-query attention over paged keys and values.
///
/// For query row r of head j at position p, kv head g = j / (heads / kv_heads), over the visible positions t ≤ p (and
/// t > p − window when window > 0):
///   s_t = scale · q_r,j · K_t,g        s_t ← softcap · tanh(s_t / softcap) when softcap > 0
///   out_r,j = Σ_t e^{s_t} V_t,g / (Σ_t e^{s_t} + e^{sinks_j} when there are sinks)
/// Sources: Vaswani et al. 2017; Ainslie et al. 2023 (GQA); Dao 2023 and Milakov and Gimelshein 2018 (running maximum
/// and sum); sinks as in gpt-oss, not scaled and not masked.
///
/// Arithmetic of the CPU arms: everything f32, keys in ascending order, tiles of one page, partial results of 256
/// positions merged in order; both borders are absolute positions. So a row's result depends neither on the chunk it
/// came in, nor on the batch, nor on the number of threads, bit for bit; kTiles and kSplit agree bit for bit too. A NaN
/// in a visible key, value or query reaches the rows that see it, and no other.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace galvani::kernels {

constexpr int kPageTokens = 64;

/// One layer's pages. Page b of K starts at k + b · k_page_stride and holds [kv_heads, kPageTokens, k_dim] elements of
/// `dtype` without gaps; V likewise with v_dim. Addresses are aligned to the element. Latent attention stores V once:
/// with v_in_k it is the first v_dim columns of K, and v and v_page_stride are not used.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  int64_t k_page_stride = 0, v_page_stride = 0;  ///< bytes between pages
  int kv_heads = 0, k_dim = 0, v_dim = 0;
  DType dtype = DType::kF32;  ///< kF32, kF16 or kBF16; values are rounded to nearest even when appended
  bool v_in_k = false;        ///< v_dim ≤ k_dim
};

/// `count` consecutive tokens of one sequence: rows row … row+count−1 of q, k, v and out, at positions first_position
/// ….
struct AttentionChunk {
  int64_t row = 0;
  int32_t count = 0;
  int32_t first_position = 0;
  /// Page ids of the sequence, index = position / kPageTokens. Pages wholly below every row's window may be −1.
  const int32_t* blocks = nullptr;
};

struct AttentionParams {
  int heads = 0;  ///< query heads, a multiple of kv_heads
  float scale = 1.0f;
  int window = 0;                ///< keys a row sees, itself included; 0 = all
  float softcap = 0.0f;          ///< 0 = none
  const float* sinks = nullptr;  ///< [heads] or null
};

/// kRef is f64 and slow. kTiles gives each (rows, kv head) to one thread, kSplit also cuts the keys; kAuto chooses.
enum class AttentionArm { kAuto, kRef, kTiles, kSplit };

/// Writes k [rows, kv_heads · k_dim] and v [rows, kv_heads · v_dim] (strides in elements) of all chunks to their pages;
/// with v_in_k k alone. No two chunks may write the same position of a page.
void kv_append(const KvLayer& layer, std::span<const AttentionChunk> chunks, const float* k, int64_t k_stride,
               const float* v, int64_t v_stride);

/// out [rows, heads · v_dim] of q [rows, heads · k_dim]; the chunks' own keys and values have been appended already.
/// Pages that no row sees are not read; within a page, tokens that a row does not see do not influence it.
void attention(const KvLayer& layer, const AttentionParams& params, std::span<const AttentionChunk> chunks,
               const float* q, int64_t q_stride, float* out, int64_t out_stride,
               AttentionArm arm = AttentionArm::kAuto);

/// The formula in f64 into out [rows, heads · v_dim] (stride in elements), for tests; also what kRef rounds.
void attention_ref(const KvLayer& layer, const AttentionParams& params, std::span<const AttentionChunk> chunks,
                   const float* q, int64_t q_stride, double* out, int64_t out_stride);

}  // namespace galvani::kernels
