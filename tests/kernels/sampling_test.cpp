#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <optional>

#include "core/parallel.h"
#include "kernels/kernel_testing.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling_testing.h"

namespace galvani::kernels {
namespace {

TEST(Sampling, EveryDrawIsTheReferences) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    int compared = 0, left_out = 0;
    for (int32_t vocab : {1, 2, 5, 31, 33, 64, 1000, 5003}) {
      for (int trial = 0; trial < (vocab > 1000 ? 60 : 200); ++trial) {
        const std::vector<float> logits = normal(random, static_cast<size_t>(vocab), pick(random, {0.5f, 3.0f, 10.0f}));
        Case c = random_case(random, vocab);
        const auto kept = distribution_ref(logits.data(), vocab, c.bind());
        if (!kept.empty() && on_an_edge(logits.data(), vocab, c.row)) {
          ++left_out;
          continue;
        }
        for (uint64_t position = 0; position < 8; ++position) {
          c.row.position = position;
          const auto tokens = sample(logits.data(), 1, vocab, vocab, {&c.row, 1});
          if (kept.empty()) {
            ASSERT_FALSE(tokens.has_value());
            EXPECT_NE(tokens.error().message.find("row 0: no token is left"), std::string::npos)
                << tokens.error().message;
            break;
          }
          ASSERT_TRUE(tokens.has_value()) << tokens.error().message;
          const auto wanted = expected_id(kept, philox_uniform(c.row.seed, position));
          ++(wanted ? compared : left_out);
          if (wanted) {
            ASSERT_EQ((*tokens)[0].id, *wanted)
                << "vocab " << vocab << " temperature " << c.row.temperature << " k " << c.row.top_k << " p "
                << c.row.top_p << " min_p " << c.row.min_p << " kept " << kept.size();
          }
        }
      }
    }
    std::cout << compared << " draws compared, " << left_out << " too close to a border\n";
    ASSERT_GT(compared, 4000);
    ASSERT_LT(left_out, compared / 10);
  });
}

TEST(Sampling, LargeVocabulary) {
  std::mt19937_64 random(fresh_seed());
  const int64_t vocab = 262144;
  const std::vector<float> logits = normal(random, static_cast<size_t>(vocab), 2.0f);
  int compared = 0;
  for (int trial = 0; trial < 12; ++trial) {
    Case c;
    c.row.temperature = trial % 2 ? 1.0f : 0.6f;
    c.row.top_k = pick(random, {0, 0, 64, 2000});
    c.row.top_p = pick(random, {0.95f, 0.5f, 1.0f});
    c.row.min_p = pick(random, {0.0f, 0.01f});
    c.row.seed = random();
    const auto tokens = sample(logits.data(), 1, vocab, vocab, {&c.row, 1});
    ASSERT_TRUE(tokens.has_value());
    if (on_an_edge(logits.data(), vocab, c.row)) continue;
    const auto wanted = expected_id(distribution_ref(logits.data(), vocab, c.row), philox_uniform(c.row.seed, 0));
    if (!wanted) continue;
    ++compared;
    ASSERT_EQ((*tokens)[0].id, *wanted) << c.row.top_k << ' ' << c.row.top_p << ' ' << c.row.min_p;
  }
  EXPECT_GT(compared, 0);
}

/// Pearson's statistic of `draws` draws against the reference's distribution; degrees of freedom in `freedom`.
double chi_square(const std::vector<float>& logits, RowSampling row, int draws, int& freedom) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  const auto kept = distribution_ref(logits.data(), vocab, row);
  std::vector<int> count(logits.size());
  for (int i = 0; i < draws; ++i) {
    row.position = static_cast<uint64_t>(i);
    const auto tokens = sample(logits.data(), 1, vocab, vocab, {&row, 1});
    if (!tokens) return INFINITY;
    ++count[static_cast<size_t>((*tokens)[0].id)];
  }
  double statistic = 0, rest = 0;
  int rest_count = draws;
  freedom = 0;
  for (const auto& [id, p] : kept) {
    if (p * draws < 10) {  // too rare for the approximation: pooled
      rest += p * draws;
      continue;
    }
    const double difference = count[static_cast<size_t>(id)] - p * draws;
    statistic += difference * difference / (p * draws);
    rest_count -= count[static_cast<size_t>(id)];
    ++freedom;
  }
  if (rest > 0) statistic += (rest_count - rest) * (rest_count - rest) / rest;
  if (rest == 0) {
    EXPECT_EQ(rest_count, 0) << "draws outside the kept set";
    --freedom;
  }
  return statistic;
}

