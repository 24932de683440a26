#pragma once
/// GGUF metadata as a Hugging Face style config (models.md 7.2).
#include "formats/gguf.h"
#include "formats/hf_config.h"

namespace galvani::formats {

struct GgufConfig {
  HfConfig hf;                   ///< config, an empty generation config, eos ids
  std::string architecture;      ///< general.architecture
  bool norms_folded = false;     ///< norm weights hold 1+w
  bool predicts_ahead = false;   ///< blocks from num_hidden_layers on are a multi-token prediction head
  int64_t interleaved_head = 0;  ///< head_dim when q/k rows are stored interleaved (llama), else 0
};

/// Architectures: llama, qwen2, qwen3, gemma3, gemma4. Errors name the file and the key. Keys of the architecture's own
/// that nobody here knows are put into the config under their GGUF name, so that ConfigReader::finish() warns about
/// them.
Result<GgufConfig> read_gguf_config(const GgufFile& file);

}  // namespace galvani::formats
