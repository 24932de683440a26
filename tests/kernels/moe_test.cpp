// The router against f64 over random and adversarial logits, grouping, weighed sums and the grouped product.
#include "kernels/moe/moe.h"

#include <algorithm>
#include <set>

#include "core/parallel.h"
#include "kernels/kernel_testing.h"
#include "kernels/qmatmul/qmatmul.h"
#include "qmatmul_source.h"

namespace galvani::kernels {
namespace {

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed run(const std::vector<float>& logits, const RouteParams& params) {
  const auto rows = static_cast<int64_t>(logits.size()) / params.experts;
  const auto places = static_cast<size_t>(rows * params.top_k);
  Routed result{std::vector<int32_t>(places, -7), std::vector<float>(places)};
  EXPECT_TRUE(check_route(params).has_value());
  const auto status = route(logits.data(), rows, params.experts, params, result.ids.data(), result.weights.data());
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  return result;
}

/// What an expert is chosen by, in f64.
std::vector<double> choices(const float* logits, const RouteParams& p) {
  std::vector<double> result;
  double sum = 0;
  const double top = *std::max_element(logits, logits + p.experts);
  for (int e = 0; e < p.experts; ++e) sum += std::exp(logits[e] - top);
  if (p.score != RouteScore::kSoftmaxAll) sum = 1;
  for (int e = 0; e < p.experts; ++e) {
    const double score =
        p.score == RouteScore::kSigmoid ? 1 / (1 + std::exp(-double{logits[e]})) : std::exp(logits[e] - top) / sum;
    result.push_back(score + (p.bias ? p.bias[e] : 0));
  }
  return result;
}

/// Relative error of a weight: l − max is rounded once, which e^x turns into |l − max| units; then exp, the sum of n
/// positive terms (√n in practice), division and scalings.
double weight_bound(const float* logits, const RouteParams& p, int32_t expert) {
  const double top = *std::max_element(logits, logits + p.experts);
  const double shift = p.score == RouteScore::kSigmoid ? 0 : top - logits[expert];
  return 2 * kUnit * (10 + std::sqrt(p.experts) + shift);
}

/// The same experts in the same order with the same weights, but where two choices lie within f32's rounding.
void expect_route(const std::vector<float>& logits, const RouteParams& params, const std::string& what) {
  const Routed got = run(logits, params);
  const auto k = static_cast<size_t>(params.top_k), n = static_cast<size_t>(params.experts);
  std::vector<int32_t> ids(k);
  std::vector<double> weights(k);
  size_t exact_rows = 0;
  for (size_t r = 0; r * n < logits.size(); ++r) {
    route_ref(logits.data() + r * n, params, ids.data(), weights.data());
    const std::vector<int32_t> mine(got.ids.begin() + static_cast<std::ptrdiff_t>(r * k),
                                    got.ids.begin() + static_cast<std::ptrdiff_t>((r + 1) * k));
    ASSERT_EQ(std::set(mine.begin(), mine.end()).size(), k) << what << ": an expert twice";
    if (mine != ids) {
      const auto by = choices(logits.data() + r * n, params);
      for (size_t j = 0; j < k; ++j)
        ASSERT_NEAR(by[static_cast<size_t>(mine[j])], by[static_cast<size_t>(ids[j])], 4e-7)
            << what << ": row " << r << " slot " << j << " expert " << mine[j] << ", not " << ids[j];
      continue;
    }
    ++exact_rows;
    for (size_t j = 0; j < k; ++j)
      ASSERT_NEAR(got.weights[r * k + j], weights[j],
                  weight_bound(logits.data() + r * n, params, ids[j]) * std::fabs(weights[j]) + 1e-37)
          << what << ": row " << r << " slot " << j;
  }
  EXPECT_GE(exact_rows * 10, logits.size() / n * 9) << what;
}

struct Case {
  const char* name;
  RouteParams params;
  bool bias = false, expert_scale = false;
};

std::vector<Case> cases() {
  using enum RouteScore;
  return {
      {"A renormalised", {.score = kSoftmaxAll, .experts = 128, .top_k = 8, .renormalize = true}},
      {"A as it is", {.score = kSoftmaxAll, .experts = 64, .top_k = 8}},
      {"A, 8 of 1", {.score = kSoftmaxAll, .experts = 1, .top_k = 1}},
      {"A, all", {.score = kSoftmaxAll, .experts = 7, .top_k = 7, .renormalize = true}},
      {"A, expert scale", {.score = kSoftmaxAll, .experts = 128, .top_k = 8, .renormalize = true}, false, true},
      {"A, biased", {.score = kSoftmaxAll, .experts = 48, .top_k = 6, .scaling = 2.0f}, true},
      {"A, groups by max",
       {.score = kSoftmaxAll, .experts = 160, .top_k = 6, .scaling = 16, .groups = 8, .groups_kept = 3}},
      {"B", {.score = kSoftmaxTopK, .experts = 8, .top_k = 2}},
      {"B, odd sizes", {.score = kSoftmaxTopK, .experts = 33, .top_k = 5}},
      {"sigmoid", {.score = kSigmoid, .experts = 32, .top_k = 4}},
      {"V3",
       {.score = kSigmoid,
        .experts = 256,
        .top_k = 8,
        .renormalize = true,
        .scaling = 2.5f,
        .groups = 8,
        .groups_kept = 4,
        .group_top2 = true},
       true},
      {"V3, odd groups",
       {.score = kSigmoid,
        .experts = 15,
        .top_k = 5,
        .renormalize = true,
        .groups = 5,
        .groups_kept = 2,
        .group_top2 = true},
       true},
  };
}

TEST(Router, MatchesF64OnRandomLogits) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    for (Case c : cases()) {
      const auto n = static_cast<size_t>(c.params.experts);
      const auto bias = normal(random, n, 0.05f);
      auto scale = normal(random, n, 0.2f);
      for (float& value : scale) value += 1;
      if (c.bias) c.params.bias = bias.data();
      if (c.expert_scale) c.params.expert_scale = scale.data();
      for (const float deviation : {0.1f, 1.0f, 8.0f})
        expect_route(normal(random, 200 * n, deviation), c.params, c.name);
    }
  });
}

