#pragma once
/// Config keys that nearly every family has.
#include <cstdint>
#include <optional>

#include "formats/config_reader.h"
#include "formats/rope_config.h"
#include "models/blocks/attention.h"
#include "models/blocks/ends.h"
#include "models/blocks/loader.h"

namespace galvani::models {

struct CommonConfig {
  int64_t hidden = 0, inner = 0, vocab = 0, context = 0;
  int layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float eps = 1e-6f;
  bool tied = false;
};

/// What a family assumes where the config says nothing; a size without a default is required.
struct CommonDefaults {
  double eps = 1e-6;
  bool tied = false;
  int64_t context = 2048;
  std::optional<int64_t> hidden = {}, inner = {}, vocab = {}, layers = {}, heads = {};
  std::optional<int64_t> kv_heads = {};  ///< else as many as heads
  std::optional<int64_t> head_dim = {};  ///< else hidden / heads
};

/// Reads the keys and checks that they fit together (heads a multiple of kv_heads, and so on).
Result<CommonConfig> read_common(formats::ConfigReader& config, const CommonDefaults& defaults);

/// The attention of every layer, as far as the common keys say it; a family sets what differs.
AttentionSpec attention_spec(const CommonConfig& config, exec::RopeRef rope);
ModelInfo model_info(const std::string& family, const CommonConfig& config, const quant::Checkpoint& checkpoint);
EndsSpec ends_spec(const CommonConfig& config);

/// "silu" or "gelu_pytorch_tanh" from `key`; other activations are named and refused.
Result<exec::Activation> read_activation(formats::ConfigReader& config, const std::string& key,
                                         const std::string& fallback);

/// Rope of one layer type as an Ops handle; applies the checkpoint's rope_freqs.weight where there is one and
/// `file_factors` allows it.
Result<exec::RopeRef> load_rope(Loader& loader, const formats::RopeParams& params, int64_t head_dim,
                                bool file_factors = true);

}  // namespace galvani::models
