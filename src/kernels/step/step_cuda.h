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
  /// Floats of StepAttention::part_out for one token, most that any context needs; 2 / v_dim of it for part_stat.
  int64_t part_floats(int heads, int kv_heads, int v_dim) const;

  /// Keys up to which this is what a step should be: step_most_keys of its attention.
  int64_t most_keys() const { return step_most_keys(key_bytes_); }
  /// "kernel=decode_step_q4_bf16_sm90 161 phases, blocks=132 stages=4 smem=205952 keys<=16384".
  std::string text() const;
  /// Null, or why the phases together cannot be one launch.
  const char* refusal() const;
  size_t bytes() const { return phases_.size() * sizeof(StepPhase); }
  const StepPhase* data() const { return phases_.data(); }

  /// Of the memory that a launch needs; the most of all programs since this was made.
  size_t scratch_bytes() const { return static_cast<size_t>(kStepCounterBytes + 2 * most_relay_); }
  /// Device memory, 128-byte aligned, for the launches of what is appended from now on; it must be set before the first
  /// phase. Phases that it has no room for hand nothing on and wait for each other by full barriers.
  void use(void* scratch, size_t bytes);
  /// Launches the phases, which `device_phases` (bytes() of them, as data() has them) holds when it runs. Writes the
  /// scratch memory first. May be captured.
  Status launch(cuda::Stream& stream, const void* device_phases) const;

 private:
  StepLayout layout() const;
  /// Null, or why the phases with this one do not fit.
  const char* append(StepNeeds needs, const StepPhase& phase);
  /// Ends the epoch (step_relay.cuh) at a phase with a full barrier, which blanks what it used.
  void end_epoch(StepPhase& phase);
  /// Lets the last phase but one hand the last, a product, what it multiplies, if that is what it makes.
  void relay();

  DeviceCaps caps_;
  Arithmetic arithmetic_;
  int bits_ = 0;
  int64_t key_bytes_ = 0;                                ///< most of a layer without a window
  const int *position_ = nullptr, *sequence_ = nullptr;  ///< of the first attention phase
  StepNeeds needs_;
  unsigned char* scratch_ = nullptr;
  int relay_capacity_ = kStepMostRelay;  ///< bytes of a set
  int most_relay_ = 0, relay_used_ = 0;  ///< of all epochs, of this one
  int epoch_ = 0;
  std::vector<StepPhase> phases_;
};

}  // namespace galvani::kernels
