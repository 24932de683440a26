#pragma once
// A16 to a row-major matrix [rows, k] of the activations' type, one rounding an element (none for float codes, whose
// factor is left to the product): what a dense product then reads. One warp a unit; a lane writes two columns at a
// time.
#include "kernels/qmatmul/a16_float.cuh"
#include "kernels/qmatmul/qmatmul_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

template <int kStep, int kBits, typename T>
GALVANI_DEVICE void expand_step(const A16ExpandArgs& a, const unsigned char* unit, const A16Codes<kBits, T>& codes,
                                A16ScalesOf<kBits, T, false>& scales, T* to, int row, int col, int lane) {
  if (a16_begins_subgroup(kStep, a.subgroups))
    scales.load(unit, a16_word_bytes(a16_bits(kBits)), kStep * a.subgroups / 4,
                a16_is_float(kBits) ? a.subgroups : a.scale, lane);
  unsigned w[4];
  a16_weights<kStep>(w, codes, scales);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int n = row + r % 2 * 8, k = col + kStep * 16 + r / 2 * 8;
    if (n < a.n && k < a.k) *reinterpret_cast<unsigned*>(to + n * a.stride + k) = w[r];
  }
}

/// a.stride even, columns written in pairs: k even.
template <int kBits, typename T>
__global__ void __launch_bounds__(kExpandWarps* kWarp) a16_expand(const A16ExpandArgs a) {
  const long long index = static_cast<long long>(blockIdx.x) * kExpandWarps + threadIdx.x / kWarp;
  dependency_wait();
  dependency_release();
  if (index >= static_cast<long long>(a.row_tiles) * a.units) return;
  const int lane = lane_id(), tile = static_cast<int>(index / a.units), u = static_cast<int>(index % a.units);
  const unsigned char* unit = a.w + index * a.unit_bytes;
  A16Codes<kBits, T> codes;
  A16ScalesOf<kBits, T, false> scales;
  codes.load(unit, lane);
  T* const to = static_cast<T*>(a.out);
  const int row = tile * kA16Rows + lane / 4, col = u * kA16Cols + lane % 4 * 2;
  expand_step<0>(a, unit, codes, scales, to, row, col, lane);
  expand_step<1>(a, unit, codes, scales, to, row, col, lane);
  expand_step<2>(a, unit, codes, scales, to, row, col, lane);
  expand_step<3>(a, unit, codes, scales, to, row, col, lane);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
