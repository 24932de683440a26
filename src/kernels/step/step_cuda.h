#pragma once
/// A decode step of one token as one kernel: see README.md. The phases are written down once, while a model is walked,
/// and launched as often as the step is run; what they point to keeps its place.
#include <optional>
#include <string>
#include <vector>

#include "cuda/launch.h"
#include "cuda/memory.h"
#include "kernels/common/arithmetic.h"
#include "kernels/qmatmul/qmatmul_cuda.h"
#include "kernels/step/step_plan.h"

namespace galvani::kernels {

/// The kernel for affine codes of `bits` bits, null where there is none.
const char* step_kernel_name(int bits, Arithmetic arithmetic);

class StepProgram {
 public:
  StepProgram(const DeviceCaps& caps, Arithmetic arithmetic) : caps_(caps), arithmetic_(arithmetic) {}

  /// Appends y (+)= W · x with x, y, norm_w, eps, plus_one, input, output, gate, alpha and limit as in `product`; the
  /// rest is filled in from w. Null, or why this kernel cannot do it (then nothing was appended).
  const char* product(const CudaMatrix& w, StepProduct product);
  /// Appends attention; its qkv.rows is 1.
  const char* attention(const StepAttention& attention);

  bool empty() const { return phases_.empty(); }
  size_t size() const { return phases_.size(); }
  void clear();
  /// Floats of StepAttention::part_out for one token, most that any context needs; two 128ths of it for part_stat.
  int64_t part_floats(int heads, int kv_heads, int v_dim) const;

  /// "kernel=decode_step_q4_bf16_sm90 161 phases, blocks=132 stages=5 smem=227200".
  std::string text() const;
  /// Null, or why the phases together cannot be one launch.
  const char* refusal() const;
  size_t bytes() const { return phases_.size() * sizeof(StepPhase); }
  const StepPhase* data() const { return phases_.data(); }

  /// Launches the phases, which `device_phases` (bytes() of them, as data() has them) holds when it runs. arrived: one
  /// counter, which this sets to zero first. May be captured.
  Status launch(cuda::Stream& stream, const void* device_phases, unsigned* arrived) const;

 private:
  StepLayout layout() const;
  /// Null, or why the phases with this one do not fit.
  const char* append(StepNeeds needs, const StepPhase& phase);

  DeviceCaps caps_;
  Arithmetic arithmetic_;
  int bits_ = 0;
  const int *position_ = nullptr, *sequence_ = nullptr;  ///< of the first attention phase
  StepNeeds needs_;
  std::vector<StepPhase> phases_;
};

}  // namespace galvani::kernels
