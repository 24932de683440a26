/// The CUDA plan is pure, so every known part and an unknown one is planned here: whatever is planned fits, and what
/// cannot run says why.
#include "kernels/qmatmul/qmatmul_cuda_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "device/parts.h"
#include "kernels/qmatmul/qmatmul_cuda_text.h"

namespace galvani::kernels {
namespace {

QmatmulCudaProblem problem(int64_t m, int64_t n, int64_t k, Arithmetic arithmetic, A16Format format = {}) {
  QmatmulCudaProblem p;
  p.m = m, p.n = n, p.k = k, p.arithmetic = arithmetic, p.format = format, p.kind = weight_kind_of(format);
  return p;
}

constexpr std::pair<int64_t, int64_t> kShapes[] = {{704, 2112},   {2112, 704},    {2816, 2880},  {5120, 17408},
                                                   {17408, 5120}, {28672, 8192},  {8192, 28672}, {4096, 4096},
                                                   {48, 2048},    {248320, 2560}, {16, 64}};

TEST(QmatmulCudaPlan, EveryPartFindsAnArmThatFits) {
  std::set<std::string> seen;
  for (const Part& part : known_parts()) {
    const DeviceCaps& caps = part.caps;
    for (const auto& [n, k] : kShapes)
      for (int bits : {2, 3, 4, 5, 6, 8})
        for (int group : {16, 32, 64, 128})
          for (A16Scale scale : {A16Scale::kBF16, A16Scale::kF32})
            for (Arithmetic arithmetic : {Arithmetic::kF16, Arithmetic::kBF16})
              for (int64_t m : {1, 2, 7, 8, 9, 16, 63, 64, 65, 128, 4096}) {
                const QmatmulCudaPlan plan =
                    qmatmul_cuda_plan(caps, problem(m, n, k, arithmetic, {bits, group, scale}));
                const bool can =
                    caps.has(Feature::kLdmatrix) && (arithmetic == Arithmetic::kF16 || caps.has(Feature::kBf16));
                ASSERT_EQ(plan.ok, can) << part.key << " " << n << "×" << k << " m " << m << ": " << plan.reason;
                if (!plan.ok) {
                  ASSERT_STRNE(plan.reason, "");
                  continue;
                }
                ASSERT_LE(plan.smem, caps.smem_optin) << part.key << " " << plan.kernel();
                ASSERT_GE(plan.grid_x, 1);
                ASSERT_EQ(plan.grid_x % plan.cluster, 0);
                if (plan.arm == QmatmulCudaArm::kWgmma) {
                  ASSERT_GE(plan.wgmma.stages, 2);
                }
                // Not chosen before it has been measured; asked for, it must fit.
                QmatmulCudaProblem streamed = problem(m, n, k, arithmetic, {bits, group, scale});
                streamed.forced = static_cast<int>(QmatmulCudaArm::kStream);
                if (const QmatmulCudaPlan forced = qmatmul_cuda_plan(caps, streamed); forced.ok) {
                  seen.insert(qmatmul_cuda_arm_name(forced.arm));
                  ASSERT_LE(forced.smem, caps.smem_optin) << part.key << " " << forced.kernel();
                  const QmatmulStreamArgs& s = forced.stream.args;
                  ASSERT_LE(m, forced.tokens);
                  ASSERT_GE(s.stages, 2);
                  ASSERT_LE(s.columns * s.parts, 4);
                  ASSERT_GE(s.columns * 4, s.pass_tiles);
                  ASSERT_GE(s.step, s.parts);  // every part has units in a whole stage
                }
                if (qmatmul_cuda_is_few(plan.arm)) {
                  ASSERT_LE(m, 8);
                }
                seen.insert(qmatmul_cuda_arm_name(plan.arm));
              }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"few-bulk", "few-async", "few-plain", "stream", "wgmma", "mma"}));
}

/// The inverse that divides chunk numbers by multiplication is exact for every number the kernel divides.
TEST(QmatmulCudaPlan, ChunksAreDividedExactly) {
  for (const auto& [n, k] : kShapes)
    for (int bits : {2, 4, 8})
      for (int log2 : {0, 1, 2, 4}) {  // 4: no cluster, chunks of eight
        const QmatmulArgs args = qmatmul_cuda_args(problem(1, n, k, Arithmetic::kBF16, {bits, 64, A16Scale::kBF16}));
        const FewShape few = few_shape(args, 1, log2 == 4 ? 0 : log2, 132, 232448, 2, 4, log2 == 4 ? 8 : 4, log2 == 4);
        if (!few.ok) continue;
        for (int i : {0, 1}) {
          const auto chunks = static_cast<uint64_t>(few.args.chunks[i]);
          if (chunks == 1) continue;
          const uint64_t most = (static_cast<uint64_t>(few.args.tiles) + 1) * chunks;
          for (uint64_t at = 0; at <= most; ++at)
            ASSERT_EQ((at * few.args.chunks_inverse[i]) >> 32, at / chunks) << n << "×" << k << " at " << at;
        }
      }
}

