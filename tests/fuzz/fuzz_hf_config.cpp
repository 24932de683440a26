/// config.json: merging, typed reads, rope, quantization; and a GGUF-sized head dimension for the tables.
#include "core/log.h"
#include "formats/hf_config.h"
#include "formats/json_file.h"
#include "quant/mlx_quantization.h"

using namespace galvani;
using namespace galvani::formats;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto parsed = parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!parsed) return 0;
  const nlohmann::json copy = *parsed;
  auto config = make_hf_config(std::move(*parsed), copy, "fuzz");
  if (!config) return 0;
  (void)quant::parse_mlx_quantization(config->config, "fuzz");
  ConfigReader reader(config->config, "fuzz");
  (void)reader.dimension("hidden_size");
  (void)reader.vocabulary("vocab_size", 5);
  (void)reader.number("rms_norm_eps", 0, 1, 1e-6);
  (void)reader.boolean("tie_word_embeddings", false);
  (void)reader.string("hidden_act", "silu");
  (void)reader.strings("layer_types");
  (void)reader.integers("mlp_only_layers", 0, 1000);
  for (const char* type : {"full_attention", "sliding_attention"}) {
    auto rope = parse_rope(reader, type, {.theta = 1e6, .local_theta = 1e4});
    if (!rope) continue;
    (void)rope_inv_freq(*rope, 128);
    (void)rope_attention_scale(*rope);
  }
  (void)reader.finish();
  return 0;
}