// Scores that saturate, differ by one ulp, or are huge; f32 must neither overflow nor choose an expert twice.
TEST(Router, MatchesF64OnAdversarialLogits) {
  std::mt19937_64 random(fresh_seed());
  for (const Case& c : cases()) {
    if (c.bias || c.expert_scale) continue;
    const auto n = static_cast<size_t>(c.params.experts);
    std::vector<std::vector<float>> rows(5, std::vector<float>(n));
    for (size_t e = 0; e < n; ++e) {
      rows[0][e] = static_cast<float>(e) * 1e3f - 3e4f;                          // far apart
      rows[1][e] = e % 2 ? 3e38f : -3e38f;                                       // near the end of f32
      rows[2][e] = -90.0f - static_cast<float>(random() % 8);                    // sigmoid near its smallest
      rows[3][e] = 17.0f + static_cast<float>(e) * 0x1p-19f;                     // neighbours in f32
      rows[4][e] = e == n / 2 ? 50.0f : -50.0f - static_cast<float>(e) * 0.01f;  // one rules
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      if (c.params.groups > 1 && i == 1) continue;  // ties between groups depend on rounding of equal sums
      const Routed got = run(rows[i], c.params);
      std::vector<int32_t> ids(static_cast<size_t>(c.params.top_k));
      std::vector<double> weights(ids.size());
      route_ref(rows[i].data(), c.params, ids.data(), weights.data());
      EXPECT_EQ(std::set(got.ids.begin(), got.ids.end()).size(), ids.size()) << c.name << " row " << i;
      for (size_t j = 0; j < ids.size(); ++j) {
        EXPECT_TRUE(std::isfinite(got.weights[j])) << c.name << " row " << i;
        if (c.params.score != RouteScore::kSigmoid) {
          EXPECT_NEAR(got.weights[j], weights[j],
                      weight_bound(rows[i].data(), c.params, ids[j]) * std::fabs(weights[j]) + 1e-37)
              << c.name << " row " << i;
        }
      }
    }
  }
}