TEST(Sampling, Distribution) {
  // Fixed seeds: the outcome is the same each run. The bound is six standard deviations of a chi-square.
  std::mt19937_64 random(20240229);
  const std::vector<float> logits = normal(random, 60, 1.5f);
  for (int variant = 0; variant < 5; ++variant) {
    RowSampling row;
    row.seed = 1000 + static_cast<uint64_t>(variant);
    if (variant == 1) row.temperature = 0.5f;
    if (variant == 2) row.top_k = 10;
    if (variant == 3) row.top_p = 0.8f;
    if (variant == 4) row.min_p = 0.1f, row.temperature = 1.7f;
    int freedom = 0;
    const double statistic = chi_square(logits, row, 20000, freedom);
    std::cout << "variant " << variant << ": chi-square " << statistic << " with " << freedom << " degrees\n";
    ASSERT_GT(freedom, 2);
    EXPECT_LT(statistic, freedom + 6 * std::sqrt(2.0 * freedom)) << "variant " << variant;
  }
}

TEST(Sampling, GreedyTakesTheLowestOfTies) {
  std::vector<float> logits(1000, 1.0f);
  logits[500] = logits[77] = logits[900] = 5.0f;
  const int64_t vocab = 1000;
  RowSampling row;
  const auto id = [&] { return sample(logits.data(), 1, vocab, vocab, {&row, 1}).value()[0].id; };
  for_each_target([&] {
    row = {};
    row.temperature = 0;
    EXPECT_EQ(id(), 77);
    row.top_k = 1;  // filters are skipped, seeds do not matter
    row.top_p = 0.01f;
    row.seed = 99;
    EXPECT_EQ(id(), 77);
    const std::vector<int32_t> suppress = {77};
    row.suppress = suppress;
    EXPECT_EQ(id(), 500);
    const std::vector<std::pair<int32_t, float>> bias = {{500, -5.0f}, {3, 4.0f}};
    row.logit_bias = bias;
    EXPECT_EQ(id(), 3);
    row.valid_vocab = 2;
    EXPECT_EQ(id(), 0);
    // top-k 1 without greedy: the lowest of the ties too.
    row = {};
    row.top_k = 1;
    for (row.position = 0; row.position < 20; ++row.position) EXPECT_EQ(id(), 77);
  });
}

TEST(Sampling, PenaltiesInOrder) {
  // Token 1: bias 1 + 1 = 2, halved by repetition, minus 3 · 0.25 and 0.5. Token 2: −1 doubled. Token 3 only in the
  // prompt: halved, no presence penalty.
  const std::vector<float> logits = {-9.0f, 1.0f, -1.0f, 0.5f, -0.375f};
  const std::vector<std::pair<int32_t, float>> bias = {{1, 1.0f}};
  const std::vector<int32_t> prompt = {3, 3, 1}, output = {1, 2, 1, 1};
  RowSampling row;
  row.logit_bias = bias;
  row.prompt_tokens = prompt;
  row.output_tokens = output;
  row.repetition_penalty = 2.0f;
  row.frequency_penalty = 0.25f;
  row.presence_penalty = 0.5f;
  const auto kept = distribution_ref(logits.data(), 5, row);
  const std::vector<double> wanted = {-9.0, 2.0 / 2 - 0.75 - 0.5, -2.0 - 0.25 - 0.5, 0.25, -0.375};
  double sum = 0;
  for (double x : wanted) sum += std::exp(x);
  for (const auto& [id, p] : kept) EXPECT_NEAR(p, std::exp(wanted[static_cast<size_t>(id)]) / sum, 1e-12) << id;
  row.temperature = 0;
  for (int i = 0; i < 3; ++i)  // again and again: nothing of a call is left in the next
    EXPECT_EQ(sample(logits.data(), 1, 5, 5, {&row, 1}).value()[0].id, 3);
}

