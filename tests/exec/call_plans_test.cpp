// Products of several parts (q/k/v, gate and up) at the planning level: one kernel a stretch of equal formats, and a
// forced arm holds for each of them or is refused.
#include "exec/call_plans.h"

#include <gtest/gtest.h>

#include "device/parts.h"
#include "kernels/qmatmul/qmatmul_cuda_plan.h"
#include "kernels/qmatmul_source.h"

namespace galvani::exec {
namespace {

using kernels::testing::MemoryMatrix;
using kernels::testing::Scales;
using Call = RecordingOps::Call;

quant::MatrixPtr packed(int64_t rows, int bits, int group = 64) {
  return std::make_shared<MemoryMatrix>(
      MemoryMatrix::affine_random(rows, 128, bits, group, DType::kBF16, Scales::kFree, 1));
}
quant::MatrixPtr dense(int64_t rows) {
  return std::make_shared<MemoryMatrix>(MemoryMatrix::dense_random(rows, 128, DType::kBF16, 1));
}

Call product(std::vector<quant::MatrixPtr> parts, int64_t rows = 1) {
  Call call{.name = "mlp.gate_proj", .rows = rows, .in = 128, .parts = std::move(parts)};
  for (const quant::MatrixPtr& part : call.parts) call.out += part->rows();
  return call;
}

GpuChoice forced(kernels::QmatmulCudaArm arm, kernels::Arithmetic arithmetic = kernels::Arithmetic::kF16) {
  return {.arithmetic = arithmetic, .kv = DType::kF16, .forced_matmul = static_cast<int>(arm), .arm_named = true};
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(CallPlans, EqualFormatsAreOneLaunchAndAForcedArmHoldsForIt) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  const Call qkv = product({packed(64, 4), packed(32, 4), packed(32, 4)});
  for (const auto& [arm, name] : {std::pair{kernels::QmatmulCudaArm::kMma, "arm=mma"},
                                  {kernels::QmatmulCudaArm::kFewBulk, "arm=few-bulk"},
                                  {kernels::QmatmulCudaArm::kFewAsync, "arm=few-async"},
                                  {kernels::QmatmulCudaArm::kWgmma, "arm=wgmma"}}) {
    const std::string plan = cuda_call_plan(h200, qkv, forced(arm));
    EXPECT_EQ(count(plan, "kernel="), 1u) << plan;
    EXPECT_EQ(count(plan, name), 1u) << plan;
    EXPECT_EQ(cuda_call_refusal(h200, qkv, forced(arm)), "");
  }
}

TEST(CallPlans, EachStretchOfAMixedProductRunsTheForcedArmOrTheProductIsRefused) {
  const DeviceCaps& t4 = find_part("t4")->caps;
  const Call mixed = product({packed(64, 4), packed(32, 8)});
  const std::string mma = cuda_call_plan(t4, mixed, forced(kernels::QmatmulCudaArm::kMma));
  EXPECT_EQ(count(mma, "arm=mma"), 2u) << mma;
  EXPECT_EQ(cuda_call_refusal(t4, mixed, forced(kernels::QmatmulCudaArm::kMma)), "");
  // The first part could run on it, the second has no instance: not half of the product on another arm in silence.
  const std::string refusal = cuda_call_refusal(t4, mixed, forced(kernels::QmatmulCudaArm::kFewPlain));
  EXPECT_NE(refusal.find("8 bits"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("--arm qmatmul=few-plain does not run it: it has no 8-bit instance"), std::string::npos)
      << refusal;
  EXPECT_EQ(cuda_call_refusal(t4, product({packed(64, 4)}), forced(kernels::QmatmulCudaArm::kFewPlain)), "");
}

TEST(CallPlans, PartsJoinOnlyAtWholeRowTilesAndDensePartsStandAlone) {
  const DeviceCaps& h200 = find_part("h200")->caps;
  const GpuChoice choice;
  EXPECT_EQ(count(cuda_call_plan(h200, product({packed(48, 4), packed(16, 4)}), choice), "kernel="), 1u);
  EXPECT_EQ(count(cuda_call_plan(h200, product({packed(40, 4), packed(16, 4)}), choice), "kernel="), 2u);
  const Call with_dense = product({packed(48, 4), dense(16)});
  const std::string plan = cuda_call_plan(h200, with_dense, choice);
  EXPECT_EQ(count(plan, "kernel="), 1u) << plan;
  EXPECT_EQ(count(plan, "cuBLASLt"), 1u) << plan;
  // What is not quantized is no business of the arm, as long as something is.
  const std::vector<Call> calls = {with_dense};
  EXPECT_TRUE(
      check_gpu_calls(h200, calls, forced(kernels::QmatmulCudaArm::kMma, kernels::Arithmetic::kBF16)).has_value());
  const std::vector<Call> none = {product({dense(16)})};
  const Status refused = check_gpu_calls(h200, none, forced(kernels::QmatmulCudaArm::kMma, kernels::Arithmetic::kBF16));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("--arm qmatmul=mma"), std::string::npos) << refused.error().message;
  GpuChoice invariant = choice;  // pins the arm without naming it
  invariant.forced_matmul = static_cast<int>(kernels::QmatmulCudaArm::kMma);
  EXPECT_TRUE(check_gpu_calls(h200, none, invariant).has_value());
}

// Otherwise the first step would fail, after the weights have been loaded.
TEST(CallPlans, RowsThatNoNormHoldsAreRefused) {
  const DeviceCaps &t4 = find_part("t4")->caps, &h200 = find_part("h200")->caps;
  const GpuChoice f16{.arithmetic = kernels::Arithmetic::kF16, .kv = DType::kF16};
  Call call = product({packed(64, 4)});
  call.normed = true;
  for (const auto& [caps, dim, runs] : {std::tuple{&t4, 16384, true},
                                        {&t4, 16448, false},
                                        {&h200, 57344, true},
                                        {&h200, 57856, true},
                                        {&h200, 57920, false}}) {
    call.in = dim;
    const std::string refusal = cuda_call_refusal(*caps, call, f16);
    EXPECT_EQ(refusal.find("the norm before it has rows of") == std::string::npos, runs) << dim << ": " << refusal;
  }
  call.normed = false;
  EXPECT_EQ(cuda_call_refusal(h200, call, f16).find("norm"), std::string::npos);
}

// Memory for a matrix in 16 bits is taken where a plan expands one, and only there.
TEST(CallPlans, WorkspacesAreThoseOfTheArmsThatAreTaken) {
  constexpr int64_t kMib = int64_t{1} << 20, kBlas = 32 * kMib, kParts = 16 * kMib;
  const DeviceCaps &a100 = find_part("a100-80")->caps, &h200 = find_part("h200")->caps;
  const Call calls[] = {product({packed(64, 4), packed(32, 4)}), product({packed(48, 8)}, 512)};
  const int64_t largest = 96 * 128 * 2;  // 64 and 32 rows are one matrix
  GpuChoice choice;
  EXPECT_EQ(gpu_workspace_bytes(a100, calls, choice), largest + kBlas) << "from 256 tokens on expanding is faster";
  EXPECT_EQ(gpu_workspace_bytes(h200, calls, choice), kParts) << "wgmma is faster at any number of tokens";
  choice.expand_bytes = largest - 1;
  EXPECT_EQ(gpu_workspace_bytes(a100, calls, choice), 48 * 128 * 2 + kBlas) << "the larger one may not be expanded";
  choice.expand_bytes = 0;
  EXPECT_EQ(gpu_workspace_bytes(a100, calls, choice), 0) << "forbidden";
  const std::string plan = cuda_call_plan(a100, calls[1], choice);
  EXPECT_EQ(count(plan, "arm=mma"), 1u) << plan;
  choice = forced(kernels::QmatmulCudaArm::kExpand);
  EXPECT_EQ(gpu_workspace_bytes(h200, calls, choice), largest + kBlas + kParts);
  choice.expand_bytes = 0;
  EXPECT_NE(cuda_call_refusal(h200, calls[1], choice).find("it was forbidden"), std::string::npos);
  EXPECT_EQ(gpu_workspace_bytes(h200, std::vector{product({dense(64)})}, {}), kBlas + kParts) << "through cuBLASLt";
}

TEST(CallPlans, OptionsAreRefusedWithWhatIsAllowed) {
  const auto message = [](const char* part, const OpsOptions& options) {
    const auto choice = gpu_choice(find_part(part)->caps, part, options, DType::kF16);
    return choice ? std::string() : choice.error().message;
  };
  using kernels::Arithmetic;
  EXPECT_NE(message("h200", {.arithmetic = Arithmetic::kF32}).find("allowed: auto, f16, bf16 (or --device cpu)"),
            std::string::npos);
  EXPECT_NE(message("t4", {.arithmetic = Arithmetic::kBF16}).find("t4 multiplies no bf16"), std::string::npos);
  EXPECT_NE(message("t4", {.arithmetic = Arithmetic::kF16, .arms = {{"qmatmul", "rows"}}}).find("few-bulk, few-async"),
            std::string::npos);
  EXPECT_NE(message("t4", {.arithmetic = Arithmetic::kF16, .arms = {{"norm", "x"}}}).find("attention, qmatmul"),
            std::string::npos);
  EXPECT_EQ(message("t4", {.arithmetic = Arithmetic::kF16, .arms = {{"attention", "simt"}, {"qmatmul", "auto"}}}), "");
}

}  // namespace
}  // namespace galvani::exec
