#include "formats/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/log.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

using nlohmann::json;

constexpr double kHuge = 1e18;

Result<RopeType> parse_type(const std::string& text, const std::string& where) {
  if (text == "default" || text == "mrope") return RopeType::kDefault;  // mrope: all three positions are equal for text
  if (text == "linear") return RopeType::kLinear;
  if (text == "llama3") return RopeType::kLlama3;
  if (text == "yarn") return RopeType::kYarn;
  if (text == "proportional") return RopeType::kProportional;
  return fail(ErrorCode::kUnsupported,
              "{}: rope type {} is not supported; supported are default, linear, llama3, yarn, proportional", where,
              quote(text));
}

bool is_set(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && !it->is_null();
}

Result<std::string> type_text(ConfigReader& entry) {
  if (entry.has("rope_type")) {
    entry.mark_read("type");
    return entry.string("rope_type");
  }
  entry.mark_read("rope_type");
  return entry.string("type", "default");
}

/// One rope dictionary, `config` being the model's own for the keys that live beside it.
Result<RopeParams> parse_entry(const json& object, ConfigReader& config, const std::string& where, RopeParams params) {
  if (!object.is_object()) return fail(ErrorCode::kCorrupt, "{}: must be an object", where);
  ConfigReader entry(object, where);
  GALVANI_TRY(const auto type, type_text(entry));
  GALVANI_TRY(params.type, parse_type(type, where));
  GALVANI_TRY(params.theta, entry.number("rope_theta", 1.0, kHuge, params.theta));
  GALVANI_TRY(params.partial_rotary_factor,
              entry.number("partial_rotary_factor", 0.0, 1.0, params.partial_rotary_factor));
  const bool scaled =
      params.type == RopeType::kLinear || params.type == RopeType::kLlama3 || params.type == RopeType::kYarn;
  GALVANI_TRY(params.factor, entry.number("factor", 1e-6, 1e6, scaled ? std::nullopt : std::optional<double>(1.0)));
  if (params.type == RopeType::kLlama3) {
    GALVANI_TRY(params.low_freq_factor, entry.number("low_freq_factor", 1e-6, 1e6));
    GALVANI_TRY(params.high_freq_factor, entry.number("high_freq_factor", 1e-6, 1e6));
    GALVANI_TRY(params.original_max, entry.number("original_max_position_embeddings", 1, kHuge));
    if (!(params.high_freq_factor > params.low_freq_factor))
      return fail(ErrorCode::kCorrupt, "{}: high_freq_factor {} must be above low_freq_factor {}", where,
                  params.high_freq_factor, params.low_freq_factor);
  }
  if (params.type == RopeType::kYarn) {
    std::optional<double> fallback;
    if (config.has("max_position_embeddings") && !is_set(object, "original_max_position_embeddings")) {
      GALVANI_TRY(fallback, config.number("max_position_embeddings", 1, kHuge));
    }
    GALVANI_TRY(params.original_max, entry.number("original_max_position_embeddings", 1, kHuge, fallback));
    GALVANI_TRY(params.beta_fast, entry.number("beta_fast", 1e-6, 1e9, params.beta_fast));
    GALVANI_TRY(params.beta_slow, entry.number("beta_slow", 1e-6, 1e9, params.beta_slow));
    if (entry.has("attention_factor")) {
      GALVANI_TRY(params.attention_factor, entry.number("attention_factor", 0, 1e6));
    }
    GALVANI_TRY(params.mscale, entry.number("mscale", 0, 1e6, 0.0));
    GALVANI_TRY(params.mscale_all_dim, entry.number("mscale_all_dim", 0, 1e6, 0.0));
    GALVANI_TRY(params.truncate, entry.boolean("truncate", true));
  }
  // Known, and without meaning for text or for the other types.
  for (const char* key :
       {"mrope_section", "mrope_interleaved", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor",
        "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim", "finetuned"})
    entry.mark_read(key);
  for (const auto& key : entry.unknown_keys())
    log_warn("{}: rope key {} is not known here, ignored", where, quote(key));
  return params;
}

/// The dictionary of rope_parameters that holds for `layer_type`: itself when flat, else its entry.
Result<const json*> select_entry(const json& parameters, const std::string& layer_type, const std::string& where) {
  if (!parameters.is_object()) return fail(ErrorCode::kCorrupt, "{}: must be an object", where);
  const auto own = parameters.find(layer_type);
  if (own != parameters.end()) return &*own;
  for (const auto& [key, value] : parameters.items())
    if (value.is_object())
      return fail(ErrorCode::kNotFound, "{}: has an entry for layer type {} but none for {}", where, quote(key),
                  quote(layer_type));
  return &parameters;
}

}  // namespace

const char* rope_type_name(RopeType type) noexcept {
  switch (type) {
    case RopeType::kDefault: return "default";
    case RopeType::kLinear: return "linear";
    case RopeType::kLlama3: return "llama3";
    case RopeType::kYarn: return "yarn";
    case RopeType::kProportional: return "proportional";
  }
  return "?";
}

