#pragma once
/// Which kernel computes a product: a pure function of what the CPU has and what the problem is.
#include <cstdint>
#include <string>

#include "device/cpu_caps.h"
#include "kernels/common/arithmetic.h"

namespace galvani::kernels {

/// How the CPU computes it. kAuto lets the plan choose by m.
enum class QmatmulArm : uint8_t { kAuto, kRef, kRows, kPanel };

/// What the packed weights are made of.
enum class PackKind : uint8_t { kAffine, kTable4, kBF16, kF16, kF32 };

/// One kernel each.
enum class QmatmulVariant : uint8_t {
  kRef,              ///< f64, scalar, any CPU
  kRowsBf16Avx512,   ///< few tokens: codes become bf16 by table look-up, vdpbf16ps
  kRowsF32,          ///< few tokens: Highway, f32
  kPanelBf16Amx,     ///< many tokens: bf16 panels, tdpbf16ps
  kPanelBf16Avx512,  ///< many tokens: bf16 panels, vdpbf16ps
  kPanelF32,         ///< many tokens: Highway, f32 panels
};
constexpr int kQmatmulVariants = 6;

struct QmatmulProblem {
  int64_t m = 1, rows = 0, cols = 0;
  PackKind kind = PackKind::kAffine;
  Arithmetic arithmetic = Arithmetic::kF32;
  QmatmulArm arm = QmatmulArm::kAuto;
};

/// Where one arm overtakes another: measured on a part, or this default.
struct Crossovers {
  int64_t panel_from = 16;  ///< tokens from which panels win over rows
  bool measured = false;
};

constexpr const char* qmatmul_variant_name(QmatmulVariant variant) {
  switch (variant) {
    case QmatmulVariant::kRef: return "ref";
    case QmatmulVariant::kRowsBf16Avx512: return "rows-bf16-avx512";
    case QmatmulVariant::kRowsF32: return "rows-f32";
    case QmatmulVariant::kPanelBf16Amx: return "panel-bf16-amx";
    case QmatmulVariant::kPanelBf16Avx512: return "panel-bf16-avx512";
    case QmatmulVariant::kPanelF32: return "panel-f32";
  }
  return "?";
}

constexpr QmatmulArm qmatmul_variant_arm(QmatmulVariant variant) {
  switch (variant) {
    case QmatmulVariant::kRef: return QmatmulArm::kRef;
    case QmatmulVariant::kRowsBf16Avx512:
    case QmatmulVariant::kRowsF32: return QmatmulArm::kRows;
    default: return QmatmulArm::kPanel;
  }
}

/// The order in which variants are asked; the first that does not decline runs.
constexpr QmatmulVariant kQmatmulOrder[kQmatmulVariants] = {
    QmatmulVariant::kRowsBf16Avx512,  QmatmulVariant::kRowsF32,  QmatmulVariant::kPanelBf16Amx,
    QmatmulVariant::kPanelBf16Avx512, QmatmulVariant::kPanelF32, QmatmulVariant::kRef};

/// Why `variant` does not compute `p` here; null when it can. Reasons are for people.
constexpr const char* qmatmul_declines(QmatmulVariant variant, const CpuCaps& caps, const QmatmulProblem& p,
                                       const Crossovers& crossovers) {
  const QmatmulArm arm = qmatmul_variant_arm(variant);
  if (p.arm != QmatmulArm::kAuto && p.arm != arm) return "another arm was asked for";
  if (p.arm == QmatmulArm::kAuto) {
    if (arm == QmatmulArm::kRef) return "the reference runs only when asked for";
    if (arm == QmatmulArm::kRows && p.m >= crossovers.panel_from) return "panels are faster at this many tokens";
    if (arm == QmatmulArm::kPanel && p.m < crossovers.panel_from) return "rows are faster at this few tokens";
  }
  const bool bf16 = p.arithmetic == Arithmetic::kBF16;
  switch (variant) {
    case QmatmulVariant::kRowsBf16Avx512:
      if (!bf16) return "the arithmetic asked for is not bf16";
      if (p.kind == PackKind::kF16 || p.kind == PackKind::kF32) return "its weights are not exact in bf16";
      return caps.avx512_bf16 ? nullptr : "the CPU has no AVX512_BF16";
    case QmatmulVariant::kPanelBf16Amx:
      if (!bf16) return "the arithmetic asked for is not bf16";
      return caps.amx_bf16 && caps.avx512_bf16 ? nullptr : "the CPU has no AMX bf16, or the kernel does not grant it";
    case QmatmulVariant::kPanelBf16Avx512:
      if (!bf16) return "the arithmetic asked for is not bf16";
      return caps.avx512_bf16 ? nullptr : "the CPU has no AVX512_BF16";
    case QmatmulVariant::kRowsF32:
    case QmatmulVariant::kPanelF32:
    case QmatmulVariant::kRef: return nullptr;
  }
  return "unknown variant";
}

struct QmatmulPlan {
  QmatmulVariant variant = QmatmulVariant::kRef;
  bool ok = false;
  const char* reason = "";  ///< of the last refusal when not ok
};

constexpr QmatmulPlan qmatmul_plan(const CpuCaps& caps, const QmatmulProblem& p, const Crossovers& crossovers = {}) {
  QmatmulPlan plan;
  if (p.m < 1 || p.rows < 1 || p.cols < 1) {
    plan.reason = "m, rows and cols must be at least 1";
    return plan;
  }
  for (const QmatmulVariant variant : kQmatmulOrder) {
    plan.reason = qmatmul_declines(variant, caps, p, crossovers);
    if (plan.reason == nullptr) return {variant, true, ""};
  }
  return plan;
}

/// Every variant with its verdict, one a line, for `inspect` and traces.
std::string qmatmul_explain(const CpuCaps& caps, const QmatmulProblem& p, const Crossovers& crossovers = {});

}  // namespace galvani::kernels
