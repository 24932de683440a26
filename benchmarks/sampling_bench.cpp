// Sampling from a vocabulary of 262,144 tokens, one row: microseconds per token of each path, best and median of 50.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/sampling/sampling.h"

namespace galvani::kernels {
namespace {

void measure(const char* name, const std::vector<float>& logits, RowSampling row) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  std::vector<double> times;
  for (int run = 0; run < 50; ++run) {
    row.position = static_cast<uint64_t>(run);
    const auto start = std::chrono::steady_clock::now();
    const auto tokens = sample(logits.data(), 1, vocab, vocab, {&row, 1});
    const auto end = std::chrono::steady_clock::now();
    if (!tokens) std::printf("%s\n", tokens.error().message.c_str());
    times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%-28s %8.1f us (best %8.1f)\n", name, times[25], times[0]);
}

}  // namespace
}  // namespace galvani::kernels

int main() {
  using namespace galvani::kernels;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(262144);
  for (float& x : logits) x = normal(random);
  RowSampling row;
  row.temperature = 0;
  measure("greedy", logits, row);
  row.top_logprobs = 20;
  measure("greedy, 20 logprobs", logits, row);
  row = {};
  measure("temperature 1", logits, row);
  row.min_p = 0.05f;
  measure("min-p 0.05", logits, row);
  row.min_p = 0;
  row.top_p = 0.95f;
  measure("top-p 0.95", logits, row);
  row.top_k = 64;
  measure("top-k 64, top-p 0.95", logits, row);
  const std::vector<int32_t> prompt(8192, 17);
  row.prompt_tokens = prompt;
  row.repetition_penalty = 1.1f;
  measure("the same, repetition 1.1", logits, row);
  return 0;
}
