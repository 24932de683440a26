#include "kernels/gated_delta/gated_delta.h"

#include <array>
#include <limits>

#include "core/parallel.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {
namespace {

constexpr double kBound = 2e-5;  ///< of each head's state, and of ‖q‖ ‖S‖ for each head's output in each row
constexpr GatedDeltaArm kFast[] = {GatedDeltaArm::kRecurrent, GatedDeltaArm::kChunk16, GatedDeltaArm::kChunk32,
                                   GatedDeltaArm::kChunk64};

/// Weights and inputs of a layer. Decays as trained models have them: a_log about log(1 … 16), dt_bias spread.
struct Problem {
  Problem(const GatedDeltaShape& s, int64_t row_count, std::mt19937_64& random, bool sigmoid = false)
      : shape(s), rows(row_count), stride(s.columns() + 3) {
    conv = normal(random, static_cast<size_t>(s.kernel * s.channels()), 0.4f);
    norm = normal(random, static_cast<size_t>(s.v_dim));
    dt_bias = normal(random, static_cast<size_t>(s.value_heads));
    std::uniform_real_distribution<float> uniform(-2.0f, 2.7f);
    for (int h = 0; h < s.value_heads; ++h) a_log.push_back(uniform(random));
    in = normal(random, static_cast<size_t>(rows * stride), 1.5f);
    weights = {conv.data(), a_log.data(), dt_bias.data(), norm.data(), 1e-6f, sigmoid};
  }
  GatedDeltaShape shape;
  int64_t rows, stride;
  std::vector<float> conv, norm, dt_bias, a_log, in;
  GatedDeltaWeights weights;
};

/// What a sequence carries.
struct Carried {
  explicit Carried(const GatedDeltaShape& shape)
      : conv(static_cast<size_t>(shape.conv_elements()), 0.0f),
        state(static_cast<size_t>(shape.state_elements()), 0.0f) {}
  std::vector<float> conv, state;
  bool operator==(const Carried&) const = default;
};

/// Runs rows [0, rows) in calls that end at `cuts` (and at the end).
std::vector<float> run(const Problem& p, GatedDeltaArm arm, const std::vector<int64_t>& cuts, Carried& carried) {
  std::vector<float> out(static_cast<size_t>(p.rows * p.shape.values()));
  std::vector<int64_t> ends = cuts;
  ends.push_back(p.rows);
  int64_t first = 0;
  for (const int64_t end : ends) {
    if (end <= first) continue;
    GuardedBuffer y(static_cast<size_t>((end - first) * p.shape.values()));
    GuardedBuffer scratch(static_cast<size_t>(gated_delta_scratch(p.shape, end - first)));
    const GatedDeltaSequence sequence{0, end - first, first, carried.conv.data(), carried.state.data()};
    gated_delta(p.shape, p.weights, {&sequence, 1}, p.in.data() + first * p.stride, p.stride, y.data(),
                p.shape.values(), scratch.data(), arm);
    EXPECT_TRUE(y.guards_intact());
    EXPECT_TRUE(scratch.guards_intact());
    std::memcpy(out.data() + first * p.shape.values(), y.data(), y.size() * sizeof(float));
    first = end;
  }
  return out;
}

/// Largest ‖a − b‖ / ‖b‖ over stretches of `width`.
template <typename A, typename B>
double distance(const std::vector<A>& a, const std::vector<B>& b, int64_t width) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); i += static_cast<size_t>(width)) {
    double error = 0, power = 0;
    for (size_t j = i; j < i + static_cast<size_t>(width); ++j) {
      error += std::pow(double{a[j]} - double{b[j]}, 2);
      power += std::pow(double{b[j]}, 2);
    }
    const double relative = std::sqrt(error / std::max(power, 1e-30));
    if (!(relative <= worst)) worst = relative;
  }
  return worst;
}

