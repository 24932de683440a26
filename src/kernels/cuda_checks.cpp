#include "kernels/cuda_checks.h"

#include <algorithm>
#include <array>

#include "kernels/op_checks.h"

namespace galvani::kernels {

std::span<const KernelCheck> kernel_checks() {
  using Names = std::vector<std::string>;
  // Sorted by operation.
  static constexpr KernelCheck kChecks[] = {
      {"a16-pack", checked_a16_pack, check_a16_pack},
      {"attention", checked_attention, check_attention},
      {"elementwise",
       [](const DeviceCaps&) {
         return Names{"count_values_sm70", "embed_sm70", "finish_rows_sm70", "gated_sm70"};
       },
       check_elementwise},
      {"linear", [](const DeviceCaps&) { return Names{"linear_dense_sm70"}; }, check_linear},
      {"norm",
       [](const DeviceCaps&) {
         return Names{"rms_norm_many_sm70", "rms_norm_sm70"};
       },
       check_norm},
      {"probe",
       [](const DeviceCaps&) {
         return Names{"random_fill_sm70", "read_sweep_sm70"};
       },
       check_probe},
      {"qmatmul", checked_qmatmul, check_qmatmul},
      {"rope",
       [](const DeviceCaps&) {
         return Names{"qkv_finish_many_sm70", "qkv_finish_sm70", "rope_table_sm70"};
       },
       check_rope},
      {"sampling",
       [](const DeviceCaps&) {
         return Names{"sample_copy_sm70", "sample_edit_sm70", "sample_pick_sm70", "sample_scan_sm70"};
       },
       check_sampling},
      {"step", checked_step, check_step},
  };
  return kChecks;
}

bool computes_nothing(std::string_view kernel) {
  // The benchmarks' plain reads write only for a value that does not occur, and the last writes what clocks showed.
  constexpr std::array<std::string_view, 3> kNames = {"read_bulk_sm90", "read_plain_sm70", "sm_clock_sm70"};
  return std::find(kNames.begin(), kNames.end(), kernel) != kNames.end();
}

}  // namespace galvani::kernels
