#pragma once
/// Checkpoints with reference logits, committed under tests/data/models; the largest, "tiny/NAME", are read from
/// GALVANI_FIXTURES.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "formats/safetensors.h"

namespace galvani::models {

inline std::filesystem::path model_data(const std::string& name) {
  const char* fixtures = std::getenv("GALVANI_FIXTURES");
  if (name.starts_with("tiny/")) return std::filesystem::path(fixtures == nullptr ? "" : fixtures) / name;
  return std::filesystem::path(GALVANI_TEST_DATA) / "models" / name;
}

/// Largest allowed difference of a logit from the reference's, by family.
inline double logits_bound(const std::string& model) {
  const auto is = [&](const char* family) { return model.find(family) != std::string::npos; };
  if (is("qwen3_5") || is("qwen3_next") || is("qwen35") || is("qwen3next")) return 5e-4;
  return is("gemma4") ? 2e-4 : 5e-5;
}

/// A tensor of expected.safetensors as i32 or f32.
template <typename T>
std::vector<T> expected(const std::string& model, const std::string& tensor) {
  auto file = formats::SafetensorsFile::open(model_data(model) / "expected.safetensors");
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return {};
  }
  auto view = (*file)->tensor(tensor);
  if (!view || view->bytes.size() % sizeof(T) != 0) {
    ADD_FAILURE() << model << ": no " << tensor;
    return {};
  }
  std::vector<T> values(view->bytes.size() / sizeof(T));
  std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  return values;
}

inline std::unique_ptr<engine::Runner> load(const std::string& model, LoadOptions options = {}) {
  options.model = model_data(model).string();
  if (options.act == "auto") options.act = "f32";
  options.poison = true;
  auto runner = engine::Runner::load(options);
  EXPECT_TRUE(runner.has_value()) << (runner ? "" : runner.error().message);
  return runner ? std::move(*runner) : nullptr;
}

/// Logits of all positions, in chunks.
inline std::vector<float> logits_of(engine::Runner& runner, const std::vector<int32_t>& ids, int64_t chunk = 512) {
  std::vector<float> all;
  const auto status = runner.all_logits(ids, chunk, [&](int64_t, int64_t count, const float* rows) -> Status {
    all.insert(all.end(), rows, rows + count * runner.info().vocab);
    return {};
  });
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  return all;
}

inline double max_abs_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= worst)) worst = difference;  // a NaN becomes the worst
  }
  return worst;
}

}  // namespace galvani::models
