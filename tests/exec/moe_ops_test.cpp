// Ops::moe itself: that each expert is reached by its own index, in every stack, whatever the batch.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "exec/cpu_ops.h"
#include "kernels/qmatmul/qmatmul.h"

namespace galvani::exec {
namespace {

constexpr int kExperts = 24, kTopK = 3;
constexpr int64_t kHidden = 32, kInner = 32;

/// Every element the same.
class ConstantMatrix final : public quant::MatrixSource {
 public:
  ConstantMatrix(int64_t rows, int64_t cols, float value) : value_(value) {
    name_ = "constant";
    rows_ = rows, cols_ = cols;
  }
  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    std::fill_n(out, (r1 - r0) * cols_, value_);
    return {};
  }

 private:
  float value_;
};

/// Row e is the unit vector e: a token that is c times unit vector e gives expert e the logit c.
class Identity final : public quant::MatrixSource {
 public:
  Identity(int64_t rows, int64_t cols) {
    name_ = "identity";
    rows_ = rows, cols_ = cols;
  }
  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    for (int64_t r = r0; r < r1; ++r)
      for (int64_t c = 0; c < cols_; ++c) *out++ = r == c ? 1.0f : 0.0f;
    return {};
  }
};

quant::MatrixPtr constant(int64_t rows, int64_t cols, float value) {
  return std::make_shared<ConstantMatrix>(rows, cols, value);
}

float own_value(int expert) { return 1.0f + 0.125f * static_cast<float>(expert); }

/// One stack has a value of its own for every expert, the others are all 1: gate, up, down, or the biases of the down
/// product.
enum class Differs { kGate, kUp, kDown, kDownBias };

struct Built {
  std::unique_ptr<Ops> ops;
  MoeLayer layer;
  int64_t expert_bytes = 0;  ///< of one expert, both products, as packed
};

Built build(Differs differs, const char* arm) {
  Built built;
  OpsOptions options;
  options.poison = true;
  options.arms = {{"qmatmul", arm}};
  auto ops = create_cpu_ops(options);
  EXPECT_TRUE(ops.has_value());
  built.ops = std::move(*ops);
  std::vector<std::vector<LinearPart>> gate_up, down;
  for (int e = 0; e < kExperts; ++e) {
    const float own = own_value(e), scale = 1.0f / static_cast<float>(kHidden);
    gate_up.push_back({{constant(kInner, kHidden, differs == Differs::kGate ? own : 1.0f), {}},
                       {constant(kInner, kHidden, differs == Differs::kUp ? own : 1.0f), {}}});
    LinearPart part{constant(kHidden, kInner, scale * (differs == Differs::kDown ? own : 1.0f)), {}};
    if (differs == Differs::kDownBias) part.bias.assign(kHidden, own);
    down.push_back({part});
  }
  MoeLayer& layer = built.layer;
  const LinearPart router{std::make_shared<Identity>(kExperts, kHidden), {}};
  layer.router.gate = *built.ops->load_linear("router", std::span(&router, 1));
  layer.router.experts = kExperts;
  layer.router.top_k = kTopK;
  layer.router.renormalize = true;
  const int64_t before = built.ops->weight_bytes();
  layer.gate_up = *built.ops->load_stack("gate_up", gate_up, kTopK);
  layer.down = *built.ops->load_stack("down", down, kTopK);
  built.expert_bytes = (built.ops->weight_bytes() - before) / kExperts;
  return built;
}

/// Token t wants experts first(t), first + 5, first + 11 with logits 3, 2, 1.
int chosen(int64_t token, int slot) {
  const int offsets[] = {0, 5, 11};
  return static_cast<int>((token * 7 + offsets[slot]) % kExperts);
}

