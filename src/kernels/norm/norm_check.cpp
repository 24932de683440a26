#include "kernels/check_rig.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/op_checks.h"

namespace galvani::kernels {

/// y = norm(x), weights as they are, to bf16.
Result<std::vector<KernelVerdict>> check_norm(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  constexpr int kRows = 3, kDim = 2880;
  const auto x = rig.normal(kRows * kDim, 3), w = rig.normal(kDim);
  constexpr StoreType kType = StoreType::kBF16;
  NormArgs args{.x_stride = kDim, .rows = kRows, .dim = kDim};
  GALVANI_TRY(args.x, rig.upload(x));
  GALVANI_TRY(args.norm.w, rig.upload(w));
  std::vector<double> exact(x.size());
  rms_norm_ref(x.data(), kRows, kDim, kDim, w.data(), {1e-6f, false}, exact.data());
  std::vector<KernelVerdict> verdicts;
  for (const auto& [form, name] :
       {std::pair{RowsForm::kFew, "rms_norm_sm70"}, {RowsForm::kMany, "rms_norm_many_sm70"}}) {
    GALVANI_TRY(args.out, rig.output(x.size(), kType));
    args.out_stride = kDim, args.out_type = kType;
    GALVANI_TRY_VOID(rms_norm_cuda(rig.stream(), args, form));
    GALVANI_TRY(const auto got, rig.read(args.out, x.size(), kType));
    const double worst = worst_share(got, exact, [&](size_t i) {
      return (1.05 * store_roundoff(kType) + 0x1p-20) * std::fabs(exact[i]) + 0x1p-100;
    });
    verdicts.push_back({name, worst, "3 rows of 2880 to bf16"});
  }
  return verdicts;
}

}  // namespace galvani::kernels
