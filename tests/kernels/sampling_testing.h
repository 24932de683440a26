#pragma once
/// Random sampling parameters, and where rounding decides, for the tests of sampling on CPU and GPU.
#include <algorithm>
#include <optional>

#include "kernels/kernel_testing.h"
#include "kernels/sampling/sampling.h"

namespace galvani::kernels {

/// A row's parameters with the memory they point to.
struct Case {
  RowSampling row;
  std::vector<std::pair<int32_t, float>> bias;
  std::vector<int32_t> prompt, output, suppress;
  std::vector<uint32_t> mask;
  const RowSampling& bind() {
    row.logit_bias = bias;
    row.prompt_tokens = prompt;
    row.output_tokens = output;
    row.suppress = suppress;
    row.allowed_mask = mask.empty() ? nullptr : mask.data();
    return row;
  }
};

template <typename T>
T pick(std::mt19937_64& random, std::initializer_list<T> choices) {
  return choices.begin()[random() % choices.size()];
}

inline Case random_case(std::mt19937_64& random, int32_t vocab) {
  Case c;
  const auto id = [&] { return static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)); };
  c.row.temperature = pick(random, {0.0f, 9e-6f, 0.3f, 1.0f, 1.0f, 2.5f});
  c.row.top_k = pick(random, {0, 0, 1, 2, 20, 64, 3000, vocab - 1, vocab, vocab + 5, -1});
  c.row.top_p = pick(random, {1.0f, 1.0f, 0.95f, 0.5f, 1e-6f, 0.999999f});
  c.row.min_p = pick(random, {0.0f, 0.0f, 0.05f, 0.5f, 1.0f, 1e-5f});
  c.row.seed = random();
  if (random() % 2) {
    c.row.repetition_penalty = pick(random, {1.0f, 1.3f, 0.7f});
    c.row.presence_penalty = pick(random, {0.0f, 1.5f, -2.0f});
    c.row.frequency_penalty = pick(random, {0.0f, 0.25f, -0.5f});
    for (int i = 0; i < 30; ++i) c.prompt.push_back(id());
    for (int i = 0; i < 40; ++i) c.output.push_back(i % 3 ? id() : c.prompt[0]);
  }
  if (random() % 3 == 0)
    for (int i = 0; i < 5; ++i) c.bias.emplace_back(id(), pick(random, {-100.0f, 100.0f, 1.25f}));
  if (random() % 3 == 0) c.suppress = {id(), id()};
  if (random() % 3 == 0) c.row.valid_vocab = 1 + id();
  if (random() % 3 == 0)
    for (int32_t i = 0; i < vocab; i += 32)
      c.mask.push_back(static_cast<uint32_t>(random() % 3 ? random() : (i ? 0 : ~0u)));
  return c;
}

/// The id that the f64 distribution gives for u, or nothing when u falls within rounding of a border.
inline std::optional<int32_t> expected_id(std::vector<std::pair<int32_t, double>> kept, double u) {
  std::sort(kept.begin(), kept.end());
  double sum = 0;
  for (const auto& [id, p] : kept) {
    if (std::fabs(u - sum) < 1e-5 && sum > 0) return std::nullopt;
    sum += p;
    if (u < sum) return std::fabs(u - sum) < 1e-5 && id != kept.back().first ? std::nullopt : std::optional(id);
  }
  return kept.back().first;
}

/// Whether rounding could change what the filters keep.
inline bool on_an_edge(const float* logits, int64_t vocab, const RowSampling& row) {
  RowSampling less = row, more = row;
  less.top_p = row.top_p < 1 ? row.top_p * (1 - 3e-6f) : 1.0f;
  more.top_p = row.top_p < 1 ? std::min(1.0f, row.top_p * (1 + 3e-6f)) : 1.0f;
  less.min_p = std::min(1.0f, row.min_p * (1 + 1e-5f));
  more.min_p = row.min_p * (1 - 1e-5f);
  return distribution_ref(logits, vocab, less).size() != distribution_ref(logits, vocab, more).size();
}

}  // namespace galvani::kernels
