#include "device/features.h"

namespace galvani {

std::string features_str(Features features) {
  constexpr struct {
    Feature feature;
    const char* name;
  } kNames[] = {
      {Feature::kDp4a, "dp4a"},
      {Feature::kMmaM8n8k4, "mma_m8n8k4"},
      {Feature::kLdmatrix, "ldmatrix"},
      {Feature::kMmaM16n8k16, "mma_m16n8k16"},
      {Feature::kBf16, "bf16"},
      {Feature::kCpAsync, "cp_async"},
      {Feature::kFp8Mma, "fp8_mma"},
      {Feature::kBulkCopy, "bulk_copy"},
      {Feature::kCluster, "cluster"},
      {Feature::kDependentLaunch, "dependent_launch"},
      {Feature::kSetmaxnreg, "setmaxnreg"},
      {Feature::kWgmma, "wgmma"},
      {Feature::kTcgen05, "tcgen05"},
      {Feature::kBlockScaledMma, "block_scaled_mma"},
  };
  std::string text;
  for (const auto& [feature, name] : kNames) {
    if (!features.has(feature)) continue;
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text.empty() ? "none" : text;
}

}  // namespace galvani