TEST(Router, EqualScoresChooseTheLowerIndex) {
  for (const Case& c : cases()) {
    if (c.bias) continue;
    const std::vector<float> equal(static_cast<size_t>(c.params.experts), 0.25f);
    const Routed got = run(equal, c.params);
    for (int j = 0; j < c.params.top_k; ++j) EXPECT_EQ(got.ids[static_cast<size_t>(j)], j) << c.name;
  }
  // Groups too: two equal ones keep the first.
  const RouteParams groups{
      .score = RouteScore::kSigmoid, .experts = 6, .top_k = 2, .groups = 3, .groups_kept = 1, .group_top2 = true};
  EXPECT_EQ(run({0, 0, 3, 1, 3, 1}, groups).ids, (std::vector<int32_t>{2, 3}));
}

// The bias chooses and does not weigh; a group counts by its two best; the sum is that of the chosen.
TEST(Router, DeepSeekV3ByHand) {
  const float bias[] = {0, 0, 0, 0.9f, 0, 0};
  const RouteParams p{.score = RouteScore::kSigmoid,
                      .experts = 6,
                      .top_k = 2,
                      .renormalize = true,
                      .scaling = 2.5f,
                      .bias = bias,
                      .groups = 2,
                      .groups_kept = 1,
                      .group_top2 = true};
  // Group 1 wins by 0.5 + 0.9 for expert 3 (whose score alone is the lowest), though expert 0 has the best score.
  const Routed got = run({4.0f, -9.0f, -9.0f, 0.0f, 1.0f, -5.0f}, p);
  ASSERT_EQ(got.ids, (std::vector<int32_t>{3, 4}));
  const double a = 0.5, b = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(got.weights[0], 2.5 * a / (a + b), 1e-6);
  EXPECT_NEAR(got.weights[1], 2.5 * b / (a + b), 1e-6);
}

TEST(Router, RefusesNumbersThatAreNotFinite) {
  const RouteParams p{.score = RouteScore::kSoftmaxAll, .experts = 5, .top_k = 2};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(400 * 5, 0.5f);
    logits[5 * 123 + 3] = logits[5 * 300 + 1] = bad;
    std::vector<int32_t> ids(800);
    std::vector<float> weights(800);
    const auto status = route(logits.data(), 400, 5, p, ids.data(), weights.data());
    ASSERT_FALSE(status.has_value());
    EXPECT_NE(status.error().message.find("expert 3"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("row 123"), std::string::npos) << status.error().message;
  }
}

TEST(Router, ImpossibleNumbersAreNamed) {
  const auto message = [](const RouteParams& p) {
    const auto status = check_route(p);
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(message({.experts = 8, .top_k = 9}).find("9 experts a token of 8"), std::string::npos);
  EXPECT_NE(message({.experts = 8, .top_k = 0}).find("0 experts a token of 8"), std::string::npos);
  EXPECT_NE(message({.experts = 10, .top_k = 2, .groups = 4}).find("10 experts do not divide into 4 groups"),
            std::string::npos);
  EXPECT_NE(message({.experts = 8, .top_k = 2, .groups = 4, .groups_kept = 5}).find("5 of 4"), std::string::npos);
  EXPECT_NE(message({.experts = 8, .top_k = 3, .groups = 4, .groups_kept = 1}).find("at most 2"), std::string::npos);
  EXPECT_NE(message({.experts = 4, .top_k = 1, .groups = 4, .groups_kept = 2, .group_top2 = true}).find("two best"),
            std::string::npos);
  EXPECT_EQ(message({.experts = 8, .top_k = 2, .groups = 4, .groups_kept = 1}), "");
}

TEST(Router, ARowDoesNotDependOnItsBatch) {
  std::mt19937_64 random(fresh_seed());
  for (Case c : cases()) {
    const auto n = static_cast<size_t>(c.params.experts), k = static_cast<size_t>(c.params.top_k);
    const auto bias = normal(random, n, 0.05f);
    if (c.bias) c.params.bias = bias.data();
    const auto logits = normal(random, 300 * n);
    const Routed all = run(logits, c.params);
    for (const size_t r : {size_t{0}, size_t{151}, size_t{299}}) {
      const Routed one = run({logits.begin() + static_cast<std::ptrdiff_t>(r * n),
                              logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * n)},
                             c.params);
      for (size_t j = 0; j < k; ++j) {
        EXPECT_EQ(one.ids[j], all.ids[r * k + j]) << c.name;
        EXPECT_EQ(one.weights[j], all.weights[r * k + j]) << c.name;
      }
    }
  }
}

