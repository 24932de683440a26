#include "cli/sampling_flags.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"

namespace galvani::cli {
namespace {

Result<std::pair<int32_t, float>> parse_logit_bias(const std::string& text) {
  const size_t equals = text.find('=');
  int32_t id = -1;
  char* end = nullptr;
  const char* begin = text.c_str();
  const float value = equals == std::string::npos ? 0 : std::strtof(begin + equals + 1, &end);
  const bool good = equals != std::string::npos && end == begin + text.size() && end != begin + equals + 1 &&
                    std::from_chars(begin, begin + equals, id).ptr == begin + equals && id >= 0;
  if (!good || !std::isfinite(value))
    return fail(ErrorCode::kInvalidArgument,
                "--logit-bias {}: write it as TOKEN_ID=VALUE with a finite number, e.g. 15043=-1.5", text);
  return std::pair{id, value};
}

}  // namespace

std::string check_seed(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return fmt::format("'{}' is not a whole number from 0 to {}", text, UINT64_MAX);
}

void SamplingFlags::add_to(CLI::App& verb) {
  verb.add_option("-n,--predict", max_tokens, fmt::format("tokens to generate at most (default {})", max_tokens))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  verb.add_option("--temp", temperature, "temperature; 0 is greedy (default: the model's, else 0)")
      ->check(CLI::Range(0.0, 100.0));
  verb.add_option("--top-k", top_k, "keep the k likeliest tokens; 0 = off")->check(CLI::Range(0, 1 << 30));
  verb.add_option("--top-p", top_p, "keep the smallest set with this mass; 1 = off")->check(CLI::Range(0.0, 1.0));
  verb.add_option("--min-p", min_p, "keep tokens with at least this share of the best one's probability")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--repeat-penalty", repetition_penalty, "divide logits of tokens already seen; 1 = off")
      ->check(CLI::Range(0.01, 100.0));
  verb.add_option("--presence-penalty", presence_penalty, "subtract once for tokens already generated")
      ->check(CLI::Range(-2.0, 2.0));
  verb.add_option("--frequency-penalty", frequency_penalty, "subtract per occurrence in the output")
      ->check(CLI::Range(-2.0, 2.0));
  verb.add_option("--seed", seed, "seed of the draws (default 0: the same command gives the same text)")
      ->check(check_seed);
  verb.add_flag("--ignore-eos", ignore_eos, "go on after the end-of-sequence token");
  verb.add_option("--stop", stop, "end before this text (may repeat)")->allow_extra_args(false);
  verb.add_option("-l,--logit-bias", logit_bias, "TOKEN_ID=VALUE added to that token's logit (may repeat)")
      ->allow_extra_args(false);
}

Status SamplingFlags::check() const {
  for (const std::string& text : stop)
    if (text.empty())
      return fail(ErrorCode::kInvalidArgument,
                  "--stop: the text is empty, so it would end every answer before its "
                  "first token; give at least one character");
  for (const std::string& text : logit_bias) GALVANI_TRY_VOID(parse_logit_bias(text));
  return {};
}

Result<SamplingParams> SamplingFlags::params(const EngineInfo& info) const {
  SamplingParams params = info.default_sampling;
  if (temperature) params.temperature = static_cast<float>(*temperature);
  if (top_k) params.top_k = *top_k;
  if (top_p) params.top_p = static_cast<float>(*top_p);
  if (min_p) params.min_p = static_cast<float>(*min_p);
  if (repetition_penalty) params.repetition_penalty = static_cast<float>(*repetition_penalty);
  params.presence_penalty = static_cast<float>(presence_penalty);
  params.frequency_penalty = static_cast<float>(frequency_penalty);
  params.seed = seed;
  for (const std::string& text : logit_bias) {
    GALVANI_TRY(const auto bias, parse_logit_bias(text));
    if (bias.first >= info.vocab)
      return fail(ErrorCode::kInvalidArgument,
                  "--logit-bias {}: token id {} is outside the vocabulary; allowed: 0 to {}", text, bias.first,
                  info.vocab - 1);
    params.logit_bias.push_back(bias);
  }
  return params;
}

std::string describe(const SamplingParams& params) {
  if (params.temperature < 1e-5f) return "greedy";
  std::string text = fmt::format("temperature {:g}", params.temperature);
  if (params.top_k > 0) text += fmt::format(", top-k {}", params.top_k);
  if (params.top_p < 1) text += fmt::format(", top-p {:g}", params.top_p);
  if (params.min_p > 0) text += fmt::format(", min-p {:g}", params.min_p);
  return text + fmt::format(", seed {}", params.seed);
}

}  // namespace galvani::cli
