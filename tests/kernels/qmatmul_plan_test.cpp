/// The plan over every CPU there could be, built or not.
#include "kernels/qmatmul/qmatmul_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace galvani::kernels {
namespace {

constexpr int kCapBits = 7;

CpuCaps caps_of(int mask) {
  const auto has = [mask](int bit) { return ((mask >> bit) & 1) != 0; };
  return {has(0), has(1), has(2), has(3), has(4), has(5), has(6)};
}

template <typename Body>
void each_problem(const Body& body) {
  for (int mask = 0; mask < 1 << kCapBits; ++mask)
    for (const PackKind kind : {PackKind::kAffine, PackKind::kTable4, PackKind::kBF16, PackKind::kF16, PackKind::kF32})
      for (const Arithmetic arithmetic : {Arithmetic::kF32, Arithmetic::kF16, Arithmetic::kBF16})
        for (const QmatmulArm arm : {QmatmulArm::kAuto, QmatmulArm::kRef, QmatmulArm::kRows, QmatmulArm::kPanel})
          for (const int64_t m : {1, 2, 15, 16, 17, 64, 4096})
            body(caps_of(mask), QmatmulProblem{m, 576, 1536, kind, arithmetic, arm});
}

TEST(QmatmulPlan, EveryProblemHasAKernelThatTheCpuCanRun) {
  std::set<QmatmulVariant> used;
  each_problem([&](const CpuCaps& caps, const QmatmulProblem& p) {
    const QmatmulPlan plan = qmatmul_plan(caps, p);
    ASSERT_TRUE(plan.ok) << plan.reason;
    used.insert(plan.variant);
    EXPECT_EQ(qmatmul_declines(plan.variant, caps, p, {}), nullptr);
    if (p.arm != QmatmulArm::kAuto) {
      EXPECT_EQ(qmatmul_variant_arm(plan.variant), p.arm);
    }
    if (p.arm == QmatmulArm::kAuto) {
      EXPECT_EQ(qmatmul_variant_arm(plan.variant), p.m >= 16 ? QmatmulArm::kPanel : QmatmulArm::kRows);
    }
    const bool bf16_kernel = plan.variant == QmatmulVariant::kRowsBf16Avx512 ||
                             plan.variant == QmatmulVariant::kPanelBf16Avx512 ||
                             plan.variant == QmatmulVariant::kPanelBf16Amx;
    if (bf16_kernel) {
      EXPECT_TRUE(caps.avx512_bf16);
      EXPECT_EQ(p.arithmetic, Arithmetic::kBF16);
    }
    if (plan.variant == QmatmulVariant::kPanelBf16Amx) {
      EXPECT_TRUE(caps.amx_bf16);
    }
  });
  EXPECT_EQ(used.size(), static_cast<size_t>(kQmatmulVariants)) << "a kernel that no problem selects";
}

TEST(QmatmulPlan, EveryRefusalSaysWhy) {
  each_problem([](const CpuCaps& caps, const QmatmulProblem& p) {
    for (const QmatmulVariant variant : kQmatmulOrder) {
      const char* reason = qmatmul_declines(variant, caps, p, {});
      if (reason != nullptr) {
        ASSERT_GT(std::string(reason).size(), 10u);
      }
    }
    const std::string text = qmatmul_explain(caps, p);
    ASSERT_NE(text.find("can run"), std::string::npos) << text;
  });
}

TEST(QmatmulPlan, RefusesEmptyProblems) {
  for (const QmatmulProblem& p : {QmatmulProblem{0, 1, 1}, QmatmulProblem{1, 0, 1}, QmatmulProblem{1, 1, 0}}) {
    const QmatmulPlan plan = qmatmul_plan({}, p);
    EXPECT_FALSE(plan.ok);
    EXPECT_STRNE(plan.reason, "");
  }
}

TEST(QmatmulPlan, CrossoverIsAnArgument) {
  QmatmulProblem p{8, 576, 576, PackKind::kAffine, Arithmetic::kF32, QmatmulArm::kAuto};
  EXPECT_EQ(qmatmul_plan({}, p).variant, QmatmulVariant::kRowsF32);
  EXPECT_EQ(qmatmul_plan({}, p, {.panel_from = 4, .measured = true}).variant, QmatmulVariant::kPanelF32);
}

static_assert(qmatmul_plan({}, {1, 16, 32}).variant == QmatmulVariant::kRowsF32, "plans are constant expressions");

}  // namespace
}  // namespace galvani::kernels
