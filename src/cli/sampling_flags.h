#pragma once
/// Flags for how tokens are chosen, with llama.cpp's names.
#include <optional>

#include "cli/cli.h"

namespace galvani::cli {

struct SamplingFlags {
  int64_t max_tokens = 128;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;  ///< not given: the model's default
  std::optional<int> top_k;
  double presence_penalty = 0, frequency_penalty = 0;
  uint64_t seed = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop, logit_bias;

  void add_to(CLI::App& verb);
  /// What was not given comes from the model's generation_config, else greedy.
  Result<SamplingParams> params(const SamplingParams& model_defaults) const;
};

/// One line that says how tokens were chosen.
std::string describe(const SamplingParams& params);

}  // namespace galvani::cli