struct Exact {
  explicit Exact(const Problem& p)
      : conv(static_cast<size_t>(p.shape.conv_elements())),
        state(static_cast<size_t>(p.shape.state_elements())),
        out(static_cast<size_t>(p.rows * p.shape.values())),
        alignment(static_cast<size_t>(p.rows * p.shape.value_heads)) {
    gated_delta_ref(p.shape, p.weights, p.in.data(), p.stride, p.rows, conv.data(), state.data(), out.data(),
                    alignment.data());
  }
  /// Largest difference of a head's output in one row, as a share of ‖q‖ ‖S‖ before the norm.
  template <typename B>
  double row_distance(const GatedDeltaShape& shape, const std::vector<float>& got, const std::vector<B>& wanted) const {
    double worst = 0;
    for (size_t i = 0; i < alignment.size(); ++i) {
      const auto from = static_cast<std::ptrdiff_t>(i) * shape.v_dim;
      const std::vector<float> a(got.begin() + from, got.begin() + from + shape.v_dim);
      const std::vector<B> b(wanted.begin() + from, wanted.begin() + from + shape.v_dim);
      const double error = distance(a, b, shape.v_dim) * std::min(1.0, alignment[i]);
      if (!(error <= worst)) worst = error;
    }
    return worst;
  }
  std::vector<double> conv, state, out, alignment;
};

constexpr GatedDeltaShape kShapes[] = {
    {2, 4, 16, 16, 4, false},    // the tiny fixtures
    {4, 8, 32, 32, 4, false},    // the trained hybrid
    {2, 4, 128, 128, 4, false},  // Qwen3-Next's heads
    {2, 6, 128, 128, 4, true},   // tiled, three value heads a key head
    {1, 1, 24, 20, 2, false},    // no whole vectors
    {3, 3, 7, 5, 5, true},       // odd everywhere
};

TEST(GatedDelta, MatchesF64) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    double worst = 0;
    for (const GatedDeltaShape& shape : kShapes) {
      for (const bool sigmoid : {false, true}) {
        const Problem p(shape, 150, random, sigmoid);
        const Exact exact(p);
        for (const GatedDeltaArm arm : kFast) {
          Carried carried(shape);
          const auto out = run(p, arm, {}, carried);
          const double error = std::max(exact.row_distance(shape, out, exact.out),
                                        distance(carried.state, exact.state, int64_t{shape.k_dim} * shape.v_dim));
          EXPECT_LE(error, kBound) << gated_delta_arm_name(arm) << " k_dim " << shape.k_dim;
          EXPECT_EQ(distance(carried.conv, exact.conv, 1), 0.0);
          worst = std::max(worst, error);
        }
      }
    }
    std::cout << "largest error " << worst << "\n";
  });
}

// Prompt lengths and cuts at chunk borders: token by token is bit for bit the recurrence in one call; a chunked prompt
// is so where it is cut at a multiple of its chunk, and within the bound elsewhere.
TEST(GatedDelta, CutsDoNotMatter) {
  std::mt19937_64 random(fresh_seed());
  for_each_target([&] {
    for (const int64_t rows : {1, 3, 63, 64, 65, 129}) {
      const GatedDeltaShape shape{1, 2, 32, 32, 4};
      const Problem p(shape, rows, random);
      const Exact exact(p);
      const int64_t block = int64_t{shape.k_dim} * shape.v_dim;
      std::vector<int64_t> each(static_cast<size_t>(rows));
      for (int64_t i = 0; i < rows; ++i) each[static_cast<size_t>(i)] = i;
      Carried whole_state(shape), each_state(shape);
      const auto whole = run(p, GatedDeltaArm::kRecurrent, {}, whole_state);
      EXPECT_EQ(run(p, GatedDeltaArm::kRecurrent, each, each_state), whole) << rows << " tokens one by one";
      EXPECT_EQ(each_state, whole_state);
      for (const auto& [arm, chunk] :
           {std::pair{GatedDeltaArm::kChunk16, 16}, {GatedDeltaArm::kChunk32, 32}, {GatedDeltaArm::kChunk64, 64}}) {
        Carried base_state(shape);
        const auto base = run(p, arm, {}, base_state);
        EXPECT_LE(exact.row_distance(shape, base, whole), kBound);
        EXPECT_LE(distance(base_state.state, whole_state.state, block), kBound);
        for (const int64_t cut : {1, 3, 16, 32, 63, 64, 65, 128, 129}) {
          if (cut >= rows) continue;
          Carried cut_state(shape);
          const auto out = run(p, arm, {cut}, cut_state);
          EXPECT_LE(exact.row_distance(shape, out, base), kBound) << rows << " cut at " << cut;
          EXPECT_LE(distance(cut_state.state, base_state.state, block), kBound) << rows << " cut at " << cut;
          EXPECT_EQ(cut_state.conv, base_state.conv);
          if (cut % chunk == 0) {
            EXPECT_EQ(out, base) << rows << " cut at " << cut;
            EXPECT_EQ(cut_state, base_state);
          }
        }
      }
    }
  });
}

