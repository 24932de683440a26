/// The plans of the GPU's quantized product: every width and activation type, real models' shapes, with and without the
/// expand arm's workspace.
#include <fmt/format.h>

#include "kernels/plan_tables.h"
#include "kernels/qmatmul/qmatmul_cuda_plan.h"

namespace galvani::kernels {
namespace {

std::vector<QmatmulCudaProblem> problems() {
  std::vector<QmatmulCudaProblem> all;
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{704, 2112}, {4096, 4096}, {5120, 17408}, {28672, 8192}})
    for (Arithmetic arithmetic : {Arithmetic::kF16, Arithmetic::kBF16})
      for (int64_t workspace : {int64_t{0}, int64_t{1} << 30}) {
        QmatmulCudaProblem p;
        p.n = n, p.k = k, p.arithmetic = arithmetic, p.workspace_bytes = workspace;
        for (int bits : {2, 3, 4, 5, 6, 8}) {
          p.format = {bits, 64, A16Scale::kBF16};
          all.push_back(p);
        }
        for (const A16Format& format : {kA16Mxfp4, kA16Nvfp4, kA16Mxfp8}) {
          p.format = format, p.kind = weight_kind_of(format);
          all.push_back(p);
        }
      }
  // Few rows, many rows, and shapes that are multiples of nothing; every group.
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{48, 2048}, {2880, 2880}, {2816, 2112}, {248320, 2560}})
    for (Arithmetic arithmetic : {Arithmetic::kF16, Arithmetic::kBF16})
      for (int group : {16, 32, 64, 128}) {
        if (k % group != 0) continue;
        QmatmulCudaProblem p;
        p.n = n, p.k = k, p.arithmetic = arithmetic, p.format = {4, group, A16Scale::kBF16};
        all.push_back(p);
      }
  // The type of the scales is in some kernels' names; of a shape whose products of 64 tokens stream x.
  for (Arithmetic arithmetic : {Arithmetic::kF16, Arithmetic::kBF16})
    for (A16Scale scale : {A16Scale::kF16, A16Scale::kF32})
      for (int bits : {2, 3, 4, 5, 6, 8}) {
        QmatmulCudaProblem p;
        p.n = 28672, p.k = 4096, p.arithmetic = arithmetic;
        p.format = {bits, 64, scale};
        all.push_back(p);
      }
  return all;
}

std::string row_of(const QmatmulCudaProblem& p) {
  const char* names[] = {"", "mxfp4", "mxfp8", "nvfp4"};
  const bool affine = p.kind == WeightKind::kAffine;
  const std::string kind = affine ? fmt::format("q{}", p.format.bits) : names[static_cast<size_t>(p.kind)];
  const char* scale = p.format.scale == A16Scale::kF16   ? " f16-scales"
                      : p.format.scale == A16Scale::kF32 ? " f32-scales"
                                                         : "";
  const std::string group = affine && p.format.group != 64 ? fmt::format(" g{}", p.format.group) : "";
  return fmt::format("{}{} {} n={} k={}{}{}", kind, group, arithmetic_name(p.arithmetic), p.n, p.k,
                     p.workspace_bytes > 0 ? " workspace" : "", scale);
}

/// A kernel's name holds the codes, q4 or e2m1; without what follows the first letter they fold.
std::string without_codes(std::string name, const A16Format& format) {
  const std::string codes = a16_code_name(format);
  if (const size_t at = name.find("_" + codes + "_"); at != std::string::npos)
    name.replace(at + 2, codes.size() - 1, "@");
  return name;
}

}  // namespace

PlanTable qmatmul_cuda_plan_table() {
  PlanTable table;
  table.operation = "qmatmul";
  for (const QmatmulCudaProblem& p : problems()) table.rows.push_back(row_of(p));
  table.ms = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 63, 64, 65, 128, 129, 255, 256, 512, 4096};
  table.plan = [all = problems()](const DeviceCaps& caps, size_t row, int64_t m) -> std::string {
    QmatmulCudaProblem p = all[row];
    p.m = m;
    const QmatmulCudaPlan plan = qmatmul_cuda_plan(caps, p);
    if (!plan.ok) return fmt::format("refused: {}", plan.reason);
    const std::string name = without_codes(plan.kernel(), p.format);
    if (plan.arm == QmatmulCudaArm::kWgmma && plan.wgmma.splits > 1)
      return fmt::format("kernel={} parts={}", name, plan.wgmma.splits);
    return plan.cluster > 1 ? fmt::format("kernel={} cluster={}", name, plan.cluster) : "kernel=" + name;
  };
  table.expand = [all = problems()](size_t row, const std::string& plan) {
    std::string text = plan;
    if (const size_t at = text.find('@'); at != std::string::npos)
      text.replace(at, 1, a16_code_name(all[row].format).substr(1));
    return text;
  };
  return table;
}

}  // namespace galvani::kernels
