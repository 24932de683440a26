#pragma once
/// Rotary position embedding parameters from both generations of config keys (models.md 1.1, 2).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/config_reader.h"

namespace galvani::formats {

enum class RopeType { kDefault, kLinear, kLlama3, kYarn, kProportional };
const char* rope_type_name(RopeType type) noexcept;

struct RopeParams {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  double original_max = 0;                               ///< original_max_position_embeddings (llama3, yarn)
  double beta_fast = 32.0, beta_slow = 1.0;              ///< yarn
  std::optional<double> attention_factor;                ///< yarn: given value of what multiplies cos and sin
  double mscale = 0, mscale_all_dim = 0;                 ///< yarn: 0 = not given
  bool truncate = true;                                  ///< yarn: round the ramp's ends to whole dimensions
  double partial_rotary_factor = 1.0;
};

/// What a family assumes where the config says nothing.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  /// Theta of sliding layers (`rope_local_base_freq`) for families that have two; others leave it out.
  std::optional<double> local_theta;
};

/// Parameters of the layers of `layer_type` ("full_attention", "sliding_attention", …). Reads rope_parameters (flat or
/// one entry a layer type), or rope_theta + rope_scaling + partial_rotary_factor + rope_local_base_freq. Errors: an
/// unknown rope type, a missing factor, values out of range.
Result<RopeParams> parse_rope(ConfigReader& config, const std::string& layer_type, const RopeDefaults& defaults);

/// Dimensions that are rotated, even and at most head_dim: int(head_dim · partial_rotary_factor), the whole head for
/// kProportional (its dead pairs have frequency 0).
Result<int64_t> rotary_dims(const RopeParams& params, int64_t head_dim);

/// Angular frequency of each of the rotary_dims/2 pairs, computed in f64 and rounded once to f32.
Result<std::vector<float>> rope_inv_freq(const RopeParams& params, int64_t head_dim);

/// inv_freq[i] /= factors[i]; GGUF files carry llama 3's scaling so (tensor "rope_freqs.weight").
Status apply_rope_factors(std::vector<float>& inv_freq, const std::vector<float>& factors);

/// What cos and sin are multiplied by: 1 except for yarn.
double rope_attention_scale(const RopeParams& params);

}  // namespace galvani::formats
