#include "kernels/check_rig.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/op_checks.h"

namespace galvani::kernels {
namespace {

constexpr int kRows = 3, kDim = 1000;

Result<KernelVerdict> check_gated(CheckRig& rig) {
  const auto gate = rig.normal(kRows * kDim, 3), up = rig.normal(kRows * kDim);
  GatedArgs args{.gate_stride = kDim, .up_stride = kDim, .rows = kRows, .dim = kDim};
  GALVANI_TRY(args.gate, rig.upload(gate));
  GALVANI_TRY(args.up, rig.upload(up));
  GALVANI_TRY(args.out, rig.output(gate.size(), StoreType::kF32));
  args.out_stride = kDim;
  GALVANI_TRY_VOID(gated_cuda(rig.stream(), args));
  GALVANI_TRY(const auto got, rig.read(args.out, gate.size(), StoreType::kF32));
  std::vector<double> exact(gate.size());
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = silu_ref(gate[i]) * up[i];
  return KernelVerdict{"gated_sm70",
                       worst_share(got, exact, [&](size_t i) { return 0x1p-20 * std::fabs(exact[i]) + 0x1p-120; }),
                       "silu, 3 rows of 1000"};
}

Result<KernelVerdict> check_finish(CheckRig& rig) {
  const auto x = rig.normal(kRows * kDim, 20), bias = rig.normal(kDim);
  FinishArgs args{.stride = kDim, .rows = kRows, .dim = kDim, .scale = 0.5f, .cap = 30};
  GALVANI_TRY(args.x, rig.upload(x));
  GALVANI_TRY(args.bias, rig.upload(bias));
  GALVANI_TRY_VOID(finish_rows_cuda(rig.stream(), args));
  GALVANI_TRY(const auto got, rig.read(args.x, x.size(), StoreType::kF32));
  std::vector<double> exact(x.size());
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = softcap_ref((double{x[i]} + bias[i % kDim]) * 0.5, 30);
  return KernelVerdict{
      "finish_rows_sm70",
      worst_share(
          got, exact,
          [&](size_t i) { return 0x1p-20 * (std::fabs(exact[i]) + std::fabs(x[i]) + std::fabs(bias[i % kDim])); }),
      "bias, scale and cap, 3 rows of 1000"};
}

/// Integers: exact.
Result<KernelVerdict> check_count(CheckRig& rig) {
  auto x = rig.normal(kRows * kDim, 30000);
  x[0] = NAN, x[1] = -INFINITY, x[kDim + 7] = 3.4028235e38f;
  CountArgs args{.stride = kDim, .rows = kRows, .dim = kDim, .largest = 65504};
  GALVANI_TRY(args.x, rig.upload(x));
  GALVANI_TRY(args.counters, rig.upload(std::vector<unsigned long long>(2, 0)));
  GALVANI_TRY_VOID(count_values_cuda(rig.stream(), args));
  unsigned long long got[2] = {}, exact[2] = {};
  GALVANI_TRY_VOID(rig.stream().to_host(got, args.counters, sizeof(got)));
  GALVANI_TRY_VOID(rig.stream().synchronize());
  for (const float v : x) {
    exact[0] += !std::isfinite(v);
    exact[1] += std::isfinite(v) && std::fabs(v) > args.largest;
  }
  return KernelVerdict{"count_values_sm70", got[0] == exact[0] && got[1] == exact[1] ? 0.0 : 2.0,
                       fmt::format("{} and {}, exactly {} and {}", got[0], got[1], exact[0], exact[1])};
}

Result<KernelVerdict> check_embed(CheckRig& rig) {
  constexpr int kVocab = 50;
  auto table = rig.normal(kVocab * kDim);
  const std::vector<int> tokens = {49, 0, 17};
  EmbedArgs args{.rows = kRows, .dim = kDim, .type = StoreType::kF16, .scale = 2};
  GALVANI_TRY(args.table, rig.upload_as(table, StoreType::kF16));
  GALVANI_TRY(args.tokens, rig.upload(tokens));
  GALVANI_TRY(void* out, rig.output(kRows * kDim, StoreType::kF32));
  args.out = static_cast<float*>(out);
  GALVANI_TRY_VOID(embed_cuda(rig.stream(), args));
  GALVANI_TRY(const auto got, rig.read(out, kRows * kDim, StoreType::kF32));
  std::vector<double> exact(got.size());
  for (size_t i = 0; i < exact.size(); ++i)
    exact[i] = 2.0 * table[static_cast<size_t>(tokens[i / kDim] * kDim) + i % kDim];
  // A power of two times an f16: exact.
  return KernelVerdict{"embed_sm70", worst_share(got, exact, [](size_t) { return 1e-30; }), "3 tokens of 50, f16"};
}

}  // namespace

Result<std::vector<KernelVerdict>> check_elementwise(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  std::vector<KernelVerdict> verdicts;
  for (const auto check : {check_count, check_gated, check_finish, check_embed}) {
    GALVANI_TRY(verdicts.emplace_back(), check(rig));
  }
  return verdicts;
}

}  // namespace galvani::kernels