void expect_own_experts(Differs differs, const char* arm, int64_t rows) {
  Built built = build(differs, arm);
  std::vector<float> x(static_cast<size_t>(rows * kHidden), 0.0f);
  for (int64_t t = 0; t < rows; ++t)
    for (int j = 0; j < kTopK; ++j) x[static_cast<size_t>(t * kHidden + chosen(t, j))] = static_cast<float>(3 - j);
  auto state = State::create({}, {.context = 64, .max_sequences = 1, .max_chunk = 64}, host_memory());
  ASSERT_TRUE(state.has_value()) << state.error().message;
  Batch batch;
  built.ops->begin_step(batch, **state);
  built.ops->begin_layer(2);
  const Act y = built.ops->moe({x.data(), rows, kHidden, kHidden}, std::nullopt, built.layer);
  ASSERT_TRUE(built.ops->finish_step().has_value());
  std::vector<float> out(static_cast<size_t>(rows * kHidden));
  ASSERT_TRUE(built.ops->read(y, out.data()).has_value());
  const double sum = 6;  // every row of a constant matrix sees 3 + 2 + 1
  const double total = std::exp(3.0) + std::exp(2.0) + std::exp(1.0);
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  std::vector<uint64_t> counts(kExperts, 0);
  for (int64_t t = 0; t < rows; ++t) {
    double wanted = 0;
    for (int j = 0; j < kTopK; ++j) {
      const int e = chosen(t, j);
      const double own = own_value(e), w = std::exp(3.0 - j) / total;
      const double gate = sum * (differs == Differs::kGate ? own : 1), up = sum * (differs == Differs::kUp ? own : 1);
      const double down = silu(gate) * up * (differs == Differs::kDown ? own : 1);
      wanted += w * (down + (differs == Differs::kDownBias ? own : 0));
      ++counts[static_cast<size_t>(e)];
    }
    for (int64_t c = 0; c < kHidden; ++c)
      ASSERT_NEAR(out[static_cast<size_t>(t * kHidden + c)], wanted, 1e-5 * wanted) << arm << " token " << t;
  }
  ASSERT_EQ(built.ops->expert_counts().size(), 3u);
  EXPECT_EQ(built.ops->expert_counts()[2], counts);
  EXPECT_TRUE(built.ops->expert_counts()[0].empty());
}

TEST(MoeOps, EveryExpertIsReachedByItsOwnIndex) {
  for (const Differs differs : {Differs::kGate, Differs::kUp, Differs::kDown, Differs::kDownBias})
    for (const char* arm : {"auto", "ref", "rows", "panel"})
      for (const int64_t rows : {1, 2, 5, 33, 200}) expect_own_experts(differs, arm, rows);
}

/// What the brief of the layer promises: of every expert that some token of the step has chosen, the weights are walked
/// once, whether one token chose it or two hundred; of the others nothing is.
TEST(MoeOps, EachChosenExpertIsReadOnceAStep) {
  for (const char* arm : {"auto", "ref", "rows", "panel"}) {
    Built built = build(Differs::kDown, arm);
    // As packed: the router is one matrix, the stacks kExperts equal ones.
    const auto all = static_cast<uint64_t>(built.ops->weight_bytes());
    const auto router = all - static_cast<uint64_t>(built.expert_bytes) * kExperts;
    auto state = State::create({}, {.context = 64, .max_sequences = 1, .max_chunk = 64}, host_memory());
    ASSERT_TRUE(state.has_value());
    for (const int64_t rows : {1, 2, 3, 5, 17, 33, 200}) {
      for (const bool same : {true, false}) {  // all tokens want the same three experts, or each its own
        std::vector<float> x(static_cast<size_t>(rows * kHidden), 0.0f);
        std::set<int> wanted;
        for (int64_t t = 0; t < rows; ++t)
          for (int j = 0; j < kTopK; ++j) {
            const int e = chosen(same ? 0 : t, j);
            wanted.insert(e);
            x[static_cast<size_t>(t * kHidden + e)] = static_cast<float>(3 - j);
          }
        Batch batch;
        built.ops->begin_step(batch, **state);
        built.ops->begin_layer(0);
        const uint64_t before = kernels::qmatmul_bytes_walked();
        built.ops->moe({x.data(), rows, kHidden, kHidden}, std::nullopt, built.layer);
        const uint64_t walked = kernels::qmatmul_bytes_walked() - before;
        ASSERT_TRUE(built.ops->finish_step().has_value());
        if (same) {
          ASSERT_EQ(wanted.size(), 3u);
        } else if (rows >= kExperts) {
          ASSERT_EQ(wanted.size(), size_t{kExperts});
        }
        EXPECT_EQ(walked, router + wanted.size() * static_cast<uint64_t>(built.expert_bytes))
            << arm << ", " << rows << " tokens, " << wanted.size() << " experts";
      }
    }
  }
}

