#pragma once
/// Tensor names: Hugging Face ↔ GGUF, one table an architecture (models.md 7.3).
#include <optional>
#include <string>
#include <string_view>

namespace galvani::formats {

/// "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight"; nothing for a name that the architecture's table
/// lacks.
std::optional<std::string> hf_name_of_gguf(std::string_view architecture, std::string_view gguf_name);
/// The other way.
std::optional<std::string> gguf_name_of_hf(std::string_view architecture, std::string_view hf_name);
/// The architectures with a table, for messages: "llama, qwen2, …".
std::string gguf_architectures();
/// Is there a table for this architecture?
bool gguf_architecture_known(std::string_view architecture);

}  // namespace galvani::formats
