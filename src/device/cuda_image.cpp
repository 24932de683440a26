#include "device/cuda_image.h"

#include <charconv>

#include "core/error.h"

namespace galvani {

Result<CudaImage> parse_cuda_image(std::string_view text) {
  const std::string_view asked = text;
  const auto refuse = [&] {
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is no CUDA architecture; allowed are a number (75, 90), a number with a or f (90a, 100f), and "
                "a number with -virtual for PTX (80-virtual)",
                asked);
  };
  CudaImage image;
  const auto drop_prefix = [&](std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
  };
  const auto drop_suffix = [&](std::string_view suffix) {
    if (!text.ends_with(suffix)) return false;
    text.remove_suffix(suffix.size());
    return true;
  };
  if (drop_prefix("compute_")) {
    image.ptx = true;
  } else if (!drop_prefix("sm_")) {
    image.ptx = drop_suffix("-virtual");
    if (!image.ptx) drop_suffix("-real");
  }
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, image.cc);
  if (error != std::errc() || image.cc < 30 || image.cc > 999) return refuse();
  if (end - rest == 1 && (*rest == 'a' || *rest == 'f')) {
    image.suffix = *rest;
  } else if (rest != end) {
    return refuse();
  }
  return image;
}

Result<CudaImageList> parse_cuda_images(std::string_view text) {
  CudaImageList list;
  while (!text.empty()) {
    const size_t cut = text.find(';');
    const std::string_view word = text.substr(0, cut);
    text = cut == std::string_view::npos ? std::string_view() : text.substr(cut + 1);
    if (word.empty()) continue;
    if (list.count == CudaImageList::kCapacity)
      return fail(ErrorCode::kInvalidArgument, "more than {} CUDA architectures", CudaImageList::kCapacity);
    GALVANI_TRY(const CudaImage image, parse_cuda_image(word));
    list.add(image);
  }
  return list;
}

std::string cuda_image_str(const CudaImage& image) {
  std::string text = fmt::format("{}_{}", image.ptx ? "compute" : "sm", image.cc);
  if (image.suffix != 0) text += image.suffix;
  return text;
}

std::string cuda_images_str(const CudaImageList& list) {
  std::string text;
  for (const CudaImage& image : list) {
    if (!text.empty()) text += ';';
    text += std::to_string(image.cc);
    if (image.suffix != 0) text += image.suffix;
    if (image.ptx) text += "-virtual";
  }
  return text;
}

std::string compute_capability_str(int cc) { return fmt::format("{}.{}", cc / 10, cc % 10); }

std::string arch_to_build_for(int cc) {
  // 9.0 has instructions of its own; from 10.0 on a family image serves all members, and its lowest member names it.
  if (cc == 90) return "90a";
  if (cc >= 100 && is_tegra(cc)) return fmt::format("{}f", cc);
  if (cc >= 100) return fmt::format("{}f", cc / 10 * 10);
  return std::to_string(cc);
}

Status check_coverage(const CudaImageList& list, int cc, std::string_view device_name) {
  if (best_image(list, cc) != nullptr) return {};
  if (cc < kLeastToRunModels)
    return fail(ErrorCode::kUnsupported,
                "{} has compute capability {}, and this binary holds device code for {} alone, none of which runs "
                "there; models run on a GPU from {} on, so no other build would help; use --device cpu",
                device_name, compute_capability_str(cc), list.empty() ? "no architecture" : cuda_images_str(list),
                compute_capability_str(kLeastToRunModels));
  return fail(ErrorCode::kUnsupported,
              "{} has compute capability {}, and this binary holds device code for {} alone, none of which runs there; "
              "rebuild with -DGALVANI_CUDA_ARCHS={}, or use --device cpu",
              device_name, compute_capability_str(cc), list.empty() ? "no architecture" : cuda_images_str(list),
              arch_to_build_for(cc));
}

}  // namespace galvani
