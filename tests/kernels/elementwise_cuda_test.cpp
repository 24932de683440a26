// Gated activations, the logits' last step and embedding look-up on the GPU against f64.
#include "kernels/elementwise/elementwise_cuda.h"

#include "kernels/cuda_testing.h"
#include "kernels/elementwise/elementwise.h"
#include "quant/affine.h"

namespace galvani::kernels {
namespace {

class CudaSmallElementwise : public OnGpu {};

/// Of a table of 13 rows, one of them no token.
std::vector<int> some_tokens(int rows) {
  std::vector<int> tokens = {3, 0, 12, -1, 7};
  for (int r = 5; r < rows; ++r) tokens.push_back(r % 13);
  return tokens;
}

double gate_ref(Gate kind, double g, double u) {
  switch (kind) {
    case Gate::kSilu: return silu_ref(g) * u;
    case Gate::kGeluTanh: return gelu_tanh_ref(g) * u;
    case Gate::kSwigluClamped: return swiglu_clamped_ref(g, u, 1.702f, 7.0f);
    case Gate::kSigmoid: return u / (1 + std::exp(-g));
  }
  return NAN;
}

/// What f32 arithmetic may make of y = first · other / (1 + exp(−z)), in units u = 2^-24: z's own roundings grow by |z|
/// in the power (gelu_tanh: six with those of its constants; swiglu: one), the rest is at most eight. Where exp(−z) is
/// beyond f32, 2^128, the result is 0 instead of less than |first · other| · 2^-127.
double gate_error(Gate kind, double g, double u, double y) {
  const double roundings = kind == Gate::kGeluTanh ? 6 : kind == Gate::kSwigluClamped ? 1 : 0;
  const double z = kind == Gate::kGeluTanh ? 1.5957691216057308 * (g + 0.044715 * g * g * g) : 1.702 * g;
  const double factors = kind == Gate::kSigmoid ? std::fabs(u) : std::fabs(g) * (std::fabs(u) + 1);
  return (8 + roundings * std::min(std::fabs(z), 90.0)) * 0x1p-24 * std::fabs(y) + factors * 0x1p-127;
}

TEST_F(CudaSmallElementwise, GatesMatchTheReference) {
  std::mt19937_64 random(fresh_seed());
  for (const int dim : {1, 31, 63, 704, 1536, 2112, 4095, 14336, 17408}) {
    for (const Gate kind : {Gate::kSilu, Gate::kGeluTanh, Gate::kSwigluClamped, Gate::kSigmoid}) {
      for (const StoreType type : {StoreType::kF32, StoreType::kF16, StoreType::kBF16}) {
        const int rows = 3;
        const auto n = static_cast<size_t>(dim);
        auto x = normal(random, rows * 2 * n, 4.0f);
        const auto bias = normal(random, 2 * n);
        const bool biased = dim % 2 == 0;
        const auto dx = upload(x), dbias = upload(bias);
        auto out = poisoned(rows * n, type);
        ok(gated_cuda(*stream, {.gate = dx.as<float>(),
                                .up = dx.as<float>() + dim,
                                .gate_stride = 2 * dim,
                                .up_stride = 2 * dim,
                                .gate_bias = biased ? dbias.as<float>() : nullptr,
                                .up_bias = biased ? dbias.as<float>() + dim : nullptr,
                                .rows = rows,
                                .dim = dim,
                                .kind = kind,
                                .alpha = 1.702f,
                                .limit = 7.0f,
                                .out = out.data(),
                                .out_stride = dim,
                                .out_type = type}));
        const auto got = read(out, type);
        for (size_t i = 0; i < rows * n; ++i) {
          const size_t r = i / n, c = i % n;
          const float g = x[r * 2 * n + c] + (biased ? bias[c] : 0),
                      u = x[r * 2 * n + n + c] + (biased ? bias[n + c] : 0);
          const double y = gate_ref(kind, g, u), largest = 65504;
          if (type == StoreType::kF16 && std::fabs(y) > largest) continue;
          ASSERT_NEAR(got[i], y,
                      1.05 * store_unit(type) * std::fabs(y) + gate_error(kind, g, u, y) +
                          (type == StoreType::kF16 ? 0x1p-25 : 1e-37))
              << "dim " << dim << " gate " << int(kind) << " type " << int(type) << " element " << i;
        }
      }
    }
  }
}

/// Attention's output gate: u in half width, the result in its place, the gate inside a wider product.
TEST_F(CudaSmallElementwise, GatesInPlaceOfAHalfWidthInput) {
  std::mt19937_64 random(fresh_seed());
  for (const auto& [dim, stride, first] : {std::tuple{4096, 6144, 2048}, {4096, 6145, 3}, {31, 40, 4}, {2, 2, 0}}) {
    for (const StoreType type : {StoreType::kF16, StoreType::kBF16}) {
      const int rows = 3;
      const auto x = normal(random, static_cast<size_t>(rows * stride)),
                 u = normal(random, static_cast<size_t>(rows * dim));
      const auto dx = upload(x);
      auto du = upload(stored_bytes(u, type));
      ok(gated_cuda(*this->stream, {.gate = dx.as<float>() + first,
                                    .up = du.data(),
                                    .up_type = type,
                                    .gate_stride = stride,
                                    .up_stride = dim,
                                    .rows = rows,
                                    .dim = dim,
                                    .kind = Gate::kSigmoid,
                                    .out = du.data(),
                                    .out_stride = dim,
                                    .out_type = type}));
      const auto bytes = download<unsigned char>(du.data(), u.size() * 2);
      const auto got = to_floats(bytes.data(), u.size(), type);
      for (int i = 0; i < rows * dim; ++i) {
        const auto at = static_cast<size_t>(i);
        const double g = x[static_cast<size_t>(i / dim * stride + first + i % dim)], v = rounded(u[at], type),
                     y = gate_ref(Gate::kSigmoid, g, v);
        ASSERT_NEAR(got[at], y, 1.05 * store_unit(type) * std::fabs(y) + gate_error(Gate::kSigmoid, g, v, y) + 0x1p-25)
            << "dim " << dim << " type " << int(type) << " element " << i;
      }
    }
  }
}

TEST_F(CudaSmallElementwise, FinishMatchesTheReference) {
  std::mt19937_64 random(fresh_seed());
  for (const int dim : {1, 257, 49152}) {
    const auto n = static_cast<size_t>(dim);
    const auto x = normal(random, 2 * n, 20.0f), bias = normal(random, n);
    auto dx = upload(x);
    const auto dbias = upload(bias);
    ok(finish_rows_cuda(*stream, {.x = dx.as<float>(),
                                  .stride = dim,
                                  .rows = 2,
                                  .dim = dim,
                                  .bias = dbias.as<float>(),
                                  .scale = 0.5f,
                                  .cap = 30.0f}));
    const auto got = download<float>(dx.data(), 2 * n);
    for (size_t i = 0; i < 2 * n; ++i) {
      const double y = softcap_ref((double{x[i]} + bias[i % n]) * 0.5, 30);
      ASSERT_NEAR(got[i], y, 0x1p-20 * std::fabs(y) + 0x1p-21 * (std::fabs(x[i]) + std::fabs(bias[i % n]))) << i;
    }
  }
}

TEST_F(CudaSmallElementwise, EmbeddingRowsAreExact) {
  std::mt19937_64 random(fresh_seed());
  for (const int rows : {5, 70}) {  // spread over the GPU, and a block a row
    const std::vector<int> tokens = some_tokens(rows);
    const auto dtokens = upload(tokens);
    for (const int bits : {0, 2, 3, 4, 5, 6, 8}) {
      for (const StoreType type : {StoreType::kF32, StoreType::kF16, StoreType::kBF16}) {
        for (const int group : {16, 32, 64, 128}) {
          const int dim = 640, vocab = 13;
          std::vector<float> exact(static_cast<size_t>(vocab * dim));
          EmbedArgs args{.tokens = dtokens.as<int>(), .rows = rows, .dim = dim, .type = type, .scale = 25.25f};
          cuda::DeviceBuffer table, scales, biases;
          if (bits == 0) {
            const auto values = normal(random, exact.size());
            for (size_t i = 0; i < exact.size(); ++i) exact[i] = rounded(values[i], type);
            table = upload(stored_bytes(values, type));
          } else {
            auto tensor = quant::make_affine_tensor(vocab, dim, bits, group, dtype_of(type));
            const auto codes = static_cast<size_t>(vocab) * static_cast<size_t>(tensor.view.row_code_bytes());
            const auto scale_bytes = stored_bytes(normal(random, static_cast<size_t>(vocab * dim / group)), type),
                       bias_bytes = stored_bytes(normal(random, static_cast<size_t>(vocab * dim / group)), type);
            auto* base = const_cast<std::byte*>(tensor.view.codes);
            for (size_t i = 0; i < codes; ++i) base[i] = static_cast<std::byte>(random());
            std::memcpy(const_cast<std::byte*>(tensor.view.scales), scale_bytes.data(), scale_bytes.size());
            std::memcpy(const_cast<std::byte*>(tensor.view.biases), bias_bytes.data(), bias_bytes.size());
            quant::affine_dequant_rows(tensor.view, 0, vocab, exact.data());
            table = upload(std::span<const std::byte>(tensor.view.codes, codes));
            scales = upload(scale_bytes), biases = upload(bias_bytes);
            args.bits = bits, args.group = group;
            args.scales = scales.data(), args.biases = biases.data();
          }
          args.table = table.data();
          auto out = poisoned(static_cast<size_t>(rows * dim), StoreType::kF32);
          args.out = reinterpret_cast<float*>(out.data());
          ok(embed_cuda(*stream, args));
          const auto got = read(out, StoreType::kF32);
          for (int i = 0; i < rows * dim; ++i) {
            const int token = tokens[static_cast<size_t>(i / dim)];
            const float wanted = token < 0 ? 0 : exact[static_cast<size_t>(token * dim + i % dim)] * 25.25f;
            ASSERT_EQ(got[static_cast<size_t>(i)], wanted)
                << bits << " bits, " << rows << " rows, group " << group << ", element " << i;
          }
          if (bits == 0) break;
        }
      }
    }
  }
}

TEST_F(CudaSmallElementwise, DenseEmbeddingRowsOfAnyLengthAreExact) {
  std::mt19937_64 random(fresh_seed());
  for (const int rows : {5, 70}) {  // spread over the GPU, and a block a row
    const std::vector<int> tokens = some_tokens(rows);
    const auto dtokens = upload(tokens);
    for (const int dim : {1, 31, 258, 4096}) {
      for (const StoreType type : {StoreType::kF32, StoreType::kF16, StoreType::kBF16}) {
        const auto values = normal(random, static_cast<size_t>(13 * dim));
        const auto table = upload(stored_bytes(values, type));
        auto out = poisoned(static_cast<size_t>(rows * dim), StoreType::kF32);
        ok(embed_cuda(*stream, {.tokens = dtokens.as<int>(),
                                .rows = rows,
                                .dim = dim,
                                .table = table.data(),
                                .type = type,
                                .scale = 1.5f,
                                .out = reinterpret_cast<float*>(out.data())}));
        const auto got = read(out, StoreType::kF32);
        for (int i = 0; i < rows * dim; ++i) {
          const int token = tokens[static_cast<size_t>(i / dim)];
          const float wanted = token < 0 ? 0 : rounded(values[static_cast<size_t>(token * dim + i % dim)], type) * 1.5f;
          ASSERT_EQ(got[static_cast<size_t>(i)], wanted) << rows << " rows, dim " << dim << ", element " << i;
        }
      }
    }
  }
}

TEST_F(CudaSmallElementwise, CountsAreExact) {
  std::mt19937_64 random(fresh_seed());
  for (const int dim : {1, 63, 2112, 17408}) {
    const int rows = 3, stride = dim + 5;
    auto x = normal(random, static_cast<size_t>(rows * stride), 40000.0f);
    x[0] = NAN, x[static_cast<size_t>(stride)] = INFINITY, x[static_cast<size_t>(2 * stride)] = -INFINITY;
    const auto dx = upload(x), counters = upload(std::vector<unsigned long long>{10, 20});
    ok(count_values_cuda(*stream, {.x = dx.as<float>(),
                                   .stride = stride,
                                   .rows = rows,
                                   .dim = dim,
                                   .largest = 65504,
                                   .counters = counters.as<unsigned long long>()}));
    unsigned long long non_finite = 10, beyond = 20;
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < dim; ++c) {
        const float v = x[static_cast<size_t>(r * stride + c)];
        non_finite += !std::isfinite(v);
        beyond += std::isfinite(v) && std::fabs(v) > 65504;
      }
    EXPECT_EQ(download<unsigned long long>(counters.data(), 2), (std::vector{non_finite, beyond})) << dim;
  }
}

}  // namespace
}  // namespace galvani::kernels
