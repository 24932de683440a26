// A whole model, as `galvani bench -m` measures it.
// Usage: model_bench MODEL [DEVICE [PROMPT [STEPS [SEQUENCES]]]], e.g. model_bench model.gguf cuda 512 256 1
// MODEL may be synthetic:BITS:CONFIG (random weights in the shapes of a config.json); every line then says so.
#include "bench/model_bench.h"

#include <fmt/format.h>

#include <cstdlib>

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: model_bench MODEL [DEVICE [PROMPT [STEPS [SEQUENCES]]]]\n");
    return 2;
  }
  galvani::bench::ModelBenchOptions options;
  options.load.model = argv[1];
  if (argc > 2) options.load.device = argv[2];
  if (argc > 3) options.prompt = std::atoi(argv[3]);
  if (argc > 4) options.steps = std::atoi(argv[4]);
  if (argc > 5) options.sequences = std::atoi(argv[5]);
  const auto record = galvani::bench::bench_model(options);
  if (!record) {
    fmt::print(stderr, "error: {}\n", record.error().message);
    return 1;
  }
  fmt::print("{}", galvani::bench::model_record_text(*record));
  return 0;
}
