#pragma once
/// Tensors that a text model may leave unread, and the spelling of names across wrappers.
#include <string>
#include <string_view>

namespace galvani::quant {

/// Vision and audio towers, multi-token-prediction heads, rotary buffers, clip ranges (models.md 1.5).
bool ignorable_tensor(std::string_view name);

/// Name in the plain text model's spelling: "language_model.model.X", "model.language_model.X" → "model.X",
/// "language_model.lm_head.X" → "lm_head.X".
std::string canonical_name(std::string_view name);

}  // namespace galvani::quant