TEST(Sampling, RowsDoNotDependOnTheBatch) {
  std::mt19937_64 random(fresh_seed());
  const int32_t vocab = 777, rows = 9;
  const int64_t stride = vocab + 11;
  const std::vector<float> logits = normal(random, static_cast<size_t>(rows * stride), 2.0f);
  std::vector<Case> cases;
  for (int r = 0; r < rows; ++r) {
    Case c = random_case(random, vocab);
    c.mask.clear();
    c.row.valid_vocab = 0;
    c.row.top_logprobs = r;
    c.row.position = static_cast<uint64_t>(r);
    cases.push_back(c);
  }
  std::vector<RowSampling> all;
  for (Case& c : cases) all.push_back(c.bind());
  for_each_target([&] {
    for (int count : {1, 2, 3}) {
      set_threads(count);
      const auto together = sample(logits.data(), rows, vocab, stride, all);
      ASSERT_TRUE(together.has_value()) << together.error().message;
      for (int r = 0; r < rows; ++r) {
        const auto alone =
            sample(logits.data() + r * stride, 1, vocab, stride, {&all[static_cast<size_t>(r)], 1}).value();
        EXPECT_EQ(alone[0].id, (*together)[static_cast<size_t>(r)].id);
        EXPECT_EQ(alone[0].top, (*together)[static_cast<size_t>(r)].top);
      }
    }
    set_threads(0);
  });
}

TEST(Sampling, LogProbabilitiesAreTheRawOnes) {
  std::mt19937_64 random(fresh_seed());
  const int64_t vocab = 5000;
  std::vector<float> logits = normal(random, vocab, 3.0f);
  logits[4] = logits[2000] = 14.0f;  // a tie among the largest
  logits[4999] = 20.0f;              // not valid, yet part of the raw softmax
  double sum = 0;
  for (float x : logits) sum += std::exp(double{x});
  std::vector<int32_t> order(4990);
  for (int32_t i = 0; i < 4990; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const std::vector<std::pair<int32_t, float>> bias = {{17, 100.0f}};
  RowSampling row;
  row.valid_vocab = 4990;
  row.logit_bias = bias;
  row.temperature = 0.1f;
  for_each_target([&] {
    row.top_logprobs = 20;
    const SampledToken token = sample(logits.data(), 1, vocab, vocab, {&row, 1}).value()[0];
    EXPECT_EQ(token.id, 17);
    EXPECT_NEAR(token.logprob, logits[17] - std::log(sum), 2e-6 * std::fabs(token.logprob));
    ASSERT_EQ(token.top.size(), 20u);
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(token.top[i].first, order[i]);
      EXPECT_NEAR(token.top[i].second, logits[static_cast<size_t>(order[i])] - std::log(sum), 2e-6 * 10);
    }
    row.top_logprobs = 0;
    EXPECT_TRUE(std::isnan(sample(logits.data(), 1, vocab, vocab, {&row, 1}).value()[0].logprob));
    row.logprobs = true;
    EXPECT_EQ(sample(logits.data(), 1, vocab, vocab, {&row, 1}).value()[0].logprob, token.logprob);
    row.logprobs = false;
  });
}

