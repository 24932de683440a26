#include "quant/ignorable.h"

namespace galvani::quant {

bool ignorable_tensor(std::string_view name) {
  static constexpr std::string_view kPrefixes[] = {"vision_tower.",
                                                   "vision_model.",
                                                   "visual.",
                                                   "model.visual.",
                                                   "model.vision_tower.",
                                                   "model.vision_model.",
                                                   "multi_modal_projector.",
                                                   "model.multi_modal_projector.",
                                                   "embed_vision.",
                                                   "model.embed_vision.",
                                                   "embed_audio.",
                                                   "model.embed_audio.",
                                                   "audio_tower.",
                                                   "model.audio_tower.",
                                                   "vision_embedder.",
                                                   "model.vision_embedder.",
                                                   "mtp.",
                                                   "model.mtp."};
  static constexpr std::string_view kSuffixes[] = {"rotary_emb.inv_freq", ".input_min", ".input_max", ".output_min",
                                                   ".output_max"};
  for (auto prefix : kPrefixes)
    if (name.starts_with(prefix)) return true;
  for (auto suffix : kSuffixes)
    if (name.ends_with(suffix)) return true;
  return false;
}

std::string canonical_name(std::string_view name) {
  static constexpr std::string_view kWrapper = "language_model.", kInner = "model.language_model.";
  if (name.starts_with(kWrapper)) return std::string(name.substr(kWrapper.size()));
  if (name.starts_with(kInner)) return "model." + std::string(name.substr(kInner.size()));
  return std::string(name);
}

}  // namespace galvani::quant
