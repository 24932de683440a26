#pragma once
/// What device code may use, derived here once from an image and nowhere else. An arm asks for features, never for a
/// compute capability.
///
/// A feature belongs to the image, not to the device: PTX for 8.0 run on a 9.0 device has the features of 8.0.
/// Source: PTX ISA 9.0, "Target ISA notes" of each instruction.
#include <cstdint>
#include <string>

#include "device/cuda_image.h"

namespace galvani {

enum class Feature : uint32_t {
  kDp4a = 1u << 0,             ///< four 8-bit multiply-adds (6.1)
  kMmaM8n8k4 = 1u << 1,        ///< Volta's f16 tensor product (7.0; emulated from 8.0 on)
  kLdmatrix = 1u << 2,         ///< ldmatrix, mma.m16n8k8 f16 (7.5)
  kMmaM16n8k16 = 1u << 3,      ///< mma.m16n8k16 f16 with f32 sums (8.0)
  kBf16 = 1u << 4,             ///< bf16 arithmetic and tensor products (8.0)
  kCpAsync = 1u << 5,          ///< cp.async to shared memory (8.0)
  kFp8Mma = 1u << 6,           ///< e4m3/e5m2 tensor products (8.9)
  kBulkCopy = 1u << 7,         ///< cp.async.bulk with mbarrier transaction counts (9.0)
  kCluster = 1u << 8,          ///< clusters and distributed shared memory (9.0)
  kDependentLaunch = 1u << 9,  ///< griddepcontrol, programmatic dependent launch (9.0)
  kSetmaxnreg = 1u << 10,      ///< setmaxnreg (9.0a; from 10.0 on every a and f image)
  kWgmma = 1u << 11,           ///< wgmma (9.0a alone)
  kTcgen05 = 1u << 12,         ///< tensor memory, tcgen05 (10.x a and f)
  kBlockScaledMma = 1u << 13,  ///< mma.sync with block scales, mxfp4/nvfp4 (12.x a and f)
};

/// A set of features, as bits.
struct Features {
  uint32_t bits = 0;

  constexpr Features() = default;
  constexpr Features(Feature feature) : bits(static_cast<uint32_t>(feature)) {}
  constexpr explicit Features(uint32_t set) : bits(set) {}
  constexpr Features operator|(Features other) const { return Features(bits | other.bits); }
  constexpr bool has(Features wanted) const { return (bits & wanted.bits) == wanted.bits; }
  constexpr Features without(Features other) const { return Features(bits & ~other.bits); }
  constexpr bool operator==(const Features&) const = default;
};
constexpr Features operator|(Feature a, Feature b) { return Features(a) | Features(b); }

constexpr Features features_of(const CudaImage& image) {
  Features set;
  const int cc = image.cc;
  const bool specific = image.suffix != 0;
  if (cc >= 61 && cc != 62) set = set | Feature::kDp4a;
  if (cc >= 70) set = set | Feature::kMmaM8n8k4;
  if (cc >= 75) set = set | Feature::kLdmatrix;
  if (cc >= 80) set = set | Feature::kMmaM16n8k16 | Feature::kBf16 | Feature::kCpAsync;
  if (cc >= 89) set = set | Feature::kFp8Mma;
  if (cc >= 90) set = set | Feature::kBulkCopy | Feature::kCluster | Feature::kDependentLaunch;
  if (specific && cc >= 90) set = set | Feature::kSetmaxnreg;
  if (image.suffix == 'a' && cc == 90) set = set | Feature::kWgmma;
  if (specific && (cc / 10 == 10 || cc / 10 == 11)) set = set | Feature::kTcgen05;
  if (specific && cc / 10 == 12) set = set | Feature::kBlockScaledMma;
  return set;
}

/// What an arm whose name ends in _smNN[a|f] may be compiled for: its guard by name. "90a" for exactly 90a, "80" for
/// 8.0 and everything newer, "120f" for a and f images of the family.
constexpr bool arm_compiles_for(const CudaImage& arm, const CudaImage& image) {
  if (image.cc < arm.cc) return false;
  if (arm.suffix == 'a') return image.suffix == 'a' && image.cc == arm.cc;
  if (arm.suffix == 'f') return image.suffix != 0 && image.cc / 10 == arm.cc / 10;
  return true;
}

/// "bf16 cp_async wgmma", or "none".
std::string features_str(Features features);

}  // namespace galvani
