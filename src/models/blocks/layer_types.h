#pragma once
/// Which layers look back only a window (models.md 1.1, 1.4): layer_types wins over pattern integers.
#include <cstdint>
#include <vector>

#include "formats/config_reader.h"

namespace galvani::models {

struct WindowRules {
  /// Without layer_types, sliding_window alone makes every layer slide (Mistral).
  bool every_layer_slides = false;
  /// sliding_window counts only when use_sliding_window is true, from layer max_window_layers on (Qwen).
  bool needs_use_sliding_window = false;
  /// ... from the first layer on, whatever max_window_layers says (Qwen3 MoE).
  bool ignores_max_window_layers = false;
  /// Without layer_types, layer i is full iff (i + 1) % sliding_window_pattern == 0; 0: the family has no pattern.
  int default_pattern = 0;
  /// sliding_window where the config does not state it; 0: then no layer slides.
  int64_t default_window = 0;
};

/// One entry a layer: the window, or 0 for full attention.
Result<std::vector<int>> layer_windows(formats::ConfigReader& config, int layers, const WindowRules& rules);

}  // namespace galvani::models
