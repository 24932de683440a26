#include "kernels/plan_tables.h"

namespace galvani::kernels {

std::vector<PlanTable> plan_tables() {
  // One operation a line, sorted.
  return {
      qmatmul_cuda_plan_table(),
  };
}

std::set<std::string> kernels_without_a_choice() {
  return {
      // The ceilings of doctor and bench: one kernel each, on every part.
      "random_fill_sm70",
      "read_bulk_sm90",
      "read_plain_sm70",
      "read_sweep_sm70",
  };
}

}  // namespace galvani::kernels