// Ragged sequences in one call, in two orders and with any number of threads, against each alone.
TEST(GatedDelta, SequencesAreIndependent) {
  std::mt19937_64 random(fresh_seed());
  const GatedDeltaShape shape{2, 4, 16, 16, 4};
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{70, 1, 33, 2}, {1, 1, 1, 1}}) {
    std::vector<Problem> problems;
    for (const int64_t count : counts) problems.emplace_back(shape, count, random);
    for (Problem& p : problems) p.weights = problems.front().weights;
    for_each_target([&] {
      for (const GatedDeltaArm arm : kFast) {
        for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2, 3}, {2, 0, 3, 1}}) {
          for (const int thread_count : {1, 2, 3}) {
            set_threads(thread_count);
            std::vector<Carried> carried(order.size(), Carried(shape));
            std::vector<GatedDeltaSequence> sequences;
            std::vector<float> in;
            int64_t row = 0;
            for (size_t i = 0; i < order.size(); ++i) {
              const Problem& p = problems[order[i]];
              sequences.push_back({row, p.rows, 0, carried[i].conv.data(), carried[i].state.data()});
              in.insert(in.end(), p.in.begin(), p.in.end());
              row += p.rows;
            }
            std::vector<float> out(static_cast<size_t>(row * shape.values()));
            std::vector<float> scratch(static_cast<size_t>(gated_delta_scratch(shape, row)), NAN);
            gated_delta(shape, problems.front().weights, sequences, in.data(), problems.front().stride, out.data(),
                        shape.values(), scratch.data(), arm);
            for (size_t i = 0; i < order.size(); ++i) {
              Carried alone(shape);
              const auto wanted = run(problems[order[i]], arm, {}, alone);
              EXPECT_EQ(std::memcmp(out.data() + sequences[i].row * shape.values(), wanted.data(),
                                    wanted.size() * sizeof(float)),
                        0)
                  << gated_delta_arm_name(arm) << " sequence " << order[i] << " threads " << thread_count;
              EXPECT_EQ(carried[i], alone);
            }
          }
        }
      }
    });
    set_threads(0);
  }
}

// A copy of what a sequence carries continues exactly as the original would.
TEST(GatedDelta, ASnapshotIsExact) {
  std::mt19937_64 random(fresh_seed());
  const GatedDeltaShape shape{2, 4, 32, 32, 4};
  const Problem p(shape, 100, random);
  for (const GatedDeltaArm arm : kFast) {
    Carried whole(shape), part(shape);
    const auto wanted = run(p, arm, {64}, whole);
    Problem head = p, tail = p;
    head.rows = 64;
    run(head, arm, {}, part);
    Carried copy = part;
    tail.in.erase(tail.in.begin(), tail.in.begin() + 64 * p.stride);
    tail.rows = 36;
    for (Carried* from : {&copy, &part}) {
      const auto got = run(tail, arm, {}, *from);
      EXPECT_EQ(std::memcmp(got.data(), wanted.data() + 64 * shape.values(), got.size() * sizeof(float)), 0);
      EXPECT_EQ(*from, whole);
    }
  }
}

TEST(GatedDelta, TheRefArmIsTheReference) {
  std::mt19937_64 random(fresh_seed());
  const Problem p({2, 4, 16, 16, 4}, 20, random);
  const Exact exact(p);
  Carried carried(p.shape);
  EXPECT_LE(distance(run(p, GatedDeltaArm::kRef, {}, carried), exact.out, 16), 1e-7);
  EXPECT_LE(distance(run(p, GatedDeltaArm::kRef, {}, carried = Carried(p.shape)), exact.out, 16), 1e-7);
}