// The router's own input: x itself or what the experts read, through its own norm or not.
TEST(MoeOps, TheRouterReadsWhatItsFamilySays) {
  const std::vector<float> ones(kHidden, 1.0f);
  std::vector<float> mask(kHidden, 0.0f);
  std::vector<float> x(kHidden, 0.0f);
  x[3] = 4.0f, x[9] = 3.0f, x[20] = 2.0f, x[21] = 1.0f;
  mask[20] = 50.0f, mask[21] = 40.0f, mask[9] = 30.0f;  // a router norm that prefers other experts
  for (const bool residual : {false, true}) {
    for (const bool own_norm : {false, true}) {
      Built built = build(Differs::kDown, "rows");
      std::vector<float> flat(kHidden, 0.0f);
      flat[9] = flat[20] = flat[21] = 1.0f;  // the block's norm: experts read these three columns only
      const Norm block{.weight = *built.ops->load_vector(flat), .eps = 0};
      built.layer.router.reads_residual = residual;
      if (own_norm) built.layer.router.norm = Norm{.weight = *built.ops->load_vector(mask), .eps = 0};
      auto state = State::create({}, {.context = 64, .max_sequences = 1, .max_chunk = 64}, host_memory());
      ASSERT_TRUE(state.has_value());
      Batch batch;
      built.ops->begin_step(batch, **state);
      built.ops->begin_layer(0);
      built.ops->moe({x.data(), 1, kHidden, kHidden}, block, built.layer);
      ASSERT_TRUE(built.ops->finish_step().has_value());
      const auto& counts = built.ops->expert_counts()[0];
      // Without its own norm a router that reads x wants 3, 9, 20; every other case leaves 9, 20, 21.
      const bool sees_three = residual && !own_norm;
      EXPECT_EQ(counts[3], sees_three ? 1u : 0u) << residual << own_norm;
      EXPECT_EQ(counts[21], sees_three ? 0u : 1u) << residual << own_norm;
      EXPECT_EQ(counts[9], 1u);
      EXPECT_EQ(counts[20], 1u);
    }
  }
}

TEST(MoeOps, TheSharedExpertAddsToAll) {
  for (const bool gated : {false, true}) {
    Built plain = build(Differs::kDown, "rows"), shared = build(Differs::kDown, "rows");
    const LinearPart gate_up[] = {{constant(kInner, kHidden, 0.5f), {}}, {constant(kInner, kHidden, 0.25f), {}}};
    const LinearPart down{constant(kHidden, kInner, 0.125f), {}}, gate{constant(1, kHidden, -0.25f), {}};
    shared.layer.shared_gate_up = *shared.ops->load_linear("shared", gate_up);
    shared.layer.shared_down = *shared.ops->load_linear("shared", std::span(&down, 1));
    if (gated) shared.layer.shared_gate = *shared.ops->load_linear("gate", std::span(&gate, 1));
    std::vector<float> x(3 * kHidden, 0.0f), a(x.size()), b(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % 5 == 0 ? 1.0f : 0.25f * static_cast<float>(i / kHidden);
    auto state = State::create({}, {.context = 64, .max_sequences = 1, .max_chunk = 64}, host_memory());
    ASSERT_TRUE(state.has_value());
    for (auto& [built, out] : {std::pair{&plain, &a}, {&shared, &b}}) {
      Batch batch;
      built->ops->begin_step(batch, **state);
      built->ops->begin_layer(0);
      const Act y = built->ops->moe({x.data(), 3, kHidden, kHidden}, std::nullopt, built->layer);
      ASSERT_TRUE(built->ops->finish_step().has_value());
      ASSERT_TRUE(built->ops->read(y, out->data()).has_value());
    }
    for (int64_t t = 0; t < 3; ++t) {
      double sum = 0;
      for (int64_t c = 0; c < kHidden; ++c) sum += x[static_cast<size_t>(t * kHidden + c)];
      const double g = 0.5 * sum, inner = g / (1 + std::exp(-g)) * 0.25 * sum;
      double wanted = inner * 0.125 * static_cast<double>(kInner);
      if (gated) wanted /= 1 + std::exp(0.25 * sum);
      for (int64_t c = 0; c < kHidden; ++c) {
        const auto at = static_cast<size_t>(t * kHidden + c);
        EXPECT_NEAR(b[at] - a[at], wanted, 1e-5 * (std::fabs(wanted) + std::fabs(b[at]))) << gated;
      }
    }
  }
}

}  // namespace
}  // namespace galvani::exec
