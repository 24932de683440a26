#pragma once
/// How the next token is chosen. Order (OpenAI's and vLLM's): logit bias, repetition, frequency and presence penalties,
/// temperature, top-k, top-p, min-p. A temperature below 1e-5 is greedy and skips the filters.
#include <cstdint>
#include <utility>
#include <vector>

namespace galvani {

struct SamplingParams {
  float temperature = 0.0f;                           ///< >= 0
  int top_k = 0;                                      ///< 0 = off
  float top_p = 1.0f;                                 ///< (0, 1]
  float min_p = 0.0f;                                 ///< [0, 1]: keep tokens with p >= min_p · p_max
  float repetition_penalty = 1.0f;                    ///< > 0; over prompt and output, once a token
  float frequency_penalty = 0.0f;                     ///< per occurrence in the output
  float presence_penalty = 0.0f;                      ///< once, if in the output
  uint64_t seed = 0;                                  ///< draws depend on (seed, position) alone, never on the batch
  int top_logprobs = 0;                               ///< how many alternatives to report
  std::vector<std::pair<int32_t, float>> logit_bias;  ///< (token id, value added to its raw logit)
};

}  // namespace galvani