TEST(Sampling, BrokenLogitsAreNamed) {
  std::vector<float> logits(3 * 40, 0.5f);
  std::vector<RowSampling> rows(3);
  const auto message = [&] {
    const auto result = sample(logits.data(), 3, 40, 40, rows);
    return result ? std::string("no error") : result.error().message;
  };
  for_each_target([&] {
    for (float temperature : {0.0f, 1.0f}) {
      for (RowSampling& row : rows) row.temperature = temperature;
      logits[2 * 40 + 39] = NAN;
      EXPECT_NE(message().find("row 2: the logit of token 39 is nan"), std::string::npos) << message();
      logits[2 * 40 + 39] = INFINITY;
      EXPECT_NE(message().find("row 2: the logit of token 39 is inf"), std::string::npos) << message();
      const std::vector<uint32_t> mask = {~0u, 0x0fu};
      rows[2].allowed_mask = mask.data();  // what is masked may be anything
      EXPECT_EQ(message(), "no error");
      rows[2].allowed_mask = nullptr;
      rows[2].valid_vocab = 39;
      EXPECT_EQ(message(), "no error");
      rows[2].valid_vocab = 0;
      logits[2 * 40 + 39] = 0.5f;
      std::fill(logits.begin() + 40, logits.begin() + 80, -INFINITY);
      EXPECT_NE(message().find("row 1: no token is left"), std::string::npos) << message();
      logits[41] = -3.0f;
      EXPECT_EQ(sample(logits.data(), 3, 40, 40, rows).value()[1].id, 1);
      logits.assign(3 * 40, 0.5f);
    }
  });
}

TEST(Sampling, ParametersOutOfRangeAreNamed) {
  const auto message = [](auto change) {
    RowSampling row;
    change(row);
    const Status status = validate(row, 100);
    return status ? std::string("no error") : status.error().message;
  };
  EXPECT_EQ(message([](RowSampling&) {}), "no error");
  const auto names = [&](auto change, const char* what) {
    EXPECT_NE(message(change).find(what), std::string::npos) << message(change);
  };
  names([](RowSampling& r) { r.temperature = -0.1f; }, "temperature is -0.1");
  names([](RowSampling& r) { r.temperature = NAN; }, "temperature is nan");
  names([](RowSampling& r) { r.temperature = INFINITY; }, "temperature is inf");
  names([](RowSampling& r) { r.top_p = 0; }, "top_p is 0");
  names([](RowSampling& r) { r.top_p = 1.01f; }, "top_p is 1.01");
  names([](RowSampling& r) { r.top_p = NAN; }, "top_p is nan");
  names([](RowSampling& r) { r.min_p = -1; }, "min_p is -1");
  names([](RowSampling& r) { r.min_p = 1.5f; }, "min_p is 1.5");
  names([](RowSampling& r) { r.repetition_penalty = 0; }, "repetition_penalty is 0");
  names([](RowSampling& r) { r.presence_penalty = 2.5f; }, "presence_penalty is 2.5");
  names([](RowSampling& r) { r.frequency_penalty = NAN; }, "frequency_penalty is nan");
  names([](RowSampling& r) { r.top_logprobs = 21; }, "top_logprobs is 21");
  names([](RowSampling& r) { r.valid_vocab = 101; }, "valid_vocab is 101");
  static const std::vector<int32_t> high = {5, 100}, negative = {-1};
  names([](RowSampling& r) { r.prompt_tokens = high; }, "prompt_tokens[1] is token id 100");
  names([](RowSampling& r) { r.output_tokens = negative; }, "output_tokens[0] is token id -1");
  names([](RowSampling& r) { r.suppress = high; }, "suppress[1] is token id 100");
  static const std::vector<std::pair<int32_t, float>> far = {{100, 1.0f}}, wild = {{1, NAN}};
  names([](RowSampling& r) { r.logit_bias = far; }, "logit_bias names token id 100");
  names([](RowSampling& r) { r.logit_bias = wild; }, "logit_bias of token 1 is nan");

  const std::vector<float> logits(10, 0.0f);
  std::vector<RowSampling> rows(2);
  rows[1].top_p = 7;
  const auto result = sample(logits.data(), 2, 5, 5, rows);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("row 1: top_p is 7"), std::string::npos) << result.error().message;
  EXPECT_FALSE(sample(logits.data(), 3, 5, 5, rows).has_value());
}

}  // namespace
}  // namespace galvani::kernels
