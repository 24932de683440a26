#pragma once

namespace galvani::kernels {

/// Types in which kernels keep activations, keys and values. Plain, so that device code compiles alone (NVRTC).
enum class StoreType : int { kF32 = 0, kF16 = 1, kBF16 = 2 };

constexpr int store_bytes(StoreType type) { return type == StoreType::kF32 ? 4 : 2; }

}  // namespace galvani::kernels
