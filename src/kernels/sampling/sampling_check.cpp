#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/check_rig.h"
#include "kernels/op_checks.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_cuda.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kVocab = 20011;
constexpr double kBorder = 1e-5;  // a u this near to a border of the mass is rounding's to decide

/// The id that the f64 distribution gives for u, ids ascending; none at a border.
std::optional<int32_t> expected_id(const float* logits, const RowSampling& row) {
  auto kept = distribution_ref(logits, kVocab, row);
  // Filters that rounding could move: the same set must come of both sides of top-p.
  RowSampling wider = row;
  wider.top_p = row.top_p < 1 ? std::min(1.0f, row.top_p * 1.00001f) : 1.0f;
  if (kept.empty() || distribution_ref(logits, kVocab, wider).size() != kept.size()) return std::nullopt;
  std::sort(kept.begin(), kept.end());
  const double u = philox_uniform(row.seed, row.position);
  double sum = 0;
  for (const auto& [id, p] : kept) {
    if (sum > 0 && std::fabs(u - sum) < kBorder) return std::nullopt;
    sum += p;
    if (u < sum) return std::fabs(u - sum) < kBorder && id != kept.back().first ? std::nullopt : std::optional(id);
  }
  return kept.back().first;
}

/// log-softmax of a raw logit.
double logprob_of(const float* logits, int32_t id) {
  const double largest = *std::max_element(logits, logits + kVocab);
  double sum = 0;
  for (int64_t i = 0; i < kVocab; ++i) sum += std::exp(logits[i] - largest);
  return logits[id] - largest - std::log(sum);
}

/// Parameters with the memory that they point to: greedy, filtered, edited.
struct Rows {
  std::vector<RowSampling> rows = std::vector<RowSampling>(6);
  std::vector<std::pair<int32_t, float>> bias = {{17, 4.0f}, {20010, -100.0f}};
  std::vector<int32_t> prompt = {1, 2, 3, 3}, output = {2, 2, 900}, suppress = {5, 19999};
  std::vector<uint32_t> mask = std::vector<uint32_t>((kVocab + 31) / 32, 0xaaaaaaaau);

  explicit Rows(CheckRig& rig) {
    for (RowSampling& row : rows) row.seed = rig.random()(), row.position = 7, row.logprobs = true;
    rows[0].temperature = 0;
    rows[1].temperature = 0.7f;
    rows[2].top_k = 40, rows[2].top_p = 0.9f;
    rows[3].logit_bias = bias, rows[3].suppress = suppress;
    rows[4].allowed_mask = mask.data(), rows[4].temperature = 1.5f;
    rows[5].prompt_tokens = prompt, rows[5].output_tokens = output;
    rows[5].repetition_penalty = 1.3f, rows[5].presence_penalty = 0.5f, rows[5].frequency_penalty = 0.25f;
    rows[5].top_k = 3000;
  }
};

/// 0 when the token is the expected one; its log-probability as a share of its bound.
double judge(const SampledToken& token, const float* logits, const RowSampling& row) {
  if (token.id < 0 || token.id >= kVocab) return INFINITY;
  const auto wanted = expected_id(logits, row);
  if (wanted && *wanted != token.id) return INFINITY;
  const double share = std::fabs(token.logprob - logprob_of(logits, token.id)) / 2e-5;
  return std::isnan(share) ? INFINITY : share;
}

}  // namespace

Result<std::vector<KernelVerdict>> check_sampling(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  GALVANI_TRY(auto sampler, CudaSampler::create(device));
  const Rows rows(rig);
  const auto n = static_cast<int64_t>(rows.rows.size());
  const auto logits = rig.normal(static_cast<size_t>(n * kVocab), 3);
  GALVANI_TRY(const float* on_device, rig.upload(logits));
  GALVANI_TRY(const auto tokens, sampler.sample(rig.stream(), on_device, n, kVocab, kVocab, rows.rows));
  double plain = 0, edited = 0;  // rows 3 and up went through copy and edit
  for (size_t r = 0; r < tokens.size(); ++r) {
    const double share = judge(tokens[r], logits.data() + static_cast<int64_t>(r) * kVocab, rows.rows[r]);
    (r < 3 ? plain : edited) = std::max(r < 3 ? plain : edited, share);
  }
  const double all = std::max(plain, edited);
  const std::string note = "6 rows of 20011: greedy, filters, bias, mask, penalties";
  return std::vector<KernelVerdict>{{"sample_copy_sm70", edited, note},
                                    {"sample_edit_sm70", edited, note},
                                    {"sample_pick_sm70", all, note},
                                    {"sample_scan_sm70", all, note}};
}

}  // namespace galvani::kernels
