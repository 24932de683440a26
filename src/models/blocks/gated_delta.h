#pragma once
/// The gated delta net block of qwen3_next and qwen3_5 (models.md 3.5).
#include <optional>
#include <string>

#include "models/blocks/loader.h"

namespace galvani::models {

struct GatedDeltaSpec {
  int key_heads = 0, value_heads = 0, k_dim = 0, v_dim = 0;
  int kernel = 4;
  int64_t hidden = 0;
  float eps = 1e-6f;
  bool sigmoid_gate = false;
  bool tiled_heads = false;           ///< see exec::GatedDeltaLayer
  int conv_slot = 0, state_slot = 0;  ///< filled in by load_decoder
  int64_t channels() const { return 2 * int64_t{key_heads} * k_dim + int64_t{value_heads} * v_dim; }
};

class GatedDelta {
 public:
  /// Tensors `prefix`.in_proj_qkv + in_proj_z, or in_proj_qkvz grouped by key head; in_proj_b + in_proj_a, or
  /// in_proj_ba likewise; conv1d, A_log, dt_bias, norm, out_proj. Each part keeps its own format. conv1d may be
  /// [channels, 1, kernel] (Hugging Face), [channels, kernel, 1] (MLX) or [channels, kernel] (GGUF).
  static Result<GatedDelta> load(Loader& loader, const std::string& prefix, const GatedDeltaSpec& spec);

  /// residual += post_norm( out( delta(norm(residual)) ) )
  void forward(exec::Ops& ops, const std::optional<exec::Norm>& norm, const std::optional<exec::Norm>& post_norm,
               exec::Act& residual) const;

 private:
  exec::GatedDeltaLayer layer_;
  exec::LinearRef out_;
};

}  // namespace galvani::models
