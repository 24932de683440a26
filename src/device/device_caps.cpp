#include "device/device_caps.h"

#include <fmt/format.h>

namespace galvani {

std::string device_caps_str(const DeviceCaps& caps) {
  if (caps.cc == 0) return "no GPU";
  return fmt::format(
      "compute capability {}, {} SMs, {} KiB shared memory a block, {} MiB L2, {:.0f} GiB; images {}; features {}",
      compute_capability_str(caps.cc), caps.sms, caps.smem_optin / 1024, caps.l2_bytes >> 20,
      static_cast<double>(caps.memory_bytes) / (1 << 30), caps.images.empty() ? "none" : cuda_images_str(caps.images),
      features_str(caps.features));
}

}  // namespace galvani
