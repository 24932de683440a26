#include "kernels/qmatmul/qmatmul_cuda_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace galvani::kernels {
namespace {

const char* suffix_of(QmatmulCudaArm arm, Arithmetic arithmetic) {
  switch (arm) {
    case QmatmulCudaArm::kFewBulk: return "sm90";
    case QmatmulCudaArm::kFewAsync: return "sm80";
    case QmatmulCudaArm::kFewPlain: return "sm75";
    case QmatmulCudaArm::kStream:
    case QmatmulCudaArm::kWgmma: return "sm90a";
    default: return arithmetic == Arithmetic::kBF16 ? "sm80" : "sm75";
  }
}

const char* scale_name(A16Scale scale) {
  return scale == A16Scale::kBF16 ? "bf16" : scale == A16Scale::kF16 ? "f16" : "f32";
}

void size_launch(QmatmulCudaPlan& plan, const DeviceCaps& caps, const QmatmulCudaProblem& p) {
  const QmatmulArgs args = qmatmul_cuda_args(p);
  switch (plan.arm) {
    case QmatmulCudaArm::kFewBulk:
    case QmatmulCudaArm::kFewAsync:
    case QmatmulCudaArm::kFewPlain:
      plan.few = qmatmul_cuda_few(caps, p, plan.arm);
      plan.tokens = kFewTokens;
      plan.cluster = 1 << plan.few.args.split_log2;
      plan.grid_x = plan.few.groups * plan.cluster;
      plan.threads = kFewWarps * 32;
      plan.smem = plan.few.smem;
      break;
    case QmatmulCudaArm::kStream:
      plan.stream = qmatmul_cuda_stream(caps, p);
      plan.tokens = qmatmul_cuda_stream_tokens(p);
      plan.cluster = 1 << plan.stream.args.split_log2;
      plan.grid_x = plan.stream.groups * plan.cluster;
      plan.threads = kStreamThreads;
      plan.smem = plan.stream.smem;
      break;
    case QmatmulCudaArm::kWgmma: {
      const WgmmaTile tile = qmatmul_cuda_wgmma_tile(caps, p);
      plan.tokens = tile.tokens;
      plan.wgmma.p = args;
      plan.wgmma.row_blocks = (args.n + kWgmmaRows - 1) / kWgmmaRows;
      plan.wgmma.token_blocks = (args.m + plan.tokens - 1) / plan.tokens;
      const int stage = wgmma_stage_bytes(plan.tokens, args.unit_bytes);
      plan.wgmma.stages = std::min(8, (caps.smem_optin - 1024 - kWgmmaEndBytes) / stage);
      plan.wgmma.end_at = plan.wgmma.stages * stage;
      plan.smem = plan.wgmma.end_at + kWgmmaEndBytes;
      plan.wgmma.splits = tile.splits;
      plan.wgmma.slice = qmatmul_cuda_wgmma_slice(p, tile);
      plan.wgmma.end = p.gated                                                      ? WgmmaEnd::kGate
                       : !p.y_16 && p.y_aligned && p.n % 4 == 0 && tile.splits == 1 ? WgmmaEnd::kVectors
                                                                                    : WgmmaEnd::kSingle;
      const int tiles = plan.wgmma.row_blocks * plan.wgmma.token_blocks;
      plan.grid_x = tile.splits > 1 ? tiles * tile.splits : std::min(caps.sms, tiles);
      plan.threads = kWgmmaThreads;
      break;
    }
    case QmatmulCudaArm::kExpand:
      plan.grid_x =
          static_cast<int>((static_cast<int64_t>(args.row_tiles) * args.units + kExpandWarps - 1) / kExpandWarps);
      plan.threads = kExpandWarps * 32;
      plan.workspace_bytes = p.n * p.k * 2;
      break;
    case QmatmulCudaArm::kMma:
      plan.tokens = kMmaTokens;
      plan.grid_x = (args.row_tiles + kMmaWarps * kMmaRowTiles - 1) / (kMmaWarps * kMmaRowTiles);
      plan.grid_y = (args.m + kMmaTokens - 1) / kMmaTokens;
      plan.threads = kMmaThreads;
      break;
  }
  plan.dependent_launch = caps.has(Feature::kDependentLaunch) && plan.arm != QmatmulCudaArm::kExpand;
}

}  // namespace