TEST(QmatmulCudaPlan, RefusalsNameTheirReason) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  QmatmulCudaProblem p = problem(1, 4096, 4096, Arithmetic::kBF16);
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).kernel(), "qmatmul_one_q4_bf16_c4_sm90");
  EXPECT_TRUE(qmatmul_cuda_plan(h200, p).dependent_launch);
  p.tuning.one = 0;
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).kernel(), "qmatmul_few_q4_bf16_sm90");
  p.tuning.one = -1;
  p.m = 2;
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).kernel(), "qmatmul_few_q4_bf16_sm90");
  p.m = 9;
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).kernel(), "qmatmul_stream_q4_bf16_t16_bf16_sm90a");
  EXPECT_EQ(qmatmul_cuda_plan(h200, p, {.stream_upto = 0}).kernel(), "qmatmul_wgmma_q4_bf16_t64_sm90a");
  p.m = 65;
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).arm, QmatmulCudaArm::kWgmma);
  p.m = 9;
  p.x_aligned = false;
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).arm, QmatmulCudaArm::kMma);
  p.forced = static_cast<int>(QmatmulCudaArm::kWgmma);
  EXPECT_STREQ(qmatmul_cuda_plan(h200, p).reason,
               "the tensor copy engine needs x and its rows at multiples of 16 bytes");
  p.forced = static_cast<int>(QmatmulCudaArm::kFewBulk);
  EXPECT_STREQ(qmatmul_cuda_plan(h200, p).reason, "it takes at most 8 tokens");
  p.forced = static_cast<int>(QmatmulCudaArm::kExpand);
  EXPECT_STREQ(qmatmul_cuda_plan(h200, p).reason, "it was forbidden (--expand-mib 0)");
  p = problem(1, 4096, 4096, Arithmetic::kBF16);
  EXPECT_STREQ(qmatmul_cuda_plan(find_part("t4")->caps, p).reason, "this part has no bf16 arithmetic");
  p.arithmetic = Arithmetic::kF16;
  EXPECT_EQ(qmatmul_cuda_plan(find_part("t4")->caps, p).arm, QmatmulCudaArm::kFewPlain);
  EXPECT_FALSE(qmatmul_cuda_plan(find_part("v100")->caps, p).ok);
  p.kind = WeightKind::kMxfp4;
  EXPECT_STREQ(qmatmul_cuda_plan(h200, p).reason, "the packed format holds another kind of weights");
  p.kind = WeightKind::kTrellis;
  EXPECT_STREQ(qmatmul_cuda_plan(h200, p).reason, "trellis codes have no GPU product so far");
  p = problem(1, 4096, 4096, Arithmetic::kBF16);
  p.input = InputTransform::kHadamard128;
  EXPECT_STREQ(qmatmul_cuda_plan(h200, p).reason, "no arm transforms its input yet, and no checkpoint asks for it");
  const std::string text = qmatmul_cuda_explain(h200, problem(64, 28672, 4096, Arithmetic::kBF16));
  EXPECT_NE(text.find("few-bulk: it takes at most 8 tokens"), std::string::npos) << text;
  EXPECT_NE(text.find("stream: runs"), std::string::npos) << text;
  EXPECT_NE(text.find("wgmma: could run"), std::string::npos) << text;
}

