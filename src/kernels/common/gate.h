#pragma once

namespace galvani::kernels {

/// Gated activations: formulas in elementwise.h. Plain, so that device code compiles alone (NVRTC).
enum class Gate : int {
  kSilu,           ///< silu(g)·u
  kGeluTanh,       ///< gelu_tanh(g)·u
  kSwigluClamped,  ///< elementwise.h's swiglu_clamped
  kSigmoid,        ///< sigmoid(g)·u: attention output gates
};

}  // namespace galvani::kernels
