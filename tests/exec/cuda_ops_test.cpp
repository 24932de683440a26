// What CudaOps does that no kernel's own test sees: norms over all heads at once, counted activations, uploads. Skips
// where there is no GPU.
#include "exec/cuda_ops.h"

#include <gtest/gtest.h>

#include "cuda/device.h"
#include "exec/cpu_ops.h"
#include "exec/cuda_weights.h"
#include "kernels/kernel_testing.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul_source.h"

namespace galvani::exec {
namespace {

using kernels::testing::MemoryMatrix;
using kernels::testing::Scales;

constexpr int kHidden = 64, kHeads = 4, kKvHeads = 2, kDim = 32, kRows = 5;

class CudaSmallOps : public testing::Test {
 protected:
  void SetUp() override {
    const cuda::DriverState state = cuda::driver_state();
    if (state.kind != cuda::DriverState::Kind::kReady) GTEST_SKIP() << state.message;
  }
  static std::unique_ptr<Ops> gpu(bool count) {
    auto ops = create_cuda_ops({.arithmetic = kernels::Arithmetic::kF16, .count_activations = count}, {});
    EXPECT_TRUE(ops.has_value()) << ops.error().message;
    return std::move(*ops);
  }
  static std::unique_ptr<Ops> cpu(bool count) {
    auto ops = create_cpu_ops({.arithmetic = kernels::Arithmetic::kF16, .count_activations = count});
    EXPECT_TRUE(ops.has_value()) << ops.error().message;
    return std::move(*ops);
  }
};

/// An attention layer on embedded tokens; what it gives, row after row.
std::vector<float> attend(Ops& ops, bool whole, bool bias, float embed_scale) {
  std::mt19937_64 random(7);
  const auto matrix = [&](int64_t rows, int64_t cols) {
    return std::make_shared<MemoryMatrix>(MemoryMatrix::dense_random(rows, cols, DType::kF16, random()));
  };
  const auto table = ops.load_embedding(matrix(16, kHidden));
  std::vector<LinearPart> parts;
  for (const int heads : {kHeads, kKvHeads, kKvHeads}) {
    parts.push_back({.matrix = matrix(heads * kDim, kHidden)});
    if (bias) parts.back().bias = kernels::normal(random, static_cast<size_t>(heads * kDim), 3.0f);
  }
  AttentionLayer layer;
  layer.qkv = *ops.load_linear("qkv", parts);
  const int width = whole ? kDim * kHeads : kDim, k_width = whole ? kDim * kKvHeads : kDim;
  const auto gains = kernels::normal(random, static_cast<size_t>(kDim * kHeads));
  layer.q_norm = Norm{.weight = *ops.load_vector(std::span(gains).first(static_cast<size_t>(width)))};
  layer.k_norm = Norm{.weight = *ops.load_vector(std::span(gains).first(static_cast<size_t>(k_width)))};
  layer.norm_whole = whole, layer.clip = 1.5f;
  layer.heads = kHeads, layer.kv_heads = kKvHeads, layer.k_dim = layer.v_dim = kDim;
  layer.scale = 0.3f;
  layer.rope = *ops.load_rope({.inv_freq = std::vector<float>(kDim / 2, 0.5f)});
  EXPECT_TRUE(ops.finish_load().has_value());
  StateSpec spec;
  spec.groups.push_back({.name = "full", .layers = 1, .kv_heads = kKvHeads, .k_dim = kDim, .v_dim = kDim});
  auto state = State::create(spec, {.kv_dtype = DType::kF16, .context = 64}, ops.memory());
  EXPECT_TRUE(state.has_value());
  Batch batch;
  const std::vector<int32_t> tokens = {1, 9, 3, 3, 15};
  batch.add(*(*state)->create_sequence(), 0, tokens, WantLogits::kLast);
  EXPECT_TRUE((*state)->reserve(batch.chunks[0]).has_value());
  ops.begin_step(batch, **state);
  Act x = ops.embed(*table, embed_scale);
  ops.begin_layer(0);
  const Act y = ops.attention(ops.attention_inputs(x, std::nullopt, layer), layer);
  const Status done = ops.finish_step();
  EXPECT_TRUE(done.has_value()) << done.error().message;
  std::vector<float> out(static_cast<size_t>(y.rows * y.cols));
  EXPECT_TRUE(ops.read(y, out.data()).has_value());
  return out;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * double{a[i] - b[i]}, size += double{b[i]} * b[i];
  return std::sqrt(squares / size);
}

/// norm(x + down(silu(gate)·up)) of `tokens` tokens, quantized weights: what it gives, row after row.
std::vector<float> feed_forward(Ops& ops, int tokens) {
  constexpr int kInner = 80;  // five row tiles: the last block of 128 rows is a partial one
  std::mt19937_64 random(7);
  const auto matrix = [&](int64_t rows, int64_t cols) {
    return std::make_shared<MemoryMatrix>(
        MemoryMatrix::affine_random(rows, cols, 4, 16, DType::kF16, Scales::kFree, random()));
  };
  const auto table = ops.load_embedding(
      std::make_shared<MemoryMatrix>(MemoryMatrix::dense_random(16, kHidden, DType::kF16, random())));
  const std::vector<LinearPart> both = {{.matrix = matrix(kInner, kHidden)}, {.matrix = matrix(kInner, kHidden)}},
                                one = {{.matrix = matrix(kHidden, kInner)}};
  const auto gate_up = ops.load_linear("gate_up", both), down = ops.load_linear("down", one);
  const Norm norm{.weight = *ops.load_vector(kernels::normal(random, kHidden))};
  EXPECT_TRUE(ops.finish_load().has_value());
  StateSpec spec;
  spec.groups.push_back({.name = "full", .layers = 1, .kv_heads = 1, .k_dim = kDim, .v_dim = kDim});
  auto state = State::create(spec, {.kv_dtype = DType::kF16, .context = 256}, ops.memory());
  EXPECT_TRUE(state.has_value());
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 16);
  Batch batch;
  batch.add(*(*state)->create_sequence(), 0, ids, WantLogits::kLast);
  EXPECT_TRUE((*state)->reserve(batch.chunks[0]).has_value());
  ops.begin_step(batch, **state);
  Act x = ops.embed(*table, 1.0f);
  ops.begin_layer(0);
  const Act inner = ops.gated_mlp(x, norm, *gate_up, Activation::kSilu);
  ops.linear_add(inner, *down, std::nullopt, x);
  const Act y = ops.norm(x, norm);
  const Status done = ops.finish_step();
  EXPECT_TRUE(done.has_value()) << done.error().message;
  std::vector<float> out(static_cast<size_t>(y.rows * y.cols));
  EXPECT_TRUE(ops.read(y, out.data()).has_value());
  return out;
}

/// Products that finish to the gate, and those that leave it to a kernel.
TEST_F(CudaSmallOps, GatedMlpsAreTheCpus) {
  for (const int tokens : {5, 100}) {
    const auto wanted = feed_forward(*cpu(false), tokens);
    auto device = cuda::CudaDevice::open(0);
    ASSERT_TRUE(device.has_value()) << device.error().message;
    for (const bool counts : {false, true}) {
      const auto ops = gpu(counts);
      const auto gates = [&] {
        uint64_t launches = 0;
        for (const auto& [kernel, count] : ops->kernels_run()) launches += kernel == "gated_sm70" ? count : 0;
        return launches;
      };
      const uint64_t before = gates();
      EXPECT_LT(distance(feed_forward(*ops, tokens), wanted), 3e-3) << tokens << " tokens, counts " << counts;
      const bool fused = tokens == 100 && !counts && (*device)->caps().has(Feature::kWgmma);
      EXPECT_EQ(gates() - before, fused ? 0u : 1u) << tokens << " tokens, counts " << counts;
    }
  }
}

TEST_F(CudaSmallOps, NormsOverAllHeadsAreTheCpus) {
  for (const bool bias : {false, true}) {
    const auto wanted = attend(*cpu(false), true, bias, 0.1f);
    EXPECT_LT(distance(attend(*gpu(false), true, bias, 0.1f), wanted), 3e-3) << "f16 pages and activations";
    EXPECT_GT(distance(attend(*gpu(false), false, bias, 0.1f), wanted), 3e-2) << "a norm a head is something else";
  }
}

TEST_F(CudaSmallOps, CountsWhatTheCpuCountsAndChangesNoBit) {
  const auto one = cpu(true), other = gpu(true);
  // Embeddings of up to 3 · 40000 pass what f16 holds.
  (void)attend(*one, false, false, 40000);
  (void)attend(*other, false, false, 40000);
  const auto& wanted = one->activation_counters();
  const auto& got = other->activation_counters();
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].values, wanted[i].values) << i;
    EXPECT_EQ(got[i].non_finite, wanted[i].non_finite) << i;
    EXPECT_EQ(got[i].saturated, wanted[i].saturated) << i;
  }
  EXPECT_GT(wanted.back().saturated, 0u);
  // What is counted waits for its product in f32, and is rounded then: to what it is without counting.
  auto counted = attend(*gpu(true), true, true, 0.1f);
  for (float& value : counted) value = f16_to_f32(f32_to_f16(value));
  EXPECT_EQ(counted, attend(*gpu(false), true, true, 0.1f));
}

