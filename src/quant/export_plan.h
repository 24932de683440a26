#pragma once
/// What an MLX-layout copy of a checkpoint consists of: names as mlx-lm's model classes have them, stacked experts, and
/// a format for every matrix. Nothing is read but headers and configs.
///
/// Differences between Hugging Face's and mlx-lm's layout (mlx-lm 0.32, each model's `sanitize`):
/// - experts one by one (`mlp.experts.7.up_proj`, mixtral's `w1` `w2` `w3`) become `switch_mlp.{gate,up,down}_proj`
///   [E, R, C]; fused `experts.gate_up_proj` [E, 2R, C] splits into gate (first half of the rows) and up; gemma4 calls
///   the stack `experts.switch_glu`;
/// - qwen3_5 and qwen3_5_moe stand under `language_model.`;
/// - delta-net families: conv1d [C, 1, K] becomes [C, K, 1], and the norms that multiply by 1 + w are stored as 1 + w,
///   rounded to the checkpoint's type (Recipe::exact_norms keeps them in f32);
/// - a head that is tied to the embedding is left out, and so are vision and audio towers and mtp heads.
#include <optional>
#include <string>
#include <vector>

#include "quant/checkpoint.h"
#include "quant/recipe.h"

namespace galvani::quant {

/// Rows [begin, end) of the checkpoint's matrix `module`, which is [rows, cols].
struct ExportPart {
  std::string module;
  int64_t rows = 0, cols = 0, begin = 0, end = 0;
};

struct ExportMatrix {
  std::string module;  ///< path in the new checkpoint; its tensors are .weight, .scales, .biases
  Shape shape;         ///< [rows, cols] or [experts, rows, cols]
  std::vector<ExportPart> parts;
  std::optional<CodeFormat> format;  ///< nothing: elements of `dtype`
  DType dtype = DType::kBF16;
};

struct ExportVector {
  std::string name, source;  ///< full names in the new and in the old checkpoint
  Shape shape;
  float add = 0;  ///< 1 where the 1 of 1 + w is added, -1 where it is taken out
  DType dtype = DType::kBF16;
};

struct ExportPlan {
  DType dtype = DType::kBF16;
  std::vector<ExportMatrix> matrices;
  std::vector<ExportVector> vectors;
  std::vector<std::string> left_out;  ///< tensors with no place in the new checkpoint
  nlohmann::ordered_json config;      ///< the new config.json
};

/// Plans `recipe` for a freshly opened checkpoint. Errors: a model_type that has no rule here (naming those that have),
/// experts that are missing or differ in shape, tensors that cannot be placed, recipes that make no sense.
Result<ExportPlan> plan_export(Checkpoint& checkpoint, const Recipe& recipe);

/// model_type names that plan_export takes.
std::vector<std::string> exportable_families();

/// config.json of the new checkpoint: `config` (the language model's keys) plus the keys that published MLX checkpoints
/// and mlx-lm's readers know (rope_theta, rope_scaling, num_experts, sliding_window_pattern, …), without quantization.
/// qwen3_5 families come wrapped in text_config.
Result<nlohmann::ordered_json> export_config(const nlohmann::json& config, bool tied);

}  // namespace galvani::quant
