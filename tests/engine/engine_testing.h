#pragma once
/// What tests of the engine share: small models, requests, and running one to its end.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "galvani/engine.h"

namespace galvani {

inline std::string model(const char* name) {
  return (std::filesystem::path(GALVANI_TEST_DATA) / "models" / name).string();
}

inline std::unique_ptr<Engine> load(int sequences = 1, int64_t context = 0, const char* name = "hf/llama") {
  LoadOptions options;
  options.model = model(name);
  options.act = "f32";
  options.max_sequences = sequences;
  options.context = context;
  options.batch_invariant = true;
  options.poison = true;
  auto engine = Engine::load(options);
  EXPECT_TRUE(engine.has_value()) << (engine ? "" : engine.error().message);
  return engine ? std::move(*engine) : nullptr;
}

inline Request request_of(std::vector<int32_t> prompt, int64_t tokens = 16) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = tokens;
  request.ignore_eos = true;
  return request;
}

struct Outcome {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kRunning;
  RequestTimes times;
};

// Steps until the request has ended.
inline Outcome run(Engine& engine, RequestId id) {
  Outcome outcome;
  for (int i = 0; i < 10000; ++i) {
    auto update = engine.poll(id);
    EXPECT_TRUE(update.has_value());
    if (!update) return outcome;
    outcome.tokens.insert(outcome.tokens.end(), update->tokens.begin(), update->tokens.end());
    outcome.finish = update->finish;
    outcome.times = update->times;
    if (update->finish != FinishReason::kRunning) return outcome;
    EXPECT_TRUE(engine.step().has_value());
  }
  ADD_FAILURE() << "the request never ended";
  return outcome;
}

}  // namespace galvani