// Gates at the ends of their ranges: a decay that underflows (the state is forgotten), none at all, β of 0 and 1.
void check_extreme_gates(std::mt19937_64& random, float a_log, float b, double absolute_bound) {
  Problem p({1, 2, 16, 16, 4}, 70, random);
  p.a_log = {a_log, 0.0f};
  p.weights.a_log = p.a_log.data();
  for (int64_t t = 0; t < p.rows; ++t) {
    float* gates = p.in.data() + t * p.stride + p.shape.channels() + p.shape.values();
    gates[0] = b;
    gates[2] = t % 2 == 0 ? 25.0f : -60.0f;  // a: past softplus' threshold, and where it vanishes
  }
  const Exact exact(p);
  for (const GatedDeltaArm arm : kFast) {
    Carried carried(p.shape);
    const auto out = run(p, arm, {}, carried);
    double worst = 0;
    for (size_t i = 0; i < out.size(); ++i) worst = std::max(worst, std::fabs(out[i] - exact.out[i]));
    EXPECT_LE(worst, absolute_bound) << gated_delta_arm_name(arm) << " a_log " << a_log << " b " << b;
    EXPECT_LE(exact.row_distance(p.shape, out, exact.out), kBound)
        << gated_delta_arm_name(arm) << " a_log " << a_log << " b " << b;
    for (const float s : carried.state) ASSERT_TRUE(std::isfinite(s));
  }
}

TEST(GatedDelta, ExtremeGatesMatchF64) {
  // Fresh draws are judged in units of ‖q‖‖S‖: where q·k of a forgetting head nearly cancels, the norm magnifies f32's
  // rounding without a bound (seed 2369740720 passes 1e-4 by a fifth). The absolute error is judged on one draw: β of
  // 4e-18 leaves outputs that the norm's eps dominates.
  std::mt19937_64 fresh(fresh_seed()), fixed(1552742795);
  for_each_target([&] {
    for (const float a_log : {-30.0f, 12.0f, 80.0f}) {
      for (const float b : {-40.0f, 0.0f, 40.0f}) {
        check_extreme_gates(fresh, a_log, b, std::numeric_limits<double>::infinity());
        check_extreme_gates(fixed, a_log, b, 1e-4);
      }
    }
  });
}

TEST(GatedDelta, NaNStaysInItsSequence) {
  std::mt19937_64 random(fresh_seed());
  const GatedDeltaShape shape{2, 4, 16, 16, 4};
  Problem p(shape, 40, random);
  p.in[static_cast<size_t>(5 * p.stride)] = NAN;  // a channel of q
  for (const GatedDeltaArm arm : kFast) {
    std::vector<Carried> carried(2, Carried(shape));
    const std::array<GatedDeltaSequence, 2> sequences = {
        GatedDeltaSequence{0, 20, 0, carried[0].conv.data(), carried[0].state.data()},
        GatedDeltaSequence{20, 20, 0, carried[1].conv.data(), carried[1].state.data()}};
    std::vector<float> out(static_cast<size_t>(40 * shape.values()));
    std::vector<float> scratch(static_cast<size_t>(gated_delta_scratch(shape, 40)));
    gated_delta(shape, p.weights, sequences, p.in.data(), p.stride, out.data(), shape.values(), scratch.data(), arm);
    EXPECT_TRUE(std::isnan(out[static_cast<size_t>(5 * shape.values())]));
    for (size_t i = static_cast<size_t>(20 * shape.values()); i < out.size(); ++i) ASSERT_TRUE(std::isfinite(out[i]));
  }
}

TEST(GatedDelta, ArmsHaveNames) {
  for (const char* name : {"auto", "ref", "recurrent", "chunk16", "chunk32", "chunk64"}) {
    const auto arm = gated_delta_arm_from_name(name);
    ASSERT_TRUE(arm.has_value()) << name;
    EXPECT_STREQ(gated_delta_arm_name(*arm), name);
  }
  EXPECT_FALSE(gated_delta_arm_from_name("chunk48").has_value());
}

}  // namespace
}  // namespace galvani::kernels
