#pragma once
/// How a part's tensor cores add 16-bit products into f32: `products` of them and the sum so far are aligned to the
/// largest exponent among them and cut off (towards zero) `extra` bits below that one's last place in f32, added
/// exactly, and the result is cut off to f32. NVIDIA does not document it. Sources: Fasi, Higham, Mikaitis, Pranesh,
/// "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021 (V100, T4, A100); Khattak and Mikaitis, "Accurate Models
/// of NVIDIA Tensor Cores", arXiv 2512.07004 (V100 to B200, bit for bit).
#include "device/device_caps.h"

namespace galvani {

struct TensorCore {
  int products, extra;
};
constexpr TensorCore tensor_core(const DeviceCaps& caps) {
  return caps.cc < 80 ? TensorCore{4, 0} : caps.cc < 90 ? TensorCore{8, 1} : TensorCore{16, 2};
}

}  // namespace galvani