// What was faster when all launches were timed on an H200 (docs/records/2026-12-01-h200-sixth.md), by 3 to 30 %.
TEST(QmatmulCudaPlan, NineTo64TokensTakeWhatWasFasterOnAnH200) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  struct Best {
    int64_t n, k, m;
    QmatmulCudaArm arm;
    int split_log2;  // of a stream
  };
  constexpr auto kStream = QmatmulCudaArm::kStream, kWgmma = QmatmulCudaArm::kWgmma;
  for (const auto& [n, k, m, arm, split_log2] :
       {Best{4096, 4096, 16, kStream, 1}, {4096, 4096, 32, kStream, 1},  {4096, 4096, 64, kWgmma, 0},
        {6144, 4096, 24, kStream, 0},     {6144, 4096, 32, kStream, 0},  {6144, 4096, 48, kWgmma, 0},
        {14336, 4096, 24, kStream, 0},    {14336, 4096, 32, kStream, 0}, {14336, 4096, 64, kWgmma, 0},
        {4096, 14336, 24, kStream, 1},    {4096, 14336, 32, kStream, 1}, {4096, 14336, 48, kWgmma, 0},
        {5120, 17408, 16, kStream, 2},    {5120, 17408, 32, kStream, 2}, {5120, 17408, 64, kWgmma, 0},
        {28672, 8192, 16, kStream, 0},    {28672, 8192, 32, kStream, 0}, {28672, 8192, 64, kStream, 0},
        {28672, 4096, 48, kStream, 0},    {28672, 4096, 64, kStream, 0}}) {
    const QmatmulCudaPlan plan = qmatmul_cuda_plan(h200, problem(m, n, k, Arithmetic::kBF16));
    EXPECT_EQ(plan.arm, arm) << n << 'x' << k << ", " << m << " tokens";
    if (arm == kStream && plan.arm == kStream) {
      EXPECT_EQ(plan.stream.args.split_log2, split_log2) << n << 'x' << k << ", " << m << " tokens";
    }
  }
}

// The same record: what is asked for before x makes x late, by 4 to 21 % of the product.
TEST(QmatmulCudaPlan, FewTokensAskForLittleBeforeXWhereTheirPartsAreShort) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  struct Best {
    int64_t n, k, m;
    int stages, ahead;
  };
  for (const auto& [n, k, m, stages, ahead] : {Best{4096, 14336, 1, 3, 1},
                                               {5120, 17408, 1, 3, 1},
                                               {14336, 4096, 1, 3, 1},
                                               {28672, 8192, 1, 3, 2},
                                               {14336, 4096, 8, 2, 1},
                                               {4096, 14336, 8, 2, 1},
                                               {6144, 4096, 8, 2, 1},
                                               {28672, 8192, 8, 2, 2}}) {
    const QmatmulCudaPlan plan = qmatmul_cuda_plan(h200, problem(m, n, k, Arithmetic::kBF16));
    ASSERT_EQ(plan.arm, QmatmulCudaArm::kFewBulk);
    EXPECT_EQ(plan.few.args.stages, stages) << n << 'x' << k << ", " << m << " tokens";
    EXPECT_EQ(plan.few.args.ahead, ahead) << n << 'x' << k << ", " << m << " tokens";
  }
  // Asked for, any number.
  QmatmulCudaProblem p = problem(8, 14336, 4096, Arithmetic::kBF16);
  p.tuning.stages = 4, p.tuning.ahead = 3;
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).few.args.stages, 4);
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).few.args.ahead, 3);
}

// Where a part has no arm for few tokens, none of the others may say that those are faster.
TEST(QmatmulCudaPlan, FewTokenArmsAreFasterOnlyWhereThereIsOne) {
  int said = 0, not_said = 0;
  for (const Part& part : known_parts())
    for (const int bits : {2, 3, 4, 5, 6, 8})
      for (const Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF16})
        for (const int64_t m : {1, 8}) {
          QmatmulCudaProblem p = problem(m, 4096, 4096, arithmetic);
          p.format.bits = bits;
          bool few = false;
          for (const auto arm : {QmatmulCudaArm::kFewBulk, QmatmulCudaArm::kFewAsync, QmatmulCudaArm::kFewPlain})
            few |= qmatmul_cuda_declines(arm, part.caps, p, {}) == nullptr;
          const std::string text = qmatmul_cuda_explain(part.caps, p);
          EXPECT_EQ(text.find("few-token arms are faster") != std::string::npos, few) << part.key << '\n' << text;
          ++(few ? said : not_said);
        }
  EXPECT_GT(said, 100);
  EXPECT_GT(not_said, 20);
}

// GALVANI_TRACE=plan: the problem, the kernel, and why the arms before it declined.
TEST(QmatmulCudaPlan, APlanIsALineOfText) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  QmatmulCudaProblem p = problem(64, 28672, 4096, Arithmetic::kBF16);
  EXPECT_EQ(qmatmul_cuda_problem_text(p), "64 tokens x [28672, 4096], 4 bits, group 64, bf16 scales, bf16");
  EXPECT_EQ(qmatmul_cuda_plan_text(h200, p, PlanDetail::kReasons).find("kernel=qmatmul_stream_q4_bf16_t64"), 0u);
  EXPECT_NE(qmatmul_cuda_plan_text(h200, p, PlanDetail::kReasons).find("few-bulk: it takes at most 8 tokens"),
            std::string::npos);
  p.m = 1, p.x_aligned = false;
  EXPECT_EQ(qmatmul_cuda_problem_text(p), "1 token x [28672, 4096], 4 bits, group 64, bf16 scales, bf16, unaligned");
  // The crossovers of the run, not the defaults.
  p = problem(1024, 4096, 4096, Arithmetic::kBF16);
  p.workspace_bytes = 4096 * 4096 * 2;
  EXPECT_EQ(qmatmul_cuda_plan_text(h200, p, PlanDetail::kKernel, {.expand_from_wgmma = 512}).find("kernel=a16_expand"),
            0u);
}

