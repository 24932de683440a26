#include "kernels/sampling/sampling_cuda.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "core/error.h"
#include "cuda/launch.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_cuda_args.h"

namespace galvani::kernels {
namespace {

static_assert(kSampleTop == kMaxTopLogprobs);

bool penalises(const RowSampling& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f || row.frequency_penalty != 0.0f;
}
bool edits(const RowSampling& row) {
  return row.allowed_mask != nullptr || !row.suppress.empty() || !row.logit_bias.empty() || penalises(row);
}

/// A row's edits in the order of sampling.h, sorted by id. Ids at or above `valid` are never drawn: left out.
void list_edits(const RowSampling& row, int valid, std::vector<SampleEdit>& all) {
  const auto begin = static_cast<std::ptrdiff_t>(all.size());
  const auto put = [&](int32_t id, EditKind kind, float value) {
    if (id < valid) all.push_back({id, kind, value});
  };
  for (int32_t id : row.suppress) put(id, EditKind::kSuppress, 0);
  for (const auto& [id, bias] : row.logit_bias) put(id, EditKind::kBias, bias);
  if (row.repetition_penalty != 1.0f) {
    std::set<int32_t> seen(row.prompt_tokens.begin(), row.prompt_tokens.end());
    seen.insert(row.output_tokens.begin(), row.output_tokens.end());
    for (int32_t id : seen) put(id, EditKind::kRepetition, row.repetition_penalty);
  }
  if (row.presence_penalty != 0.0f || row.frequency_penalty != 0.0f) {
    std::map<int32_t, int> counts;
    for (int32_t id : row.output_tokens) ++counts[id];
    for (const auto& [id, count] : counts) {
      put(id, EditKind::kFrequency, row.frequency_penalty * static_cast<float>(count));
      put(id, EditKind::kPresence, row.presence_penalty);
    }
  }
  std::stable_sort(all.begin() + begin, all.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
}

/// What is uploaded: rows, edits and masks, one after the other.
struct Upload {
  std::vector<SampleRow> rows;
  std::vector<SampleEdit> edits;
  std::vector<uint32_t> masks;
  int edited = 0;

  size_t edits_at() const { return (rows.size() * sizeof(SampleRow) + 15) / 16 * 16; }
  size_t masks_at() const { return edits_at() + (edits.size() * sizeof(SampleEdit) + 15) / 16 * 16; }
  size_t bytes() const { return masks_at() + masks.size() * 4; }
  void write(std::byte* to) const {
    std::memcpy(to, rows.data(), rows.size() * sizeof(SampleRow));
    if (!edits.empty()) std::memcpy(to + edits_at(), edits.data(), edits.size() * sizeof(SampleEdit));
    if (!masks.empty()) std::memcpy(to + masks_at(), masks.data(), masks.size() * 4);
  }
};

Upload prepare(std::span<const RowSampling> per_row, int64_t vocab) {
  Upload upload;
  const auto words = static_cast<size_t>((vocab + 31) / 32);
  for (const RowSampling& row : per_row) {
    SampleRow r{};
    r.temperature = row.temperature;
    r.top_p = row.top_p;
    r.min_p = row.min_p;
    r.greedy = row.temperature < kGreedyTemperature;
    r.top_k = row.top_k;
    r.uniform = philox_uniform(row.seed, row.position);
    r.valid = row.valid_vocab > 0 ? row.valid_vocab : static_cast<int>(vocab);
    r.logprobs = row.logprobs || row.top_logprobs > 0;
    r.top_logprobs = row.top_logprobs;
    r.edited = edits(row) ? upload.edited++ : -1;
    r.mask = -1;
    r.edits_begin = static_cast<int>(upload.edits.size());
    if (r.edited >= 0) list_edits(row, r.valid, upload.edits);
    r.edits_end = static_cast<int>(upload.edits.size());
    if (row.allowed_mask != nullptr) {
      r.mask = static_cast<int>(upload.masks.size() / words);
      upload.masks.insert(upload.masks.end(), row.allowed_mask, row.allowed_mask + words);
    }
    upload.rows.push_back(r);
  }
  return upload;
}

Result<SampledToken> token_of(const SampleResult& result, int valid) {
  switch (result.fault) {
    case SampleFault::kBrokenLogit:
      return fail(ErrorCode::kInternal, "the logit of token {} is {}: the model's output is broken", result.bad_id,
                  result.bad_value);
    case SampleFault::kNothingLeft:
      return fail(ErrorCode::kInvalidArgument, "no token is left to sample: each of {} ids is masked or has logit -inf",
                  valid);
    case SampleFault::kBrokenLogprobs:
      return fail(ErrorCode::kInternal, "log-probabilities were asked for, but a logit is NaN or infinite");
    case SampleFault::kNone: break;
  }
  SampledToken token{.id = result.id, .logprob = result.logprob, .top = {}};
  for (int i = 0; i < result.top_count; ++i) token.top.emplace_back(result.top_id[i], result.top_logprob[i]);
  return token;
}

template <typename Buffer>
Status grow(cuda::CudaDevice& device, Buffer& buffer, size_t bytes) {
  if (buffer.size() >= bytes) return {};
  buffer.reset();
  GALVANI_TRY(buffer, Buffer::allocate(device, bytes, "sampling"));
  return {};
}

}  // namespace

Result<CudaSampler> CudaSampler::create(cuda::CudaDevice& device) {
  CudaSampler sampler;
  sampler.device_ = &device;
  return sampler;
}

Status CudaSampler::reserve(size_t upload, size_t edited, size_t parts, size_t results) {
  GALVANI_TRY_VOID(grow(*device_, host_, upload + results));
  GALVANI_TRY_VOID(grow(*device_, tables_, upload));
  GALVANI_TRY_VOID(grow(*device_, edited_, edited));
  return grow(*device_, parts_, parts);
}

Result<std::vector<SampledToken>> CudaSampler::sample(cuda::Stream& stream, const float* logits, int64_t rows,
                                                      int64_t vocab, int64_t stride,
                                                      std::span<const RowSampling> per_row) {
  if (static_cast<int64_t>(per_row.size()) != rows)
    return fail(ErrorCode::kInvalidArgument, "sampling {} rows of logits with the parameters of {}", rows,
                per_row.size());
  if (vocab <= 0 || vocab > int64_t{1024} * kSampleMaxBlocks)
    return fail(ErrorCode::kInvalidArgument, "sampling from a vocabulary of {} tokens; the GPU takes 1 to {}", vocab,
                int64_t{1024} * kSampleMaxBlocks);
  for (int64_t r = 0; r < rows; ++r)
    if (auto valid = validate(per_row[static_cast<size_t>(r)], vocab); !valid)
      return wrap(std::move(valid).error(), fmt::format("row {}", r));
  if (rows == 0) return std::vector<SampledToken>{};

  const Upload upload = prepare(per_row, vocab);
  const auto parts = static_cast<unsigned>((vocab + kSampleScan - 1) / kSampleScan), n = static_cast<unsigned>(rows);
  const size_t upload_bytes = (upload.bytes() + 255) / 256 * 256, result_bytes = sizeof(SampleResult) * n;
  GALVANI_TRY_VOID(reserve(upload_bytes, static_cast<size_t>(upload.edited) * static_cast<size_t>(vocab) * 4,
                           sizeof(ScanPart) * parts * n, result_bytes));
  // A copy before the kernels and one after them would cost more than the kernels: few rows without lists travel with
  // the launches, and the results go straight to the host.
  const bool travels = n <= kSampleInline && upload.edits.empty() && upload.masks.empty();
  if (!travels) {
    upload.write(host_.as<std::byte>());
    GALVANI_TRY_VOID(stream.to_device(tables_.data(), host_.data(), upload.bytes()));
  }
  const auto* tables = tables_.as<std::byte>();
  auto* results = reinterpret_cast<SampleResult*>(host_.as<std::byte>() + upload_bytes);
  SampleArgs args{.logits = logits,
                  .stride = stride,
                  .rows = static_cast<int>(rows),
                  .vocab = static_cast<int>(vocab),
                  .row = travels ? nullptr : reinterpret_cast<const SampleRow*>(tables),
                  .edits = reinterpret_cast<const SampleEdit*>(tables + upload.edits_at()),
                  .masks = reinterpret_cast<const unsigned*>(tables + upload.masks_at()),
                  .edited = edited_.as<float>(),
                  .parts = parts_.as<ScanPart>(),
                  .results = results,
                  .inline_row = {}};
  if (travels) std::copy(upload.rows.begin(), upload.rows.end(), args.inline_row);
  const bool dependent = device_->caps().has(Feature::kDependentLaunch);
  const auto run = [&](const char* name, cuda::Dim3 grid, unsigned threads) -> Status {
    GALVANI_TRY(const cuda::Kernel* kernel, device_->kernel(name));
    return cuda::launch(stream, *kernel, {.grid = grid, .block = {threads}, .dependent_launch = dependent}, args);
  };
  if (upload.edited > 0) {
    GALVANI_TRY_VOID(run("sample_copy_sm70", {static_cast<unsigned>((vocab + 1023) / 1024), n}, 256));
    if (!upload.edits.empty()) GALVANI_TRY_VOID(run("sample_edit_sm70", {n}, 256));
  }
  GALVANI_TRY_VOID(run("sample_scan_sm70", {parts, n}, 256));
  GALVANI_TRY(const cuda::Kernel* pick, device_->kernel("sample_pick_sm70"));
  GALVANI_TRY_VOID(cuda::launch(stream, *pick, {.grid = {n}, .block = {1024}, .dependent_launch = dependent}, args,
                                static_cast<int>(parts)));
  GALVANI_TRY_VOID(stream.synchronize());

  std::vector<SampledToken> tokens;
  for (size_t r = 0; r < n; ++r) {
    auto token = token_of(results[r], upload.rows[r].valid);
    if (!token) return wrap(std::move(token).error(), fmt::format("row {}", r));
    tokens.push_back(std::move(*token));
  }
  return tokens;
}

}  // namespace galvani::kernels
