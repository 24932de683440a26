#include "kernels/check_rig.h"
#include "kernels/linear/linear_dense_cuda.h"
#include "kernels/op_checks.h"

namespace galvani::kernels {

Result<std::vector<KernelVerdict>> check_linear(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  constexpr int kRows = 3, kN = 65, kK = 704;
  auto x = rig.normal(kRows * kK), w = rig.normal(kN * kK);
  LinearDenseArgs args{.x_type = StoreType::kF16, .x_stride = kK, .w_type = StoreType::kF32};
  args.y_stride = kN, args.rows = kRows, args.n = kN, args.k = kK;
  GALVANI_TRY(args.x, rig.upload_as(x, StoreType::kF16));
  GALVANI_TRY(args.w, rig.upload_as(w, StoreType::kF32));
  GALVANI_TRY(void* y, rig.output(kRows * kN, StoreType::kF32));
  args.y = static_cast<float*>(y);
  GALVANI_TRY_VOID(linear_dense_cuda(rig.stream(), args));
  GALVANI_TRY(const auto got, rig.read(y, kRows * kN, StoreType::kF32));
  std::vector<double> exact(got.size(), 0.0), size(got.size(), 0.0);
  for (size_t i = 0; i < exact.size(); ++i)
    for (size_t k = 0; k < kK; ++k) {
      const double term = double{x[i / kN * kK + k]} * w[i % kN * kK + k];
      exact[i] += term, size[i] += std::fabs(term);
    }
  // f32 sums of 704 terms in any order.
  const double worst = worst_share(got, exact, [&](size_t i) { return kK * 0x1p-24 * size[i]; });
  std::vector<KernelVerdict> verdicts;
  for (const cuda::Kernel* kernel : device.kernels())
    if (std::string(kernel->name()).starts_with("linear_dense") && kernel->launches() > 0)
      verdicts.push_back({kernel->name(), worst, "3 x 65 x 704, f16 by f32"});
  return verdicts;
}

}  // namespace galvani::kernels
