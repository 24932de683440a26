// What must not change the answer: how a prompt is cut into chunks, and what else is in the batch. Bit for bit while
// one arm is forced; within the logits bound when the plan may choose; exactly again under batch invariance.
#include <gtest/gtest.h>

#include <random>

#include "models/model_fixture.h"

namespace galvani::models {
namespace {

constexpr int kTokens = 130;  // passes the page border at 64 twice, and gemma3's window of 8 many times

struct Arms {
  const char* matmul;
  const char* attention;
};

std::vector<int32_t> random_ids(int count, int64_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
  return ids;
}

LoadOptions options_with(const Arms& arms, int sequences = 1) {
  LoadOptions options;
  options.max_sequences = sequences;
  if (std::string(arms.matmul) == "batch-invariant")
    options.batch_invariant = true;
  else
    options.arms = {{"qmatmul", arms.matmul}, {"attention", arms.attention}};
  return options;
}

class Invariance : public testing::TestWithParam<std::tuple<std::string, Arms>> {
 protected:
  void expect_same(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) const {
    const bool exact = std::string(std::get<1>(GetParam()).matmul) != "auto";
    EXPECT_LE(max_abs_difference(a, b), exact ? 0.0 : logits_bound(std::get<0>(GetParam())))
        << std::get<0>(GetParam()) << ": " << what;
  }
};

TEST_P(Invariance, ChunkedEqualsWhole) {
  const auto& [model, arms] = GetParam();
  auto runner = load(model, options_with(arms));
  ASSERT_NE(runner, nullptr);
  const auto ids = random_ids(kTokens, runner->info().vocab, 1);
  const auto whole = logits_of(*runner, ids, kTokens);
  for (int64_t chunk : {1, 3, 63, 64, 65})
    expect_same(whole, logits_of(*runner, ids, chunk), "chunk " + std::to_string(chunk));
}

TEST_P(Invariance, PrefillThenDecodeEqualsPrefill) {
  const auto& [model, arms] = GetParam();
  auto runner = load(model, options_with(arms));
  ASSERT_NE(runner, nullptr);
  const auto ids = random_ids(kTokens, runner->info().vocab, 2);
  const auto vocab = static_cast<size_t>(runner->info().vocab);
  const auto whole = logits_of(*runner, ids, kTokens);
  for (int prompt : {1, 2, 63, 64, 65, 129}) {
    auto sequence = runner->state().create_sequence();
    ASSERT_TRUE(sequence.has_value());
    for (int first : {0, prompt}) {
      exec::Batch batch;
      const int count = first == 0 ? prompt : 1;
      batch.add(*sequence, first, std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                exec::WantLogits::kLast);
      auto logits = runner->forward(batch);
      ASSERT_TRUE(logits.has_value()) << logits.error().message;
      std::vector<float> row(vocab);
      ASSERT_TRUE(runner->ops().read(*logits, row.data()).has_value());
      const auto position = static_cast<size_t>(first + count - 1);
      expect_same(row,
                  {whole.begin() + static_cast<long>(position * vocab),
                   whole.begin() + static_cast<long>((position + 1) * vocab)},
                  "position " + std::to_string(position));
    }
    runner->state().release(*sequence);
  }
}

// Three sequences of different lengths run together, in two orders, against each alone.
TEST_P(Invariance, ASequenceInABatchEqualsItAlone) {
  const auto& [model, arms] = GetParam();
  auto runner = load(model, options_with(arms, 3));
  ASSERT_NE(runner, nullptr);
  const auto vocab = static_cast<size_t>(runner->info().vocab);
  const std::vector<int> lengths = {70, 1, 33};
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> alone;
  for (size_t i = 0; i < lengths.size(); ++i) {
    ids.push_back(random_ids(lengths[i], runner->info().vocab, static_cast<uint32_t>(10 + i)));
    alone.push_back(logits_of(*runner, ids.back()));
  }
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, std::vector<size_t>{2, 0, 1}}) {
    exec::Batch batch;
    std::vector<exec::SeqId> sequences;
    for (size_t i : order) {
      auto sequence = runner->state().create_sequence();
      ASSERT_TRUE(sequence.has_value());
      sequences.push_back(*sequence);
      batch.add(*sequence, 0, ids[i], exec::WantLogits::kAll);
    }
    auto logits = runner->forward(batch);
    ASSERT_TRUE(logits.has_value()) << logits.error().message;
    std::vector<float> rows(static_cast<size_t>(logits->rows * logits->cols));
    ASSERT_TRUE(runner->ops().read(*logits, rows.data()).has_value());
    size_t offset = 0;
    for (size_t i : order) {
      const size_t size = ids[i].size() * vocab;
      expect_same({rows.begin() + static_cast<long>(offset), rows.begin() + static_cast<long>(offset + size)}, alone[i],
                  "sequence " + std::to_string(i));
      offset += size;
    }
    for (exec::SeqId sequence : sequences) runner->state().release(sequence);
  }
}

