#pragma once
/// Whether a kernel can be trusted to run here, decided before it is launched. Pure; the attributes come from
/// cudaFuncGetAttributes, which launches nothing.
#include <string>

#include "cuda/kernel_table.h"
#include "device/device_caps.h"

namespace galvani::cuda {

enum class Answer { kUnknown, kYes, kNo, kCouldNotTell };
/// "yes", "no", "could not tell", "not asked".
const char* answer_str(Answer answer);

/// What the runtime says of a loaded kernel.
struct KernelAttributes {
  int binary_version = 0;  ///< of the machine code that runs, 10 × major + minor
  int ptx_version = 0;     ///< of what it was compiled from
  int registers = 0;
  int max_threads = 0;                                       ///< of a block, from registers and launch bounds
  int static_smem = 0, local_bytes = 0, constant_bytes = 0;  ///< bytes

  constexpr bool operator==(const KernelAttributes&) const = default;
};

struct SelfTest {
  Answer answer = Answer::kUnknown;
  std::string reason;  ///< empty for yes; else it names the kernel
};

/// The architecture a kernel's name ends in ("..._sm90a"). Errors: kInvalidArgument.
Result<CudaImage> arm_of_name(std::string_view kernel_name);

/// Whether no build for this device could run a kernel of that name: it is for other parts, and that it does not run
/// here is no fault.
bool is_for_other_parts(std::string_view kernel_name, const DeviceCaps& caps);

/// What can be said from the registration alone: does the object's architecture suffice for the name's suffix and the
/// needed features, and does this device run it.
SelfTest judge_registration(const KernelEntry& entry, std::string_view arch, const DeviceCaps& caps);

/// The whole answer: registration, then versions, threads and shared memory as loaded.
SelfTest judge_kernel(const KernelEntry& entry, std::string_view arch, const DeviceCaps& caps,
                      const KernelAttributes& loaded);

}  // namespace galvani::cuda
