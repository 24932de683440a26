#pragma once
/// The experts of one layer, whatever way a checkpoint stores them (models.md 1.5, 3.4, 3.9, 3.10, 7.3).
#include <string>

#include "models/blocks/loader.h"

namespace galvani::models {

/// Names below are those of Hugging Face, `prefix` in front. Looked for in this order:
///   1. one stack a projection [E, rows, cols]: switch_mlp.{gate,up,down}_proj (mlx-lm), experts.switch_glu.… (Gemma 4
///   by
///      mlx-lm), experts.… (gpt-oss by mlx-lm; GGUF's ffn_{gate,up,down}_exps), each with ".bias" [E, rows];
///   2. gate and up in one stack: experts.gate_up_proj [E, 2·I, H] and experts.down_proj [E, H, I], with or without
///      ".weight", or as gpt-oss' "_blocks" and "_scales"; biases experts.gate_up_proj_bias, experts.down_proj_bias;
///   3. a module an expert: experts.{e}.{gate,up,down}, those names as the family has them.
struct ExpertsSpec {
  std::string prefix;         ///< "model.layers.3.mlp"
  int count = 0, active = 0;  ///< experts, and how many of them a token uses
  int64_t hidden = 0, inner = 0;
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  ///< in 3.
  bool interleaved = false;  ///< in 2.: even rows gate, odd rows up; else the first I rows gate
  bool input_major = false;  ///< in 2., dense: [E, H, 2·I] and [E, I, H] (gpt-oss in bf16)
  bool bias = false;
};

struct Experts {
  exec::StackRef gate_up;  ///< [2·I, H] each, gate first
  exec::StackRef down;     ///< [H, I] each
};

Result<Experts> load_experts(Loader& loader, const ExpertsSpec& spec);

}  // namespace galvani::models
