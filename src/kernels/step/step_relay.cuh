#pragma once
// What a phase hands to the next in words that say themselves whether they have come.
//
// A barrier by which everything written before it is seen after it waits for all that its block has written to arrive:
// 2,500 cycles while rings are filled, five times a layer. But of most phases the next reads nothing but the vector
// that it multiplies. So those words are blank before they are written, a NaN that no conversion makes, and a block
// that finds a blank one asks again. Such a phase's barrier orders nothing: it only says when asking is likely to help.
//
// Each word is written once and read in one epoch, which begins at the full barrier before attention. Two sets of words
// take turns: what epoch e has used is blanked after the full barrier that ends it, so that another lies between the
// blanks and epoch e + 2, whose reads find either blanks or its own words. Nothing else may be overwritten too early
// either: a phase that writes has waited for words that depend on all that is read before (PTX ISA, memory consistency
// model: morally strong operations of 32 bits are single-copy atomic; no thin air).
#include "kernels/common/grid.cuh"
#include "kernels/common/ptx.cuh"
#include "kernels/step/step_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Where a row's element is: the four from 4 on and the four from 8 on of a sixteen change places, so that what a
/// thread makes digits of (step_put_x) lies side by side.
GALVANI_DEVICE int step_relay_at(int row) { return (row & ~12) | (row & 4) << 1 | (row & 8) >> 1; }

/// Whether one of eight elements is blank.
GALVANI_DEVICE bool step_blank(const uint4& v) {
  const auto halves = [](unsigned w) { return ((w & 0x7fff7fffu) + 0x00010001u) & w; };
  return ((halves(v.x) | halves(v.y) | halves(v.z) | halves(v.w)) & 0x80008000u) != 0;
}
/// False where that cannot be, in fewer instructions: their sum would not be a number.
template <typename T>
GALVANI_DEVICE bool step_perhaps_blank(const uint4& v) {
  constexpr unsigned kExponent = kIsBf16Type<T> ? 0x7f807f80u : 0x7c007c00u, kOne = kExponent & -kExponent & 0xffffu;
  const unsigned sum = add2<T>(add2<T>(v.x, v.y), add2<T>(v.z, v.w));
  return (((sum & kExponent) + kOne * 0x10001u) & 0x80008000u) != 0;
}
/// Eight elements at `from`, asked for again until they have come.
template <typename T>
GALVANI_DEVICE void step_await(uint4& v, const uint4* from) {
  if (!step_perhaps_blank<T>(v)) return;
  for (; step_blank(v); look_again(from)) v = load_relaxed(from);
}
GALVANI_DEVICE float step_await(const float* from) {
  unsigned word;
  for (; (word = load_relaxed(reinterpret_cast<const unsigned*>(from))) == kStepBlank; look_again(from)) {
  }
  return __uint_as_float(word);
}

/// The elements of two neighbouring lanes, rows `row` and the next, by the even one.
template <typename T>
GALVANI_DEVICE void step_hand(void* relay, int row, float value, bool writes) {
  const float other = __shfl_down_sync(kFullMask, value, 1);
  if (writes && lane_id() % 2 == 0)
    store_relaxed(reinterpret_cast<unsigned*>(static_cast<T*>(relay) + step_relay_at(row)), pack2<T>(value, other));
}
/// A sum that may be NaN.
GALVANI_DEVICE void step_hand_sum(float* to, float value) {
  store_relaxed(reinterpret_cast<unsigned*>(to), value == value ? __float_as_uint(value) : 0x7fffffffu);
}

/// The block's sign that its words are about to come: early, since a look at the counter takes as long as the block's
/// last sums.
GALVANI_DEVICE void step_sign(const StepArgs& s) {
  if (threadIdx.x == kStepThreads - 1) grid_arrive_relaxed(s.arrived);
}

/// Blanks what the epoch before has used, a part by each block.
GALVANI_DEVICE void step_make_blank(const StepPhase& phase) {
  const int at = static_cast<int>(threadIdx.x * gridDim.x + blockIdx.x) * 16;
  for (int i = at; i < phase.blank_bytes; i += static_cast<int>(gridDim.x) * kStepThreads * 16)
    *reinterpret_cast<uint4*>(phase.blank + i) = make_uint4(kStepBlank, kStepBlank, kStepBlank, kStepBlank);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