// Every way to the device gives a16_pack's bytes: rows packed there, streams of no whole words packed here, several
// pieces, and parts joined to one matrix.
TEST_F(CudaSmallOps, UploadsArePackedAsOnTheCpu) {
  auto device = cuda::CudaDevice::open(0);
  ASSERT_TRUE(device.has_value()) << device.error().message;
  auto stream = cuda::Stream::create(**device);
  ASSERT_TRUE(stream.has_value());
  auto uploader = Uploader::create(*stream);
  ASSERT_TRUE(uploader.has_value());
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const auto& [cols, group] : {std::pair{256, 64}, {48, 16}, {160, 32}}) {
      const auto a = std::make_shared<MemoryMatrix>(
          MemoryMatrix::affine_random(32, cols, bits, group, DType::kBF16, Scales::kFree, 1));
      const auto b = std::make_shared<MemoryMatrix>(
          MemoryMatrix::affine_random(21, cols, bits, group, DType::kBF16, Scales::kFree, 2));
      const std::vector<LinearPart> parts = {{.matrix = a}, {.matrix = b}};
      const auto linear = upload_linear(*uploader, "both", parts);
      ASSERT_TRUE(linear.has_value()) << linear.error().message;
      ASSERT_TRUE(uploader->finish().has_value());
      ASSERT_EQ(linear->segments.size(), 1u);
      const kernels::CudaMatrix& matrix = *linear->segments[0].packed;
      EXPECT_EQ(matrix.rows, 53);
      std::vector<std::byte> wanted(static_cast<size_t>(matrix.packed_bytes())), got(wanted.size());
      const auto first = static_cast<size_t>(kernels::a16_bytes(matrix.format, 32, cols));
      ASSERT_TRUE(kernels::a16_pack(*a, 0, 32, std::span(wanted).first(first)).has_value());
      ASSERT_TRUE(kernels::a16_pack(*b, 0, 21, std::span(wanted).subspan(first)).has_value());
      ASSERT_TRUE(stream->to_host(got.data(), matrix.data, got.size()).has_value());
      ASSERT_TRUE(stream->synchronize().has_value());
      EXPECT_EQ(got, wanted) << bits << " bits, " << cols << " columns in groups of " << group;
    }
  EXPECT_GT(uploader->bytes(), 0);
  EXPECT_GT(uploader->seconds(), 0);
}

}  // namespace
}  // namespace galvani::exec
