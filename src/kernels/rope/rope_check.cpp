#include <algorithm>
#include <cmath>

#include "kernels/check_rig.h"
#include "kernels/norm/norm.h"
#include "kernels/op_checks.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cuda.h"

namespace galvani::kernels {
namespace {

constexpr int kRows = 4, kHeads = 3, kKvHeads = 1, kDim = 64, kRotary = 32, kPairs = kRotary / 2, kBlocks = 16;
constexpr int kQWidth = kHeads * kDim, kWidth = (kHeads + 2 * kKvHeads) * kDim, kPage = kKvHeads * 64 * kDim;
constexpr float kScale = 1.25f;
constexpr StoreType kType = StoreType::kF16;
const std::vector<int> kPositions = {0, 63, 1000, -1};  // the last one is no row

/// What the step's kernels read, on the host and on the device.
struct Step {
  std::vector<float> inv_freq, x, bias, q_weight, k_weight;
  std::vector<int> blocks;
  const int* positions = nullptr;
  const float* table = nullptr;
};

double angle_error(int position) { return 1.5 * 0x1p-24 * std::max(position, 0); }

/// cos and sin of f32 angles; a row that is none keeps its poison.
Result<KernelVerdict> check_table(CheckRig& rig, Step& step) {
  GALVANI_TRY(step.positions, rig.upload(kPositions));
  GALVANI_TRY(const float* inv_freq, rig.upload(step.inv_freq));
  GALVANI_TRY(void* table, rig.output(kRows * kRotary, StoreType::kF32));
  step.table = static_cast<const float*>(table);
  GALVANI_TRY_VOID(rope_table_cuda(rig.stream(), {.positions = step.positions,
                                                  .inv_freq = inv_freq,
                                                  .rows = kRows,
                                                  .pairs = kPairs,
                                                  .attention_scale = kScale,
                                                  .table = static_cast<float*>(table)}));
  GALVANI_TRY(const auto got, rig.read(table, kRows * kRotary, StoreType::kF32));
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const int position = kPositions[i / kRotary];
    if (position < 0) {
      if (!std::isnan(got[i])) worst = INFINITY;
      continue;
    }
    const double angle = double{step.inv_freq[i % kRotary / 2]} * position;
    const double exact = kScale * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    const double share = std::fabs(got[i] - exact) / (kScale * (angle_error(position) + 0x1p-21));
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return KernelVerdict{"rope_table_sm70", worst, "3 positions up to 1000, 16 pairs"};
}

/// A head of row `r` from column `column` on: bias, norm, rope; q and k alone are normed and turned.
std::vector<double> head_of(const Step& step, size_t r, int column, const std::vector<float>* weight) {
  std::vector<float> head(kDim);
  for (size_t i = 0; i < kDim; ++i) {
    const size_t c = static_cast<size_t>(column) + i;
    head[i] = step.x[r * kWidth + c] + step.bias[c];
  }
  if (weight == nullptr) return {head.begin(), head.end()};
  std::vector<double> y(kDim);
  rms_norm_ref(head.data(), 1, kDim, kDim, weight->data(), {1e-6f, false}, y.data());
  const std::vector<float> normed(y.begin(), y.end());
  rope_ref(RopePairing::kHalfSplit, normed.data(), 1, 1, kDim, kDim, &kPositions[r], step.inv_freq.data(), kRotary,
           kScale, y.data());
  return y;
}

double head_share(const float* got, const std::vector<double>& exact, int position) {
  double largest = 0;
  for (const double y : exact) largest = std::max(largest, std::fabs(y));
  return worst_share({got, exact.size()}, exact, [&](size_t i) {
    return 1.05 * store_roundoff(kType) * std::fabs(exact[i]) + (angle_error(position) + 0x1p-19) * largest + 0x1p-25;
  });
}

Result<KernelVerdict> check_finish(CheckRig& rig, const Step& step, RowsForm form, const char* name) {
  QkvArgs args{.x_stride = kWidth, .k_column = kQWidth, .v_column = kQWidth + kKvHeads * kDim};
  GALVANI_TRY(args.x, rig.upload(step.x));
  GALVANI_TRY(args.bias, rig.upload(step.bias));
  GALVANI_TRY(args.q_norm.w, rig.upload(step.q_weight));
  GALVANI_TRY(args.k_norm.w, rig.upload(step.k_weight));
  GALVANI_TRY(args.tables.blocks, rig.upload(step.blocks));
  GALVANI_TRY(args.sequence, rig.upload(std::vector<int>(kRows, 0)));
  GALVANI_TRY(args.q, rig.output(kRows * kQWidth, kType));
  GALVANI_TRY(void* k_pool, rig.output(kBlocks * kPage, kType));
  GALVANI_TRY(void* v_pool, rig.output(kBlocks * kPage, kType));
  args.rows = kRows, args.heads = kHeads, args.q_stride = kQWidth, args.q_normed = args.k_normed = true;
  args.rope = step.table, args.rope_pairs = kPairs, args.positions = step.positions, args.type = kType;
  args.tables.max_blocks = kBlocks;
  const long long page = kPage * store_bytes(kType);
  args.kv = {static_cast<char*>(k_pool), static_cast<char*>(v_pool), page, page, kKvHeads, kDim, kDim};
  GALVANI_TRY_VOID(qkv_finish_cuda(rig.stream(), args, form));
  GALVANI_TRY(const auto q, rig.read(args.q, kRows * kQWidth, kType));
  GALVANI_TRY(const auto k, rig.read(k_pool, kBlocks * kPage, kType));
  GALVANI_TRY(const auto v, rig.read(v_pool, kBlocks * kPage, kType));
  double worst = 0;
  size_t written = 0;
  for (size_t r = 0; r < kRows; ++r) {
    const int position = kPositions[r];
    for (int h = 0; h < kHeads; ++h) {
      auto exact = std::vector<double>(kDim, 0.0);
      if (position >= 0) exact = head_of(step, r, h * kDim, &step.q_weight);
      worst = std::max(worst, head_share(q.data() + r * kQWidth + h * kDim, exact, position));
    }
    if (position < 0) continue;
    const auto block = static_cast<size_t>(step.blocks[static_cast<size_t>(position / 64)]);
    const size_t at = block * kPage + static_cast<size_t>(position % 64) * kDim;
    worst = std::max(worst, head_share(k.data() + at, head_of(step, r, args.k_column, &step.k_weight), position));
    worst = std::max(worst, head_share(v.data() + at, head_of(step, r, args.v_column, nullptr), position));
    written += 2 * kDim;
  }
  const auto touched = [](float x) { return !std::isnan(x); };
  if (std::count_if(k.begin(), k.end(), touched) + std::count_if(v.begin(), v.end(), touched) !=
      static_cast<std::ptrdiff_t>(written))
    return KernelVerdict{name, INFINITY, "pages were written where no token stands"};
  return KernelVerdict{name, worst, "3 heads and 1 kv head of 64, f16, norms and rope"};
}

}  // namespace

Result<std::vector<KernelVerdict>> check_rope(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  Step step;
  step.x = rig.normal(kRows * kWidth), step.bias = rig.normal(kWidth);
  step.q_weight = rig.normal(kDim), step.k_weight = rig.normal(kDim);
  for (int i = 0; i < kPairs; ++i)
    step.inv_freq.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(kPairs)));
  for (int i = 0; i < kBlocks; ++i) step.blocks.push_back(i);
  std::shuffle(step.blocks.begin(), step.blocks.end(), rig.random());
  GALVANI_TRY(const KernelVerdict table, check_table(rig, step));
  GALVANI_TRY(const KernelVerdict few, check_finish(rig, step, RowsForm::kFew, "qkv_finish_sm70"));
  GALVANI_TRY(const KernelVerdict many, check_finish(rig, step, RowsForm::kMany, "qkv_finish_many_sm70"));
  return std::vector<KernelVerdict>{table, few, many};
}

}  // namespace galvani::kernels