std::string a16_code_name(const A16Format& format) {
  if (format.code == A16Code::kE2M1) return "e2m1";
  if (format.code == A16Code::kE4M3) return "e4m3";
  return fmt::format("q{}", format.bits);
}

std::string QmatmulCudaPlan::parts_kernel() const {
  return fmt::format("qmatmul_parts_{}_sm90a", arithmetic == Arithmetic::kBF16 ? "bf16" : "f16");
}

std::string QmatmulCudaPlan::kernel() const {
  const char* type = arithmetic == Arithmetic::kBF16 ? "bf16" : "f16";
  const char* suffix = suffix_of(arm, arithmetic);
  const std::string codes = a16_code_name(format);
  switch (arm) {
    case QmatmulCudaArm::kWgmma: return fmt::format("qmatmul_wgmma_{}_{}_t{}_{}", codes, type, tokens, suffix);
    case QmatmulCudaArm::kStream: {
      const bool whole = tokens == 64 && a16_subgroups(format.group) == 1 && format.scale == A16Scale::kBF16;
      return fmt::format("qmatmul_stream_{}_{}_t{}_{}{}_{}", codes, type, tokens, scale_name(format.scale),
                         whole && arithmetic == Arithmetic::kBF16 ? "_g64" : "", suffix);
    }
    case QmatmulCudaArm::kExpand: return fmt::format("a16_expand_{}_{}_{}", codes, type, suffix);
    case QmatmulCudaArm::kMma: return fmt::format("qmatmul_mma_{}_{}_{}", codes, type, suffix);
    case QmatmulCudaArm::kFewBulk:
      if (few.one) return fmt::format("qmatmul_one_{}_{}_c{}_{}", codes, type, few.chunk, suffix);
      [[fallthrough]];
    default: return fmt::format("qmatmul_few_{}_{}_{}", codes, type, suffix);
  }
}

QmatmulCudaPlan qmatmul_cuda_plan(const DeviceCaps& caps, const QmatmulCudaProblem& p,
                                  const QmatmulCudaCrossovers& crossovers) {
  QmatmulCudaPlan plan;
  plan.format = p.format, plan.arithmetic = p.arithmetic;
  constexpr int64_t kMost = std::numeric_limits<int>::max() / 2;
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.m > kMost || p.n > kMost || p.k > kMost) {
    plan.reason = "m, n and k must be at least 1 and below 2^30";
    return plan;
  }
  for (int arm = 0; arm < kQmatmulCudaArms; ++arm) {
    plan.arm = static_cast<QmatmulCudaArm>(arm);
    const char* reason = qmatmul_cuda_declines(plan.arm, caps, p, crossovers);
    if (reason == nullptr && p.gated && !qmatmul_cuda_gates(plan.arm)) {
      plan.reason = "the arm for this product applies no gated activation: run the product, then the gate";
      return plan;
    }
    if (reason == nullptr) {
      plan.ok = true, plan.reason = "";
      size_launch(plan, caps, p);
      return plan;
    }
    // The word for a forced arm is that arm's own.
    if (p.forced < 0 || p.forced == arm) plan.reason = reason;
  }
  return plan;
}

int64_t qmatmul_cuda_expands(const DeviceCaps& caps, QmatmulCudaProblem p, const QmatmulCudaCrossovers& crossovers) {
  for (p.m = 1; p.m <= 1 << 20; p.m *= 2) {
    const QmatmulCudaPlan plan = qmatmul_cuda_plan(caps, p, crossovers);
    if (plan.ok && plan.arm == QmatmulCudaArm::kExpand) return plan.workspace_bytes;
  }
  return 0;
}

std::string qmatmul_cuda_explain(const DeviceCaps& caps, const QmatmulCudaProblem& p,
                                 const QmatmulCudaCrossovers& crossovers) {
  std::string text;
  const QmatmulCudaPlan plan = qmatmul_cuda_plan(caps, p, crossovers);
  for (int i = 0; i < kQmatmulCudaArms; ++i) {
    const auto arm = static_cast<QmatmulCudaArm>(i);
    const char* reason = qmatmul_cuda_declines(arm, caps, p, crossovers);
    const char* verdict = reason != nullptr ? reason : plan.ok && plan.arm == arm ? "runs" : "could run";
    text += fmt::format("{}: {}\n", qmatmul_cuda_arm_name(arm), verdict);
  }
  return text;
}

}  // namespace galvani::kernels