TEST(QmatmulCudaPlan, ExpandingIsBoundedByItsWorkspaceAndItsCrossover) {
  const DeviceCaps& ada = find_part("4090")->caps;
  QmatmulCudaProblem p = problem(1024, 4096, 4096, Arithmetic::kBF16);
  p.workspace_bytes = 4096 * 4096 * 2;
  const QmatmulCudaPlan plan = qmatmul_cuda_plan(ada, p);
  EXPECT_EQ(plan.arm, QmatmulCudaArm::kExpand);
  EXPECT_EQ(plan.workspace_bytes, p.workspace_bytes);
  p.workspace_bytes -= 1;
  EXPECT_EQ(qmatmul_cuda_plan(ada, p).arm, QmatmulCudaArm::kMma);
  p.workspace_bytes += 1, p.m = 255;
  EXPECT_EQ(qmatmul_cuda_plan(ada, p).arm, QmatmulCudaArm::kMma);
  EXPECT_EQ(qmatmul_cuda_plan(ada, p, {.expand_from = 100, .measured = true}).arm, QmatmulCudaArm::kExpand);
}

TEST(QmatmulCudaPlan, FloatCodesRunOnEveryPart) {
  std::set<std::string> seen;
  for (const Part& part : known_parts()) {
    const DeviceCaps& caps = part.caps;
    for (const auto& [n, k] : kShapes)
      for (const A16Format& format : {kA16Mxfp4, kA16Nvfp4, kA16Mxfp8})
        for (Arithmetic arithmetic : {Arithmetic::kF16, Arithmetic::kBF16})
          for (bool exact : {true, false})
            for (int64_t m : {1, 8, 9, 64, 4096}) {
              QmatmulCudaProblem p = problem(m, n, k, arithmetic, format);
              p.exact_weights = exact;
              const QmatmulCudaPlan plan = qmatmul_cuda_plan(caps, p);
              const bool can =
                  caps.has(Feature::kLdmatrix) && (arithmetic == Arithmetic::kF16 || caps.has(Feature::kBf16));
              ASSERT_EQ(plan.ok, can) << part.key << " " << n << "×" << k << " m " << m << ": " << plan.reason;
              if (!plan.ok) continue;
              ASSERT_LE(plan.smem, caps.smem_optin) << part.key << " " << plan.kernel();
              if (!exact && m > 8) {
                ASSERT_EQ(plan.arm, QmatmulCudaArm::kMma);
              }
              seen.insert(qmatmul_cuda_arm_name(plan.arm));
            }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"few-bulk", "few-async", "few-plain", "wgmma", "mma"}));
  const DeviceCaps& h200 = find_part("h200")->caps;
  EXPECT_EQ(qmatmul_cuda_plan(h200, problem(4, 2880, 2880, Arithmetic::kBF16, kA16Mxfp4)).kernel(),
            "qmatmul_few_e2m1_bf16_sm90");
  EXPECT_EQ(qmatmul_cuda_plan(h200, problem(64, 2880, 2880, Arithmetic::kF16, kA16Mxfp8)).kernel(),
            "qmatmul_wgmma_e4m3_f16_t128_sm90a");
  QmatmulCudaProblem p = problem(64, 2880, 2880, Arithmetic::kF16, kA16Mxfp4);
  p.exact_weights = false, p.forced = static_cast<int>(QmatmulCudaArm::kWgmma);
  EXPECT_STREQ(qmatmul_cuda_plan(h200, p).reason,
               "it forms weights in x's type, and this matrix's scales are too far apart for that to be exact");
  p.format.group = 64;
  EXPECT_FALSE(qmatmul_cuda_plan(h200, p).ok);
}

