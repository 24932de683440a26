#include "cuda/self_test.h"

#include "core/error.h"

namespace galvani::cuda {
namespace {

template <typename... Args>
SelfTest no(fmt::format_string<Args...> format, Args&&... args) {
  return {Answer::kNo, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace

const char* answer_str(Answer answer) {
  switch (answer) {
    case Answer::kUnknown: return "not asked";
    case Answer::kYes: return "yes";
    case Answer::kNo: return "no";
    case Answer::kCouldNotTell: return "could not tell";
  }
  return "?";
}

Result<CudaImage> arm_of_name(std::string_view kernel_name) {
  const size_t cut = kernel_name.rfind("_sm");
  if (cut != std::string_view::npos) {
    auto image = parse_cuda_image(kernel_name.substr(cut + 3));
    if (image && !image->ptx) return *image;
  }
  return fail(ErrorCode::kInvalidArgument,
              "kernel name '{}' does not end in _smNN, _smNNa or _smNNf, so nobody knows what it needs", kernel_name);
}

bool is_for_other_parts(std::string_view kernel_name, const DeviceCaps& caps) {
  const auto arm = arm_of_name(kernel_name);
  const auto here = parse_cuda_image(arch_to_build_for(caps.cc));
  return arm && here && !arm_compiles_for(*arm, *here);
}

SelfTest judge_registration(const KernelEntry& entry, std::string_view arch, const DeviceCaps& caps) {
  const auto image = parse_cuda_image(arch);
  if (!image) return no("kernel {}: {}", entry.name, image.error().message);
  const auto arm = arm_of_name(entry.name);
  if (!arm) return no("{}", arm.error().message);
  if (!arm_compiles_for(*arm, *image))
    return no(
        "kernel {} needs an object compiled for {}, but this one was compiled for {}, where its body is not what "
        "its name says; rebuild with GALVANI_CUDA_ARCHS={}",
        entry.name, cuda_image_str(*arm), arch, cuda_images_str({*arm}));
  const Features missing = entry.needs.without(features_of(*image));
  if (missing.bits != 0)
    return no("kernel {} needs {}, which code compiled for {} does not have; rebuild with GALVANI_CUDA_ARCHS={}",
              entry.name, features_str(missing), arch, arch_to_build_for(caps.cc));
  if (!covers(*image, caps.cc))
    return no(
        "kernel {} was compiled for {}, which a device of compute capability {} does not run; rebuild with "
        "GALVANI_CUDA_ARCHS={}",
        entry.name, arch, compute_capability_str(caps.cc), arch_to_build_for(caps.cc));
  return {Answer::kYes, ""};
}

SelfTest judge_kernel(const KernelEntry& entry, std::string_view arch, const DeviceCaps& caps,
                      const KernelAttributes& loaded) {
  SelfTest registration = judge_registration(entry, arch, caps);
  if (registration.answer != Answer::kYes) return registration;
  const CudaImage image = *parse_cuda_image(arch);
  // Machine code reports the architecture it was made for twice; PTX its own, and as binary that of the device.
  const int binary = image.ptx ? caps.cc : image.cc;
  if (loaded.ptx_version != image.cc || loaded.binary_version != binary)
    return no("kernel {} was registered as {} (binary {}, PTX {}), but what the driver loaded is binary {}, PTX {}",
              entry.name, arch, binary, image.cc, loaded.binary_version, loaded.ptx_version);
  if (loaded.max_threads < entry.threads)
    return no("kernel {} is to run with {} threads a block, but its {} registers allow {}", entry.name, entry.threads,
              loaded.registers, loaded.max_threads);
  if (loaded.static_smem + entry.dynamic_smem > caps.smem_optin)
    return no("kernel {} needs {} bytes of shared memory a block ({} static, {} dynamic), this device allows {}",
              entry.name, loaded.static_smem + entry.dynamic_smem, loaded.static_smem, entry.dynamic_smem,
              caps.smem_optin);
  return {Answer::kYes, ""};
}

}  // namespace galvani::cuda
