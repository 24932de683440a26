#pragma once
/// A tensor map as kernels take it. Plain data for host and device, so that device code compiles alone (NVRTC).

namespace galvani::kernels {

/// CUtensorMap, opaque here; made by cuda/blas.h's functions. A kernel takes it as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace galvani::kernels
