// Sampling on the GPU: the CPU's tokens from the same seeds, except where u or a filter lies on a border.
#include "kernels/sampling/sampling_cuda.h"

#include "kernels/cuda_testing.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling_testing.h"

namespace galvani::kernels {
namespace {

class CudaSampling : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (!device) return;
    auto made = CudaSampler::create(*device);
    ASSERT_TRUE(made.has_value());
    sampler = std::move(*made);
  }
  Result<std::vector<SampledToken>> draw(const std::vector<float>& logits, int64_t rows, int64_t vocab,
                                         std::span<const RowSampling> per_row) {
    const auto dlogits = upload(logits);
    return sampler.sample(*stream, dlogits.as<float>(), rows, vocab, vocab, per_row);
  }
  /// Draws of random rows against the CPU's, alone and together; rounds of each vocabulary by its size.
  void compare(std::initializer_list<int32_t> vocabs, int rounds, int rounds_of_large, int least) {
    std::mt19937_64 random(fresh_seed());
    int compared = 0, on_borders = 0;
    for (const int32_t vocab : vocabs) {
      const int64_t rows = 9;
      for (int round = 0; round < (vocab > 10000 ? rounds_of_large : rounds); ++round) {
        auto logits = normal(random, static_cast<size_t>(rows * vocab), round % 3 ? 3.0f : 0.5f);
        if (round % 2)  // many ties
          for (float& x : logits) x = std::round(x * 4) / 4;
        std::vector<Case> cases;
        std::vector<RowSampling> per_row;
        for (int64_t r = 0; r < rows; ++r) cases.push_back(random_case(random, vocab));
        for (auto& c : cases) {
          c.row.logprobs = random() % 2;
          c.row.top_logprobs = static_cast<int>(random() % 3 == 0 ? random() % 21 : 0);
          per_row.push_back(c.bind());
        }
        for (int64_t r = 0; r < rows; ++r) {
          const float* row = logits.data() + r * vocab;
          const std::span<const RowSampling> one(&per_row[static_cast<size_t>(r)], 1);
          const auto cpu = sample(row, 1, vocab, vocab, one);
          const auto gpu = draw(std::vector<float>(row, row + vocab), 1, vocab, one);
          ASSERT_EQ(cpu.has_value(), gpu.has_value()) << (gpu ? cpu.error().message : gpu.error().message);
          if (!cpu) {
            EXPECT_EQ(cpu.error().message, gpu.error().message);
            continue;
          }
          const auto kept = distribution_ref(row, vocab, one[0]);
          if (on_an_edge(row, vocab, one[0]) || !expected_id(kept, philox_uniform(one[0].seed, one[0].position))) {
            ++on_borders;
            continue;
          }
          ++compared;
          ASSERT_EQ(gpu->front().id, cpu->front().id) << "vocab " << vocab << " row " << r;
          ASSERT_EQ(std::isnan(gpu->front().logprob), std::isnan(cpu->front().logprob));
          if (one[0].logprobs || one[0].top_logprobs > 0) {
            ASSERT_NEAR(gpu->front().logprob, cpu->front().logprob, 2e-5);
          }
          ASSERT_EQ(gpu->front().top.size(), cpu->front().top.size());
          for (size_t i = 0; i < cpu->front().top.size(); ++i) {
            ASSERT_EQ(gpu->front().top[i].first, cpu->front().top[i].first) << i;
            ASSERT_NEAR(gpu->front().top[i].second, cpu->front().top[i].second, 2e-5);
          }
        }
        // All rows in one call give the same bits as one by one.
        const auto together = draw(logits, rows, vocab, per_row);
        if (!together) continue;  // one row had nothing left
        for (int64_t r = 0; r < rows; ++r) {
          const auto alone = draw(std::vector<float>(logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab), 1,
                                  vocab, std::span<const RowSampling>(&per_row[static_cast<size_t>(r)], 1));
          ASSERT_TRUE(alone.has_value());
          ASSERT_EQ(alone->front().id, (*together)[static_cast<size_t>(r)].id);
        }
      }
    }
    std::cout << compared << " draws compared, " << on_borders << " on a border\n";
    EXPECT_GT(compared, least);
    EXPECT_LT(on_borders, compared / 4);
  }
  CudaSampler sampler;
};

TEST_F(CudaSampling, GivesTheCpusTokens) { compare({1, 7, 1000, 4097, 49152, 151936}, 30, 6, 500); }

/// Short enough for compute-sanitizer; 4097 entries are the first that several blocks share.
using CudaSmallSampling = CudaSampling;
TEST_F(CudaSmallSampling, GivesTheCpusTokensOfSmallVocabularies) { compare({1, 7, 1000, 4097}, 2, 0, 30); }

TEST_F(CudaSmallSampling, BrokenLogitsAreErrors) {
  std::vector<float> logits(5000, 1.0f);
  RowSampling row;
  for (const float bad : {NAN, INFINITY}) {
    logits[4321] = bad;
    const auto got = draw(logits, 1, 5000, std::span(&row, 1));
    ASSERT_FALSE(got.has_value());
    EXPECT_NE(got.error().message.find("token 4321"), std::string::npos) << got.error().message;
  }
  const std::vector<float> nothing(5000, -INFINITY);
  EXPECT_FALSE(draw(nothing, 1, 5000, std::span(&row, 1)).has_value());
}

}  // namespace
}  // namespace galvani::kernels