TEST(ExpertGroups, EveryPlaceIsFilledOnceAndByItsExpert) {
  std::mt19937_64 random(fresh_seed());
  ExpertGroups groups;
  for (const auto& [rows, top_k, experts] : {std::tuple{1, 8, 128}, {1, 1, 1}, {37, 3, 5}, {512, 8, 64}}) {
    std::vector<int32_t> ids;
    for (int r = 0; r < rows; ++r) {
      std::vector<int32_t> order(static_cast<size_t>(experts));
      for (int e = 0; e < experts; ++e) order[static_cast<size_t>(e)] = e;
      std::shuffle(order.begin(), order.end(), random);
      ids.insert(ids.end(), order.begin(), order.begin() + top_k);
    }
    groups.build(ids.data(), rows, top_k, experts);
    int64_t next = 0;
    int last = -1;
    for (const auto& group : groups.groups) {
      EXPECT_GT(group.expert, last);
      EXPECT_EQ(group.first, next);
      EXPECT_GT(group.count, 0);
      EXPECT_TRUE(
          std::is_sorted(groups.tokens.begin() + group.first, groups.tokens.begin() + group.first + group.count));
      last = group.expert, next += group.count;
    }
    ASSERT_EQ(next, int64_t{rows} * top_k);
    std::set<int64_t> seen;
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t place = groups.places[i];
      seen.insert(place);
      EXPECT_EQ(groups.tokens[static_cast<size_t>(place)], static_cast<int32_t>(i) / top_k);
      const auto owner = std::find_if(groups.groups.begin(), groups.groups.end(),
                                      [&](const auto& g) { return place >= g.first && place < g.first + g.count; });
      ASSERT_NE(owner, groups.groups.end());
      EXPECT_EQ(owner->expert, ids[i]);
    }
    EXPECT_EQ(seen.size(), ids.size());
  }
}

TEST(CombineExperts, SumsInOrderOfSlot) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    for (const int64_t dim : {1, 15, 16, 17, 64, 333, 2048}) {
      const int64_t rows = 9, stride = dim + 3;
      const int top_k = 5;
      const auto x = normal(random, static_cast<size_t>(rows * top_k * stride)), w = normal(random, 45);
      const auto shared = normal(random, static_cast<size_t>(rows * dim)), gate = normal(random, 9);
      std::vector<int64_t> places(45);
      for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
      std::shuffle(places.begin(), places.end(), random);
      GuardedBuffer y(static_cast<size_t>(rows * stride));
      combine_experts(x.data(), stride, places.data(), w.data(), rows, top_k, dim, y.data(), stride);
      std::vector<float> with_shared(static_cast<size_t>(rows * dim)), gated = with_shared;
      for (int64_t t = 0; t < rows; ++t)
        for (int64_t c = 0; c < dim; ++c)
          with_shared[static_cast<size_t>(t * dim + c)] = gated[static_cast<size_t>(t * dim + c)] =
              y[static_cast<size_t>(t * stride + c)];
      add_shared_expert(shared.data(), dim, nullptr, 0, rows, dim, with_shared.data(), dim);
      add_shared_expert(shared.data(), dim, gate.data(), 1, rows, dim, gated.data(), dim);
      EXPECT_TRUE(y.guards_intact());
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t c = 0; c < dim; ++c) {
          double sum = 0, size = 0;
          for (int j = 0; j < top_k; ++j) {
            const auto slot = static_cast<size_t>(t * top_k + j);
            const double part = double{w[slot]} * x[static_cast<size_t>(places[slot] * stride + c)];
            sum += part, size += std::fabs(part);
          }
          const auto at = static_cast<size_t>(t * dim + c);
          ASSERT_NEAR(y[static_cast<size_t>(t * stride + c)], sum, top_k * kUnit * size);
          ASSERT_NEAR(with_shared[at], sum + shared[at],
                      top_k * kUnit * size + 2 * kUnit * std::fabs(sum + shared[at]));
          const double factor = 1 / (1 + std::exp(-double{gate[static_cast<size_t>(t)]}));
          const double added = factor * shared[at];
          ASSERT_NEAR(gated[at], sum + added, (top_k + 1) * kUnit * size + 8 * kUnit * std::fabs(added));
        }
        for (int64_t c = dim; c < stride; ++c) ASSERT_TRUE(y.untouched(static_cast<size_t>(t * stride + c)));
      }
    }
  });
}