/// A gated product takes the arm that the product takes, or is the caller's: product, then gate.
TEST(QmatmulCudaPlan, GatedProductsAreFusedWhereTheProductsArmCan) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  for (int64_t m : {1, 8, 9, 64, 65, 8192}) {
    QmatmulCudaProblem p = problem(m, 28672, 4096, Arithmetic::kBF16);
    p.y_16 = true;
    const QmatmulCudaPlan plain = qmatmul_cuda_plan(h200, p);
    p.gated = true;
    const QmatmulCudaPlan gated = qmatmul_cuda_plan(h200, p);
    EXPECT_EQ(gated.arm, plain.arm) << m;
    EXPECT_EQ(gated.ok, qmatmul_cuda_gates(plain.arm)) << m << ": " << gated.reason;
    if (!gated.ok) {
      EXPECT_NE(std::string(gated.reason).find("then the gate"), std::string::npos) << gated.reason;
      continue;
    }
    EXPECT_EQ(gated.kernel(), plain.kernel());
    EXPECT_EQ(gated.wgmma.end, WgmmaEnd::kGate);
    EXPECT_LE(gated.wgmma.end_at + kWgmmaEndBytes, gated.smem);
    EXPECT_LE(gated.smem, h200.smem_optin);
  }
  EXPECT_FALSE(qmatmul_cuda_plan(find_part("a100")->caps,
                                 [] {
                                   QmatmulCudaProblem p = problem(8192, 28672, 4096, Arithmetic::kBF16);
                                   p.gated = p.y_16 = true;
                                   return p;
                                 }())
                   .ok);
}

/// Adding is cheap where f32 leaves by vectors, and is left to the next norm elsewhere.
TEST(QmatmulCudaPlan, ResultsLeaveByVectorsWhereTheyCan) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  QmatmulCudaProblem p = problem(8192, 4096, 14336, Arithmetic::kBF16);
  p.add = true;
  EXPECT_TRUE(qmatmul_cuda_plan(h200, p).adds_cheaply());
  p.y_aligned = false;
  EXPECT_FALSE(qmatmul_cuda_plan(h200, p).adds_cheaply());
  p.y_aligned = true, p.n = 4094;
  EXPECT_EQ(qmatmul_cuda_plan(h200, p).wgmma.end, WgmmaEnd::kSingle);
  p.n = 4096, p.m = 8;
  EXPECT_FALSE(qmatmul_cuda_plan(h200, p).adds_cheaply());
  p = problem(256, 5120, 17408, Arithmetic::kBF16);  // in parts, which another kernel adds up
  EXPECT_GT(qmatmul_cuda_plan(h200, p).wgmma.splits, 1);
  EXPECT_FALSE(qmatmul_cuda_plan(h200, p).adds_cheaply());
}

/// Whatever a tuning asks for, the plan fits or declines; what it leaves open stays the plan's own.
TEST(QmatmulCudaPlan, TuningsFitOrAreDeclined) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  int planned = 0, declined = 0;
  for (const auto& [n, k] : kShapes)
    for (int bits : {2, 4, 8})
      for (int64_t m : {1, 8, 16, 64})
        for (QmatmulCudaArm arm : {QmatmulCudaArm::kFewBulk, QmatmulCudaArm::kStream})
          for (int split : {-1, 0, 1, 2})
            for (int stages : {-1, 2, 9})
              for (int step : {-1, 1, 8, 64})
                for (int tokens : {-1, 16, 32, 64}) {
                  QmatmulCudaProblem p = problem(m, n, k, Arithmetic::kBF16, {bits, 64, A16Scale::kBF16});
                  p.forced = static_cast<int>(arm);
                  p.tuning.split_log2 = split, p.tuning.stages = stages, p.tuning.step = step, p.tuning.tokens = tokens;
                  p.tuning.ahead = 20;
                  const QmatmulCudaPlan plan = qmatmul_cuda_plan(h200, p);
                  plan.ok ? ++planned : ++declined;
                  if (!plan.ok) continue;
                  ASSERT_EQ(plan.arm, arm);
                  ASSERT_LE(plan.smem, h200.smem_optin);
                  if (split >= 0) {
                    ASSERT_EQ(plan.cluster, 1 << split);
                  }
                  const bool few = arm == QmatmulCudaArm::kFewBulk;
                  const int slots = few ? plan.few.args.stages : plan.stream.args.stages;
                  if (stages > 0) {
                    ASSERT_LE(slots, stages);
                  }
                  ASSERT_LE(few ? plan.few.args.ahead : plan.stream.args.ahead, slots);
                  ASSERT_LE(slots, kStreamMostStages);
                }
  EXPECT_GT(planned, 1000);
  EXPECT_GT(declined, 1000);
}

}  // namespace
}  // namespace galvani::kernels
