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
  /// What can be refused before a model is loaded. Errors: kInvalidArgument.
  Status check() const;
  /// What was not given comes from the model's generation_config, else greedy. Errors: kInvalidArgument.
  Result<SamplingParams> params(const EngineInfo& info) const;
};

/// For CLI11's check() of a seed: it would wrap -1 and cut what is too large to 2^64 − 1, both in silence. "" or what
/// is wrong.
std::string check_seed(const std::string& text);

/// One line that says how tokens were chosen.
std::string describe(const SamplingParams& params);

}  // namespace galvani::cli
