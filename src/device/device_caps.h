#pragma once
/// What a GPU can do in this binary, as plain constexpr data: plans are pure functions of it and of a problem, so that
/// a test on a CPU can enumerate parts nobody here owns. No CUDA include.
#include <cstdint>
#include <string>
#include <string_view>

#include "device/cuda_image.h"
#include "device/features.h"

namespace galvani {

struct DeviceCaps {
  int cc = 0;               ///< compute capability, 10 × major + minor; 0 = no GPU
  int sms = 0;              ///< streaming multiprocessors
  int smem_optin = 0;       ///< bytes of shared memory a block may have at most
  int smem_per_sm = 0;      ///< bytes
  int regs_per_sm = 65536;  ///< 32-bit registers
  int max_threads_per_sm = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double peak_gbps = 0;  ///< datasheet memory rate in 10^9 bytes a second; 0 = not known
  CudaImageList images;  ///< what the binary holds, covering this device or not
  Features features;     ///< of all images that cover this device; see with_images()

  constexpr bool has(Features wanted) const { return features.has(wanted); }
  constexpr bool operator==(const DeviceCaps&) const = default;
};

/// The caps with these images, features derived anew. The only place that sets `features`.
constexpr DeviceCaps with_images(DeviceCaps caps, const CudaImageList& images) {
  caps.images = images;
  caps.features = Features();
  for (const CudaImage& image : images)
    if (covers(image, caps.cc)) caps.features = caps.features | features_of(image);
  return caps;
}

/// The images that a build made for this device alone would hold, with 12.4's toolkit for 7.x: what a plan for a named
/// part assumes. 0 gives none.
constexpr CudaImageList images_made_for(int cc) {
  if (cc == 0) return {};
  if (cc == 90) return {CudaImage{90, 'a', false}};
  if (cc >= 100) return {CudaImage{is_tegra(cc) ? cc : cc / 10 * 10, 'f', false}};
  return {CudaImage{cc, 0, false}};
}

/// One line for a person: "9.0, 132 SMs, 227 KiB shared a block, features ...".
std::string device_caps_str(const DeviceCaps& caps);

}  // namespace galvani
