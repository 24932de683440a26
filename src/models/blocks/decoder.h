#pragma once
/// The decoder that most dense families are: embedding, layers of attention and gated MLP with norms around them, head.
/// A family's file reads its config into a DecoderSpec; everything that differs between families is a field of it.
#include <memory>
#include <vector>

#include "models/blocks/attention.h"
#include "models/blocks/ends.h"
#include "models/blocks/gated_delta.h"
#include "models/blocks/latent_attention.h"
#include "models/blocks/mlp.h"
#include "models/blocks/moe.h"
#include "models/model.h"

namespace galvani::models {

struct DecoderLayerSpec {
  AttentionSpec attention;                    ///< kv_group and kv_index are filled in by load_decoder
  std::optional<GatedDeltaSpec> delta;        ///< the layer mixes with a gated delta net instead; slots are filled in
  std::optional<LatentAttentionSpec> latent;  ///< or with latent attention; kv_group and kv_index are filled in
  int64_t inner = 0;                          ///< MLP width
  exec::Activation activation = exec::Activation::kSilu;
  bool mlp_bias = false;
  std::optional<MoeSpec> moe;  ///< instead of the MLP
};

struct DecoderSpec {
  ModelInfo info;
  EndsSpec ends;
  std::vector<DecoderLayerSpec> layers;
  float eps = 1e-6f;
  bool norm_zero_centred = false;
  /// Norms after attention and MLP too (Gemma); otherwise only before them.
  bool sandwich = false;
};

Result<std::unique_ptr<Model>> load_decoder(DecoderSpec spec, Loader& loader);

}  // namespace galvani::models
