/// GGUF files: header, every getter on every key, the config, and a row of each tensor.
#include <vector>

#include "core/log.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "quant/sources.h"

using namespace galvani;
using namespace galvani::formats;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto opened = GgufFile::open_bytes(std::as_bytes(std::span(data, size)), "fuzz");
  if (!opened) return 0;
  const auto& file = **opened;
  for (const auto& [key, value] : file.metadata()) {
    (void)file.integer(key);
    (void)file.number(key);
    (void)file.boolean(key);
    (void)file.string(key);
    (void)file.strings(key);
    (void)file.integers(key);
    (void)file.numbers(key);
    (void)file.booleans(key);
    (void)file.integer_per_layer(key, 3);
  }
  if (auto config = read_gguf_config(file); config) {
    ConfigReader reader(config->hf.config, "fuzz");
    (void)parse_rope(reader, "full_attention", {});
    (void)parse_rope(reader, "sliding_attention", {});
    (void)reader.finish();
  }
  for (const auto& tensor : file.tensors()) {
    const int64_t cols = tensor.shape[tensor.shape.rank() - 1], rows = *tensor.shape.elements() / cols;
    auto source = quant::make_gguf_source(tensor.name, tensor.type, {file.bytes(tensor), nullptr}, rows, cols);
    if (!source) continue;
    std::vector<float> row(static_cast<size_t>(cols));
    (void)(*source)->dequant_rows(rows - 1, rows, row.data());
    (void)(*source)->affine(rows - 1, rows, 0, cols);
  }
  return 0;
}
