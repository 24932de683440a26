#pragma once
/// Which compiled device images a GPU can run: a pure question, enumerated on the CPU, no CUDA include.
///
/// An image is what one architecture of GALVANI_CUDA_ARCHS left in the binary. Written as CMake writes it:
///   "90"          machine code for 9.0; runs on the same major version and an equal or higher minor one
///   "80-virtual"  PTX for 8.0; the driver compiles it for any equal or newer device, with the features of 8.0 alone
///   "90a"         machine code for exactly this device, with instructions that no other generation has
///   "100f"        machine code for the family: the same major version, an equal or higher minor one
/// Source of the rules: CUDA C++ programming guide, "Compute capabilities" and "Binary compatibility". Tegra parts
/// (7.2, 8.7, 11.0, ...) share no machine code and no family with others; the guide says so and this follows it.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "galvani/error.h"

namespace galvani {

struct CudaImage {
  int cc = 0;       ///< 10 × major + minor, e.g. 90, 121
  char suffix = 0;  ///< 0, 'a' (this device alone) or 'f' (this family)
  bool ptx = false;

  constexpr bool operator==(const CudaImage&) const = default;
};

constexpr bool is_tegra(int cc) { return cc == 53 || cc == 62 || cc == 72 || cc == 87 || cc == 101 || cc == 110; }

/// Whether a device of compute capability `cc` (10 × major + minor) runs this image.
constexpr bool covers(const CudaImage& image, int cc) {
  if (image.cc <= 0 || cc <= 0 || cc < image.cc) return false;
  if (image.suffix == 'a') return cc == image.cc;
  if (image.ptx && image.suffix == 0) return true;
  if (is_tegra(cc) || is_tegra(image.cc)) return cc == image.cc;
  return cc / 10 == image.cc / 10;
}

/// A short list with value semantics, so that a DeviceCaps is plain constexpr data. Beyond kCapacity nothing is added.
struct CudaImageList {
  static constexpr int kCapacity = 24;
  std::array<CudaImage, kCapacity> images{};
  int count = 0;

  constexpr CudaImageList() = default;
  constexpr CudaImageList(std::initializer_list<CudaImage> list) {
    for (const CudaImage& image : list) add(image);
  }
  constexpr void add(const CudaImage& image) {
    if (count < kCapacity) images[static_cast<size_t>(count++)] = image;
  }
  constexpr const CudaImage* begin() const { return images.data(); }
  constexpr const CudaImage* end() const { return images.data() + count; }
  constexpr bool empty() const { return count == 0; }
  constexpr bool operator==(const CudaImageList&) const = default;
};

/// Which of two images that both cover the device is the better one: made for it alone, then for its family, then the
/// newest machine code, then the newest PTX.
constexpr int image_rank(const CudaImage& image) {
  return image.cc + (image.suffix == 'a' ? 4000 : image.suffix == 'f' ? 3000 : image.ptx ? 0 : 2000);
}

/// The image a device of `cc` would run, or nullptr.
constexpr const CudaImage* best_image(const CudaImageList& list, int cc) {
  const CudaImage* best = nullptr;
  for (const CudaImage& image : list)
    if (covers(image, cc) && (best == nullptr || image_rank(image) > image_rank(*best))) best = &image;
  return best;
}

/// "90a", "80-virtual" or "sm_90a", "compute_80" → image. Errors: kInvalidArgument with the forms that are allowed.
Result<CudaImage> parse_cuda_image(std::string_view text);
/// "75;90a" → list, in the order given. The empty string is the empty list.
Result<CudaImageList> parse_cuda_images(std::string_view text);

/// "sm_90a" or, for PTX, "compute_80".
std::string cuda_image_str(const CudaImage& image);
/// As GALVANI_CUDA_ARCHS writes them: "75;80-virtual;90a".
std::string cuda_images_str(const CudaImageList& list);
/// "9.0" of 90.
std::string compute_capability_str(int cc);
/// What to give GALVANI_CUDA_ARCHS for a device: "90a" for 9.0, "100f" for 10.3, "86" for 8.6.
std::string arch_to_build_for(int cc);

/// From this capability on the matrix products have an arm: what older devices could be built for runs no model.
constexpr int kLeastToRunModels = 75;

/// Success when the device runs at least one image. Otherwise kUnsupported, naming the device, what the binary holds,
/// the value to rebuild with where that helps, and the CPU.
Status check_coverage(const CudaImageList& list, int cc, std::string_view device_name);

}  // namespace galvani
