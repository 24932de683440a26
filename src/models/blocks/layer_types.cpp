#include "models/blocks/layer_types.h"

#include "core/error.h"

namespace galvani::models {
namespace {

constexpr int64_t kMaxWindow = (int64_t{1} << 31) - 1;

Result<std::vector<int>> from_types(const formats::ConfigReader& config, const std::vector<std::string>& types,
                                    int layers, int window) {
  if (static_cast<int>(types.size()) != layers)
    return fail(ErrorCode::kCorrupt, "{}: layer_types has {} entries, num_hidden_layers says {}", config.label(),
                types.size(), layers);
  std::vector<int> windows;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") {
      windows.push_back(0);
    } else if (types[i] == "sliding_attention") {
      if (window == 0)
        return fail(ErrorCode::kCorrupt, "{}: layer {} is sliding_attention, but there is no sliding_window",
                    config.label(), i);
      windows.push_back(window);
    } else {
      return fail(ErrorCode::kUnsupported,
                  "{}: layer_types[{}] is '{}'; this family has full_attention and sliding_attention", config.label(),
                  i, types[i]);
    }
  }
  return windows;
}

}  // namespace

Result<std::vector<int>> layer_windows(formats::ConfigReader& config, int layers, const WindowRules& rules) {
  GALVANI_TRY(int64_t window, config.integer("sliding_window", 0, kMaxWindow, rules.default_window));
  int64_t first_sliding = 0;
  if (rules.needs_use_sliding_window) {
    GALVANI_TRY(const bool use, config.boolean("use_sliding_window", false));
    GALVANI_TRY(first_sliding, config.integer("max_window_layers", 0, kMaxWindow, 28));
    if (rules.ignores_max_window_layers) first_sliding = 0;
    if (!use) window = 0;
  }
  int64_t pattern = rules.default_pattern;
  if (pattern > 0) {
    GALVANI_TRY(pattern, config.integer("_sliding_window_pattern", 1, 4096, pattern));
    GALVANI_TRY(pattern, config.integer("sliding_window_pattern", 1, 4096, pattern));
  }
  GALVANI_TRY(const std::vector<std::string> types, config.strings("layer_types"));
  if (!types.empty()) return from_types(config, types, layers, static_cast<int>(window));

  std::vector<int> windows(static_cast<size_t>(layers), 0);
  for (int i = 0; i < layers; ++i) {
    bool slides = window > 0;
    if (pattern > 0) slides = slides && (i + 1) % pattern != 0;
    if (rules.needs_use_sliding_window) slides = slides && i >= first_sliding;
    if (pattern == 0 && !rules.every_layer_slides && !rules.needs_use_sliding_window) slides = false;
    if (slides) windows[static_cast<size_t>(i)] = static_cast<int>(window);
  }
  return windows;
}

}  // namespace galvani::models