// A fork continues from its parent's past, and writing in one does not show in the other.
TEST_P(Invariance, AForkEqualsItsOwnHistory) {
  const auto& [model, arms] = GetParam();
  auto runner = load(model, options_with(arms, 2));
  ASSERT_NE(runner, nullptr);
  const auto vocab = static_cast<size_t>(runner->info().vocab);
  auto base = random_ids(70, runner->info().vocab, 20);
  const auto left = random_ids(8, runner->info().vocab, 21), right = random_ids(8, runner->info().vocab, 22);
  auto run = [&](exec::SeqId sequence, int first, std::span<const int32_t> tokens) {
    exec::Batch batch;
    batch.add(sequence, first, tokens, exec::WantLogits::kLast);
    auto logits = runner->forward(batch);
    EXPECT_TRUE(logits.has_value());
    std::vector<float> row(vocab);
    EXPECT_TRUE(runner->ops().read(*logits, row.data()).has_value());
    return row;
  };
  auto parent = runner->state().create_sequence();
  ASSERT_TRUE(parent.has_value());
  run(*parent, 0, base);
  auto child = runner->state().fork(*parent);
  ASSERT_TRUE(child.has_value());
  std::vector<float> from_parent, from_child;
  for (size_t i = 0; i < left.size(); ++i) {
    from_parent = run(*parent, 70 + static_cast<int>(i), std::span(left).subspan(i, 1));
    from_child = run(*child, 70 + static_cast<int>(i), std::span(right).subspan(i, 1));
  }
  runner->state().release(*parent);
  runner->state().release(*child);
  for (const auto& [tail, got] : {std::pair{left, from_parent}, std::pair{right, from_child}}) {
    auto ids = base;
    ids.insert(ids.end(), tail.begin(), tail.end());
    const auto whole = logits_of(*runner, ids);
    expect_same(got, {whole.end() - static_cast<long>(vocab), whole.end()}, "fork");
  }
}

std::string test_name(const testing::TestParamInfo<std::tuple<std::string, Arms>>& info) {
  const auto& [model, arms] = info.param;
  std::string name = model + "_" + arms.matmul + "_" + arms.attention;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// One row a line.
// clang-format off
const auto kModels = testing::Values(
    "hf/deepseek_v3",
    "hf/gemma3",
    "hf/gemma4_dense",
    "hf/gemma4_edge",
    "hf/gpt_oss",
    "hf/llama",
    "hf/qwen3_5",
    "hf/qwen3_moe",
    "mlx/deepseek_v3-4-32-affine",
    "mlx/gemma4_moe-5-64-affine",
    "mlx/olmoe-4-64-affine",
    "mlx/qwen3-6-32-affine",
    "mlx/qwen3_next-4-32-affine");
// clang-format on

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         testing::Combine(kModels, testing::Values(Arms{"rows", "tiles"}, Arms{"rows", "split"},
                                                                   Arms{"panel", "tiles"}, Arms{"auto", "auto"},
                                                                   Arms{"batch-invariant", ""})),
                         test_name);

}  // namespace
}  // namespace galvani::models
