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
      for (int64_t workspace : {int64_t{0}, int64_t{1} << 30})
        for (int bits : {2, 3, 4, 5, 6, 8}) {
          QmatmulCudaProblem p;
          p.n = n, p.k = k, p.arithmetic = arithmetic, p.workspace_bytes = workspace;
          p.format = {bits, 64, A16Scale::kBF16};
          all.push_back(p);
        }
  return all;
}

std::string row_of(const QmatmulCudaProblem& p) {
  return fmt::format("q{} {} n={} k={}{}", p.format.bits, arithmetic_name(p.arithmetic), p.n, p.k,
                     p.workspace_bytes > 0 ? " workspace" : "");
}

/// A kernel's name holds the width; without it the widths fold.
std::string without_bits(std::string name, int bits) {
  const std::string part = fmt::format("_q{}_", bits);
  if (const size_t at = name.find(part); at != std::string::npos) name.replace(at, part.size(), "_q@_");
  return name;
}

}  // namespace

PlanTable qmatmul_cuda_plan_table() {
  PlanTable table;
  table.operation = "qmatmul";
  for (const QmatmulCudaProblem& p : problems()) table.rows.push_back(row_of(p));
  table.ms = {1, 2, 4, 8, 9, 16, 64, 65, 128, 129, 255, 256, 512, 4096};
  table.plan = [all = problems()](const DeviceCaps& caps, size_t row, int64_t m) -> std::string {
    QmatmulCudaProblem p = all[row];
    p.m = m;
    const QmatmulCudaPlan plan = qmatmul_cuda_plan(caps, p);
    if (!plan.ok) return fmt::format("refused: {}", plan.reason);
    const std::string name = without_bits(plan.kernel(), p.format.bits);
    return plan.cluster > 1 ? fmt::format("kernel={} cluster={}", name, plan.cluster) : "kernel=" + name;
  };
  table.expand = [all = problems()](size_t row, const std::string& plan) {
    std::string text = plan;
    if (const size_t at = text.find('@'); at != std::string::npos)
      text.replace(at, 1, std::to_string(all[row].format.bits));
    return text;
  };
  return table;
}

}  // namespace galvani::kernels