Result<RopeParams> parse_rope(ConfigReader& config, const std::string& layer_type, const RopeDefaults& defaults) {
  RopeParams params;
  GALVANI_TRY(params.theta, config.number("rope_theta", 1.0, kHuge, defaults.theta));
  GALVANI_TRY(params.partial_rotary_factor,
              config.number("partial_rotary_factor", 0.0, 1.0, defaults.partial_rotary_factor));
  const json& parameters = config.raw("rope_parameters");
  const json& scaling = config.raw("rope_scaling");
  const bool local = layer_type == "sliding_attention" && (defaults.local_theta || config.has("rope_local_base_freq"));
  double local_theta = defaults.local_theta.value_or(params.theta);
  GALVANI_TRY(local_theta, config.number("rope_local_base_freq", 1.0, kHuge, local_theta));

  if (!parameters.is_null()) {
    const std::string where = config.label() + ": rope_parameters";
    const bool nested = parameters.is_object() && std::any_of(parameters.begin(), parameters.end(),
                                                              [](const json& value) { return value.is_object(); });
    if (!(local && !nested)) {
      if (nested && local) params.theta = local_theta;
      GALVANI_TRY(const json* entry, select_entry(parameters, layer_type, where));
      GALVANI_TRY(const RopeParams chosen,
                  parse_entry(*entry, config, nested ? where + "." + layer_type : where, params));
      // Readers differ in which of the two they follow; whoever adds yarn to a config must not be ignored.
      if (!nested && !scaling.is_null()) {
        GALVANI_TRY(const RopeParams other, parse_entry(scaling, config, config.label() + ": rope_scaling", params));
        if (other.type != chosen.type || other.factor != chosen.factor)
          return fail(ErrorCode::kCorrupt,
                      "{}: rope_scaling says {} with factor {}, rope_parameters {} with factor {}; keep one of the two",
                      config.label(), rope_type_name(other.type), other.factor, rope_type_name(chosen.type),
                      chosen.factor);
      }
      return chosen;
    }
  }
  if (local) {  // one dictionary or the old keys: scaling holds for the full layers only
    params.theta = local_theta;
    return params;
  }
  if (!scaling.is_null()) return parse_entry(scaling, config, config.label() + ": rope_scaling", params);
  return params;
}

Result<int64_t> rotary_dims(const RopeParams& params, int64_t head_dim) {
  if (head_dim < 2 || head_dim > (1 << 16))
    return fail(ErrorCode::kUnsupported, "rotary embedding needs a head dimension from 2 to 65536, not {}", head_dim);
  const auto dims = params.type == RopeType::kProportional
                        ? head_dim
                        : static_cast<int64_t>(static_cast<double>(head_dim) * params.partial_rotary_factor);
  if (dims < 2 || dims % 2 != 0 || dims > head_dim)
    return fail(
        ErrorCode::kCorrupt,
        "partial_rotary_factor {} of head dimension {} gives {} rotary dimensions; they must be even, from 2 to {}",
        params.partial_rotary_factor, head_dim, dims, head_dim);
  return dims;
}

namespace {

double llama3_frequency(const RopeParams& p, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < p.original_max / p.high_freq_factor) return frequency;
  if (wavelength > p.original_max / p.low_freq_factor) return frequency / p.factor;
  const double smooth = (p.original_max / wavelength - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  return (1 - smooth) * frequency / p.factor + smooth * frequency;
}

/// First and last pair of yarn's ramp.
std::pair<double, double> yarn_range(const RopeParams& p, double dims) {
  const auto pair_of_turns = [&](double turns) {
    return dims * std::log(p.original_max / (turns * 2 * std::numbers::pi)) / (2 * std::log(p.theta));
  };
  double low = pair_of_turns(p.beta_fast), high = pair_of_turns(p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  return {low, high};
}

}  // namespace

Result<std::vector<float>> rope_inv_freq(const RopeParams& params, int64_t head_dim) {
  GALVANI_TRY(const int64_t dims, rotary_dims(params, head_dim));
  const auto pairs = static_cast<size_t>(dims / 2);
  const auto live = params.type == RopeType::kProportional
                        ? static_cast<size_t>(params.partial_rotary_factor * static_cast<double>(head_dim) / 2)
                        : pairs;
  const auto [low, high] =
      params.type == RopeType::kYarn ? yarn_range(params, static_cast<double>(dims)) : std::pair{0.0, 1.0};
  std::vector<float> result(pairs, 0.0f);
  for (size_t i = 0; i < live; ++i) {
    double frequency = std::pow(params.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    switch (params.type) {
      case RopeType::kDefault: break;
      case RopeType::kLinear:
      case RopeType::kProportional: frequency /= params.factor; break;
      case RopeType::kLlama3: frequency = llama3_frequency(params, frequency); break;
      case RopeType::kYarn: {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        frequency = frequency / params.factor * ramp + frequency * (1 - ramp);
        break;
      }
    }
    result[i] = static_cast<float>(frequency);
  }
  return result;
}

Status apply_rope_factors(std::vector<float>& inv_freq, const std::vector<float>& factors) {
  if (factors.size() != inv_freq.size())
    return fail(ErrorCode::kCorrupt, "rope_freqs.weight holds {} factors, the model rotates {} pairs", factors.size(),
                inv_freq.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0))
      return fail(ErrorCode::kCorrupt, "rope_freqs.weight[{}] is {}; factors must be positive", i, factors[i]);
    inv_freq[i] /= factors[i];
  }
  return {};
}

double rope_attention_scale(const RopeParams& params) {
  if (params.type != RopeType::kYarn) return 1.0;
  if (params.attention_factor) return *params.attention_factor;
  const auto m = [&](double scale) { return params.factor <= 1 ? 1.0 : 0.1 * scale * std::log(params.factor) + 1.0; };
  if (params.mscale != 0 && params.mscale_all_dim != 0) return m(params.mscale) / m(params.mscale_all_dim);
  return m(1.0);
}

}  // namespace galvani::formats
