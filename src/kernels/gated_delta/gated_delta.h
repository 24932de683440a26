#pragma once
/// The gated delta net: causal convolution, gates, delta-rule recurrence, gated norm; all of a layer between its two
/// products. Sources: Yang, Kautz, Hatamizadeh 2024 (Gated Delta Networks, arXiv 2412.06464); where epsilons, gates and
/// activations stand is Qwen3-Next's (models.md 3.5). One step, in f32:
///
///   u[c]  = silu( Σ_j conv[j, c] · m[t − kernel + 1 + j, c] )                     over the channels q | k | v
///   q, k  = u_q / √(Σ u_q² + 1e-6) · k_dim^-½,   u_k / √(Σ u_k² + 1e-6)            per key head
///   β     = sigmoid(b),   g = −exp(a_log) · softplus(a + dt_bias)                   per value head; softplus(x) = x
///   above 20 S     ← e^g · S;   d = β · (v − kᵀ S);   S ← S + k dᵀ;   o = qᵀ S              S is [k_dim, v_dim] a
///   value head y     = ( norm ⊙ o / √(mean o² + eps) ) ⊙ act(z)                               act is silu or sigmoid
///
/// What a sequence carries from step to step: the last kernel − 1 rows of m (before the convolution) and S. Both start
/// as zeros.
///
/// Arms. `recurrent` does a token at a time: a sequence's bits do not depend on how its tokens were cut into calls, nor
/// on its neighbours. `chunk16/32/64` handle so many tokens at once (the form with a triangular solve, models.md 3.5);
/// chunk borders stand at absolute positions that are multiples of the chunk, so a prompt cut there gives the same bits
/// as whole, and cut elsewhere the same within rounding (2e-5 of the output's length; the tests hold it). `ref` is f64.
/// Sequences are independent of each other in every arm, bit for bit. NaN stays within its sequence.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace galvani::kernels {

struct GatedDeltaShape {
  int key_heads = 0, value_heads = 0;  ///< value_heads a multiple of key_heads
  int k_dim = 0, v_dim = 0;
  int kernel = 4;  ///< taps of the convolution, 2 to kMaxConvTaps
  /// Which key head a value head h reads: h / (value_heads / key_heads), or h mod key_heads (GGUF files of qwen35).
  bool tiled_heads = false;
  int group() const { return value_heads / key_heads; }
  int key_head(int value_head) const { return tiled_heads ? value_head % key_heads : value_head / group(); }
  int value_head(int key_head, int j) const { return tiled_heads ? j * key_heads + key_head : key_head * group() + j; }
  int64_t keys() const { return int64_t{key_heads} * k_dim; }
  int64_t values() const { return int64_t{value_heads} * v_dim; }
  int64_t channels() const { return 2 * keys() + values(); }  ///< q | k | v
  /// Columns of the product that the op reads: q | k | v | z | b | a.
  int64_t columns() const { return channels() + values() + 2 * int64_t{value_heads}; }
  int64_t conv_elements() const { return int64_t{kernel - 1} * channels(); }
  int64_t state_elements() const { return values() * k_dim; }
};
constexpr int kMaxConvTaps = 16;

struct GatedDeltaWeights {
  const float* conv = nullptr;     ///< [kernel, channels], oldest tap first
  const float* a_log = nullptr;    ///< [value_heads]
  const float* dt_bias = nullptr;  ///< [value_heads]
  const float* norm = nullptr;     ///< [v_dim], shared by all heads
  float eps = 1e-6f;
  bool sigmoid_gate = false;  ///< z's activation: silu, or sigmoid
};

/// Rows [row, row + count) of one sequence, standing at positions first_position, …; one entry a sequence.
struct GatedDeltaSequence {
  int64_t row = 0, count = 0, first_position = 0;
  float* conv = nullptr;   ///< [kernel − 1, channels], oldest row first; advanced by the call
  float* state = nullptr;  ///< [value_heads, k_dim, v_dim]; advanced by the call
};

enum class GatedDeltaArm { kAuto, kRef, kRecurrent, kChunk16, kChunk32, kChunk64 };
constexpr int kGatedDeltaArms = 6;
std::optional<GatedDeltaArm> gated_delta_arm_from_name(const std::string& name);
const char* gated_delta_arm_name(GatedDeltaArm arm);
/// What kAuto becomes for a sequence of `count` rows; other arms are themselves.
GatedDeltaArm gated_delta_plan(GatedDeltaArm arm, int64_t count);

/// Floats that gated_delta needs as `scratch` for `rows` rows in all.
int64_t gated_delta_scratch(const GatedDeltaShape& shape, int64_t rows);

/// in: [rows, columns()], row stride in elements; out: [rows, values()]. The rows of all sequences lie in both and do
/// not overlap; out must not overlap in.
void gated_delta(const GatedDeltaShape& shape, const GatedDeltaWeights& weights,
                 std::span<const GatedDeltaSequence> sequences, const float* in, int64_t in_stride, float* out,
                 int64_t out_stride, float* scratch, GatedDeltaArm arm = GatedDeltaArm::kAuto);

/// One sequence in f64, token by token; `conv` and `state` as above but f64. in: [count, columns()], out: [count,
/// values()] contiguous. `alignment`, when given, is [count, value_heads]: ‖o‖ / (‖q‖ ‖S‖), the factor by which the
/// norm magnifies an error of o that is small beside q and S; a query that finds nothing in the state has a small one.
void gated_delta_ref(const GatedDeltaShape& shape, const GatedDeltaWeights& weights, const float* in, int64_t in_stride,
                     int64_t count, double* conv, double* state, double* out, double* alignment = nullptr);

}  // namespace galvani::kernels