// Grouped products equal one product an expert, bit for bit: the same arm computes each row by itself.
TEST(QmatmulGrouped, EqualsOneProductAnItem) {
  std::mt19937_64 random(fresh_seed());
  const int64_t cols = 96, rows = 40, tokens = 61;
  const std::vector<int64_t> counts = {1, 0, 3, 9, 17, 2, 29};  // of the gathered rows, 61 together
  std::vector<std::unique_ptr<CpuMatrix>> matrices;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto seed = random();
    auto packed = i % 2 == 0
                      ? qmatmul_pack(testing::MemoryMatrix::affine_random(rows, cols, 4, 32, DType::kBF16,
                                                                          testing::Scales::kFree, seed),
                                     0, rows)
                      : qmatmul_pack(testing::MemoryMatrix::dense_random(rows, cols, DType::kBF16, seed), 0, rows);
    ASSERT_TRUE(packed.has_value());
    matrices.push_back(std::move(*packed));
  }
  const auto x = normal(random, static_cast<size_t>(tokens * cols));
  std::vector<int32_t> gathered(tokens);
  for (auto& row : gathered) row = static_cast<int32_t>(random() % static_cast<uint64_t>(tokens));
  for (const Arithmetic arithmetic : {Arithmetic::kF32, Arithmetic::kF16, Arithmetic::kBF16}) {
    for (const QmatmulArm arm : {QmatmulArm::kAuto, QmatmulArm::kRef, QmatmulArm::kRows, QmatmulArm::kPanel}) {
      for (const int team : {1, 2, 3}) {
        set_threads(team);
        CpuInput input;
        input.prepare_rows(x.data(), gathered, cols, cols, arithmetic);
        std::vector<const CpuMatrix*> segments;
        for (const auto& m : matrices) segments.push_back(m.get());
        std::vector<QmatmulItem> items;
        int64_t row = 0;
        for (size_t i = 0; i < counts.size(); ++i) {
          items.push_back(
              {.segments = {&segments[i], 1}, .x_row = row, .y_row = tokens - row - counts[i], .m = counts[i]});
          row += counts[i];
        }
        GuardedBuffer y(static_cast<size_t>(tokens * rows));
        qmatmul_grouped(items, input, y.data(), rows, arm);
        EXPECT_TRUE(y.guards_intact());
        for (size_t i = 0; i < counts.size(); ++i) {
          std::vector<float> own, wanted(static_cast<size_t>(counts[i] * rows));
          for (int64_t t = 0; t < counts[i]; ++t) {
            const float* from = x.data() + gathered[static_cast<size_t>(items[i].x_row + t)] * cols;
            own.insert(own.end(), from, from + cols);
          }
          if (counts[i] == 0) continue;
          qmatmul(*matrices[i], own.data(), counts[i], cols, wanted.data(), rows, arithmetic, arm);
          for (size_t c = 0; c < wanted.size(); ++c)
            ASSERT_EQ(y[static_cast<size_t>(items[i].y_row * rows) + c], wanted[c])
                << qmatmul_arm_name(arm) << " item " << i << " threads " << team;
        }
      }
    }
  }
  set_threads(0);
}

}  // namespace
}  // namespace galvani::kernels
