// The benches of attention time nothing that is wrong: their f64 elements by hand, and small cases on a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "bench/attention_reference.h"
#include "bench/kernel_session.h"
#include "bench/kernel_tune.h"

namespace galvani::bench {
namespace {

TEST(AttentionReference, IsTheFormula) {
  // One dim, scale ln 2: scores 0 and 2 ln 2, weights 1/5 and 4/5.
  std::vector<AttentionElement> elements;
  const double keys[] = {0, 1}, values[] = {10, -5};
  attention_reference(
      2, 1, std::log(2.0), 0x1p-8, 7, [](int) { return 2.0; }, [&](int t, int) { return keys[t]; },
      [&](int t, int) { return values[t]; }, elements);
  ASSERT_EQ(elements.size(), 1u);
  EXPECT_EQ(elements[0].at, 7);
  EXPECT_NEAR(elements[0].want, 10.0 / 5 - 5 * 4.0 / 5, 1e-12);
  // Σ w|v| = 2 + 4; the weights' rounding, and the result's.
  EXPECT_NEAR(elements[0].bound, 6 * (1.05 * 0x1p-8 + 0x1p-16) + 1.05 * 0x1p-8 * 2, 1e-12);
}

TEST(AttentionReference, FindsTheLargestDifferenceAndWhatIsNoNumber) {
  const std::vector<AttentionElement> elements = {{0, 1.0, 0.5}, {2, -1.0, 0.25}};
  EXPECT_EQ(attention_worst(elements, [](int64_t at) { return at == 0 ? 1.25 : -1.5; }), 2.0);
  EXPECT_EQ(attention_worst(elements, [](int64_t at) { return at == 0 ? NAN : -1.0; }), INFINITY);
}

class CudaSmallAttentionBench : public testing::Test {
 protected:
  void SetUp() override {
    const cuda::DriverState state = cuda::driver_state();
    if (state.kind != cuda::DriverState::Kind::kReady) GTEST_SKIP() << state.message;
    KernelBenchOptions options;
    options.replays = 3, options.launches = 2, options.most_copies = 2;
    auto opened = KernelSession::open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    session = std::make_unique<KernelSession>(std::move(*opened));
    if (!session->device().caps().has(Feature::kBf16)) GTEST_SKIP() << "the cases are bf16, which this GPU lacks";
  }
  std::unique_ptr<KernelSession> session;
};

TEST_F(CudaSmallAttentionBench, PrefillIsComparedThenTimed) {
  for (const auto& [dim, heads, kv_heads, length] : {std::tuple{128, 2, 1, 200}, {64, 4, 2, 64}, {256, 1, 1, 70}}) {
    AttentionPrefillCase c;
    c.dim = dim, c.heads = heads, c.kv_heads = kv_heads, c.length = length;
    const Status done = time_attention_prefill(*session, c);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(c.failure, "") << c.kernel << " dim " << dim;
    EXPECT_GT(c.worst, 0) << "nothing was compared";
    EXPECT_LE(c.worst, 1);
    EXPECT_GT(c.time.median, 0);
    EXPECT_EQ(c.operations, 4.0 * heads * dim * length * (length + 1) / 2);
  }
}

TEST_F(CudaSmallAttentionBench, DecodeIsComparedThenTimed) {
  AttentionTuneCase c;
  c.dim = 64, c.batch = 2, c.heads = 4, c.kv_heads = 2, c.length = 192;
  const Status done = tune_attention(*session, c);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(c.bytes, int64_t{2} * 192 * 2 * 64 * 2 * 2);
  int chosen = 0;
  ASSERT_FALSE(c.rows.empty());
  for (const AttentionTuneRow& row : c.rows) {
    EXPECT_EQ(row.failure, "") << row.segment;
    EXPECT_GT(row.worst, 0);
    EXPECT_LE(row.worst, 1);
    EXPECT_GT(row.time.median, 0);
    chosen += row.chosen;
  }
  EXPECT_EQ(chosen, 1);
}

TEST_F(CudaSmallAttentionBench, OperationsBetweenProductsAreComparedThenTimed) {
  std::set<std::string> names;
  for (SmallCase c : small_tune_cases()) {
    const bool draws = c.operation == SmallCase::Operation::kGreedy || c.operation == SmallCase::Operation::kTopKTopP;
    c.rows = draws ? std::min(c.rows, 2) : std::min(c.rows, 130);  // 130: the form for many rows of rope and append
    const Status done = tune_small(*session, c);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(c.failure, "") << small_name(c);
    EXPECT_LE(c.worst, 1) << small_name(c);
    const bool exact = draws || c.operation == SmallCase::Operation::kEmbed;
    EXPECT_TRUE(exact || c.worst > 0) << small_name(c) << ": nothing was compared";
    EXPECT_GT(c.time.median, 0) << small_name(c);
    EXPECT_GT(c.bytes, 0);
    names.insert(small_name(c));
  }
  EXPECT_EQ(names.size(), 14u);
}

TEST(AttentionBench, GoalsAreAmongTheCases) {
  // 50 MB of keys and values and more; 8,192 tokens at heads of 128 and 256.
  bool at_the_goals_edge = false;
  for (const AttentionTuneCase& c : attention_tune_cases()) {
    const double mb = 4e-6 * c.batch * c.length * c.kv_heads * c.dim;
    at_the_goals_edge |= mb > 50 && mb < 51;
  }
  EXPECT_TRUE(at_the_goals_edge);
  std::set<int> dims;
  for (const AttentionPrefillCase& c : attention_prefill_cases())
    if (c.length == 8192) dims.insert(c.dim);
  EXPECT_EQ(dims.count(128) + dims.count(256), 2u);
}

}  // namespace
}  // namespace galvani::bench
