#pragma once
/// Handles of weights inside an Ops, and the constants of one layer's sub-blocks, fixed at load (models.md 1–3).
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/moe/moe.h"
#include "quant/matrix_source.h"

namespace galvani::exec {

/// Activation [rows, cols] in the backend's memory; `stride` in elements between rows.
struct Act {
  void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
};

/// Handles of weights inside an Ops; id < 0 means "none".
struct LinearRef {
  int id = -1;
  int64_t rows = 0, cols = 0;
  explicit operator bool() const { return id >= 0; }
};
/// `count` matrices of one shape [rows, cols]: one per expert, or one per head.
struct StackRef {
  int id = -1;
  int count = 0;
  int64_t rows = 0, cols = 0;
  explicit operator bool() const { return id >= 0; }
};
struct EmbeddingRef {
  int id = -1;
  int64_t rows = 0, cols = 0;
};
struct VectorRef {
  int id = -1;
  int64_t size = 0;
  explicit operator bool() const { return id >= 0; }
};
struct RopeRef {
  int id = -1;
  explicit operator bool() const { return id >= 0; }
};

/// Rows of a matrix that become rows of a Linear; `bias` is empty or one value a row.
struct LinearPart {
  quant::MatrixPtr matrix;
  std::vector<float> bias = {};
};

/// y = x / rms(x) · (w, or 1 + w); no weight: plain x / rms(x). models.md 1.2.
struct Norm {
  VectorRef weight;
  float eps = 1e-6f;
  bool plus_one = false;
};

struct RopeSpec {
  std::vector<float> inv_freq;  ///< one per rotated pair
  float attention_scale = 1;    ///< multiplies cos and sin (yarn)
  bool interleaved = false;     ///< pairs (2i, 2i+1) instead of (i, i + r/2)
};

/// Grouped-query attention. In order: product, clip, norms, rope, append.
struct AttentionLayer {
  /// Rows: q (heads·k_dim), then unless `reuse_kv` k (kv_heads·k_dim), then unless `v_from_k` v (kv_heads·v_dim), then
  /// with `output_gate` the gate (heads·v_dim).
  LinearRef qkv;
  int heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0;
  std::optional<Norm> q_norm, k_norm, v_norm;  ///< over each head, before rope; v is never rotated
  bool norm_whole = false;                     ///< q_norm and k_norm over all heads at once (OLMoE)
  bool output_gate = false;                    ///< the result is multiplied by sigmoid(gate) (Qwen3-Next)
  bool v_from_k = false;  ///< v is k's projection, before k_norm and rope (Gemma 4); k_dim == v_dim
  bool reuse_kv = false;  ///< reads the keys and values another layer has appended (Gemma 4); appends nothing
  float clip = 0;         ///< q, k, v clamped to ±clip after q_norm and k_norm (OLMoE); 0 = none
  RopeRef rope;
  int kv_group = 0, kv_index = 0;  ///< where State keeps this layer's keys and values
  float scale = 1;
  int window = 0;
  float softcap = 0;
  VectorRef sinks;
};

/// What attention_inputs hands to attention.
struct AttentionInputs {
  Act q;     ///< [rows, heads·k_dim], normed and rotated
  Act gate;  ///< [rows, heads·v_dim] with `output_gate`, else empty
};

/// Multi-head latent attention (DeepSeek V2/V3; models.md 3.11). Pages hold one head: K = latent | rotated key part
/// (k_dim = latent + rope), V = the latent again, which is not stored twice: the group's v_dim is 0.
struct LatentAttentionLayer {
  LinearRef q;                 ///< hidden → heads·(nope + rope), or with q_norm → q_lora
  std::optional<Norm> q_norm;  ///< over q_lora
  LinearRef q_b;               ///< q_lora → heads·(nope + rope), with q_norm
  LinearRef kv_a;              ///< hidden → latent + rope (one shared rotated key part)
  Norm kv_norm;                ///< over the latent
  StackRef k_up;               ///< a head each: nope → latent (the key half of kv_b, transposed)
  StackRef v_up;               ///< a head each: latent → v_dim
  int heads = 0, nope = 0, rope_dim = 0, latent = 0, v_dim = 0;
  RopeRef rope;
  int kv_group = 0, kv_index = 0;
  float scale = 1;
};

enum class Activation { kSilu, kGeluTanh, kSwigluClamped };

/// The activation of a gated MLP; alpha and limit only for kSwigluClamped (gpt-oss).
struct GatedActivation {
  Activation kind = Activation::kSilu;
  float alpha = 1.702f, limit = 7.0f;
  GatedActivation() = default;
  GatedActivation(Activation of) : kind(of) {}  // NOLINT: the kind alone says it all for most
};

/// How experts are chosen and weighed (models.md 1.4). Everything is f32; equal scores choose the lower index.
struct Router {
  LinearRef gate;               ///< hidden → experts
  std::optional<Norm> norm;     ///< of the router's own input; none: it reads what the experts read
  bool reads_residual = false;  ///< its input is x before the block's norm (Gemma 4), then `norm`
  kernels::RouteScore score = kernels::RouteScore::kSoftmaxAll;
  int experts = 0, top_k = 0;
  bool renormalize = false;         ///< chosen weights divided by their sum
  float scaling = 1;                ///< multiplies the weights at the end (routed_scaling_factor)
  VectorRef selection_bias;         ///< [experts], added for choosing only (e_score_correction_bias)
  VectorRef expert_scale;           ///< [experts], multiplies the chosen weights at the end (Gemma 4)
  int groups = 1, groups_kept = 1;  ///< choose only from the best groups
  bool group_top2 = false;          ///< a group's score is the sum of its two best (V3), else its best (V2)
};

/// y = Σ_j w_j · expert_j(x) (+ shared(x)), expert: down( act(gate·x) ⊙ (up·x) ).
struct MoeLayer {
  Router router;
  StackRef gate_up;  ///< an expert each: 2·I rows, gate first
  StackRef down;
  GatedActivation activation;
  /// Every token's expert, or none: a gated MLP, times sigmoid(shared_gate · x) where there is one.
  LinearRef shared_gate_up, shared_down, shared_gate;
};

/// Gated delta net (models.md 3.5).
struct GatedDeltaLayer {
  /// Rows: q (key_heads·k_dim), k likewise, v (value_heads·v_dim), z (as v), b (value_heads), a (value_heads).
  LinearRef in;
  int key_heads = 0, value_heads = 0, k_dim = 0, v_dim = 0;
  int kernel = 4;             ///< taps of the causal convolution over q | k | v
  VectorRef conv;             ///< [kernel, channels], oldest tap first
  VectorRef a_log;            ///< [value_heads]
  VectorRef dt_bias;          ///< [value_heads]
  Norm out_norm;              ///< over v_dim, shared by all heads
  bool sigmoid_gate = false;  ///< z's activation: silu, or sigmoid (output_gate_type)
  bool tiled_heads = false;   ///< value head h reads key head h mod key_heads, not h / (value_heads / key_heads)
  int conv_slot = 0, state_slot = 0;  ///< slots of State: [kernel − 1, channels] and [value_heads, k_dim, v_dim], f32
};

}  // namespace galvani::exec
