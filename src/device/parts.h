#pragma once
/// Known GPUs with their datasheet peaks. Only for what the runtime cannot tell (tensor rates), for shares printed
/// beside a measurement, and for plans of parts that are not here. Nothing is chosen by a part's name.
#include <span>
#include <string_view>

#include "device/device_caps.h"

namespace galvani {

struct Part {
  const char* key;   ///< what --device takes: "v100-sxm"
  const char* name;  ///< for a person
  const char*
      runtime_name;    ///< substring of the name that the CUDA runtime reports; nullptr if it does not tell parts apart
  DeviceCaps caps;     ///< with the images of a build made for this part alone
  double f16_tflops;   ///< dense f16 tensor rate with f32 sums, 10^12 a second; 0 = not known
  double bf16_tflops;  ///< 0 = the part has no bf16 tensor product
  double fp8_tflops;   ///< 0 = none
  double int8_tops;    ///< tensor rate, or dp4a's where there is no integer tensor product
  const char* source;  ///< of the peaks
};

std::span<const Part> known_parts();

/// By key or by the name as sold, with or without its brand and memory size, in any spelling ("rtx5090", "H200 SXM",
/// "NVIDIA GeForce RTX 5090"); a short key names the first of its kind ("v100", "a100", "h100"). nullptr if unknown.
const Part* find_part(std::string_view name);
/// The part that a device looks like: runtime name, compute capability, and for what comes in two sizes the SM count
/// and memory. nullptr for an unknown one.
const Part* part_of_device(std::string_view runtime_name, const DeviceCaps& caps);
/// Keys of the parts whose names are most like an unknown one, at most three; empty when none is: "h200, gh200".
std::string part_keys_like(std::string_view name);
/// "v100-sxm, v100-pcie, t4, ...", for messages.
std::string known_part_keys();

}  // namespace galvani
