#pragma once
// The walk of a decode step's warp over chunks of 4-bit weights, in integers.
//
// What bounds the walk of qmatmul_one.cuh is the integer pipe, which turns codes into numbers: 112 of 229 instructions
// a chunk are rotations and masks at half rate. Tensor cores multiply bytes as well, and four codes become bytes by one
// mask. So x is written as three bytes: x = u · (65536·high + 256·middle + low), u a power of two for each subgroup,
// the digits signed. |x / u| is below 2^21, so that x is off by at most 2^-21 of its subgroup's largest, and exact
// within 2^13 (bf16; f16: 2^10) of it; the products and their sums are exact, and no code carries an offset whose share
// of the sum has to go off again.
//
// As in qmatmul_one.cuh a column of B belongs to one subgroup, and zeros stand where a product is another's: here two
// columns a subgroup, its high and its middle digits, and in a second B its low ones (the column beside them is not
// looked at). So the sums of four subgroups come out in the four lanes of a row, a subgroup each.
#include "kernels/common/mma.cuh"
#include "kernels/common/ptx.cuh"
#include "kernels/qmatmul/a16_decode.cuh"
#include "kernels/step/step_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// x in shared memory: a unit of 64 columns is its high, its middle and its low digits, a plane each. Digit 4t + b of
/// sixteen is that of column 2t + {0, 8, 1, 9}[b]: the order in which masks leave the codes of an A16 word.
constexpr int kStepPlane = kA16Cols, kStepUnitX = 3 * kStepPlane;
/// Of a subgroup: the sum of x, and u / 8, since a masked code is eight times the code.
struct alignas(8) StepSum {
  float sum, unit;
};
static_assert(kStepUnitX == kStepColumnBytes * kA16Cols && sizeof(StepSum) == kStepSumBytes);

/// A chunk of four units: out += Σ scale · (codes · x) + bias · Σx over the lane's subgroups, rows g and g + 8.
template <int kSub, A16Scale kScale>
struct StepChunk {
  static constexpr int kUnits = 4, kPairBytes = a16_pair_bytes(kScale), kWords = a16_word_bytes(4);
  static constexpr int kUnitBytes = kWords + kA16Rows * kSub * kPairBytes;
  static constexpr int kSubgroups = kUnits * kSub, kSetUnits = kUnits / kSub;  ///< a set: four subgroups

  /// What a lane needs to know of its place; the same for every chunk.
  struct Lane {
    unsigned x, zero;           ///< ldmatrix addresses: of x's first unit, and of the zeros
    unsigned picks[kSetUnits];  ///< 1 where the column that this lane addresses belongs to its sixteen of a set's unit
    int pair;                   ///< of its own subgroup's pair in the first set
  };
  GALVANI_DEVICE static Lane place(unsigned x, unsigned zero, int lane) {
    const int sixteen = lane / 8, column = lane % 8, own = lane % 4;
    Lane l;
    l.x = x + sixteen * 16 + column % 2 * kStepPlane;
    l.zero = zero + (sixteen + 1) % 4 * 16;  // another bank
#pragma unroll
    for (int i = 0; i < kSetUnits; ++i) l.picks[i] = kept(column / 2 == i * kSub + sixteen * kSub / 4 ? 1 : 0);
    l.pair = own / kSub * kUnitBytes + kWords + (own % kSub * 8 + lane / 4) * 2 * kPairBytes;
    return l;
  }

  /// Four subgroups, from unit kSet · kSetUnits on.
  template <int kSet>
  GALVANI_DEVICE static void add(const unsigned char* at, unsigned x, const StepSum* sums, const Lane& l, int lane,
                                 float (&out)[2]) {
    int high[4] = {}, low[4] = {};  // high and middle digits; low digits and what nobody wants
#pragma unroll
    for (int i = 0; i < kSetUnits; ++i) {
      const int unit = kSet * kSetUnits + i;
      const uint4 words = *reinterpret_cast<const uint4*>(at + unit * kUnitBytes + lane * 16);
      // A multiplication, since the pipe of comparisons and selections is the one that codes keep busy.
      const unsigned from = l.zero + l.picks[i] * (x - l.zero) + unit * kStepUnitX;
      unsigned b[4], b_low[4];
      ldmatrix_x4(b, from);
      ldmatrix_x4(b_low, from + 2 * kStepPlane);
      const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        constexpr unsigned kCodes = 0x78787878u;
        const unsigned a[4] = {word[2 * h] & kCodes, rotate_right<4>(word[2 * h]) & kCodes, word[2 * h + 1] & kCodes,
                               rotate_right<4>(word[2 * h + 1]) & kCodes};
        const unsigned pair[2] = {b[2 * h], b[2 * h + 1]}, pair_low[2] = {b_low[2 * h], b_low[2 * h + 1]};
        mma_m16n8k32_s8(high, a, pair);
        mma_m16n8k32_s8(low, a, pair_low);
      }
    }
    const StepSum sum = sums[4 * kSet];
    const A16Scales sc = a16_scales<kScale>(at + l.pair + kSet * kSetUnits * kUnitBytes);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float rest = static_cast<float>(256 * high[2 * r + 1] + low[2 * r]);
      const float product = fmaf(static_cast<float>(high[2 * r]), 65536.0f, rest) * sum.unit;
      out[r] = fmaf(sc.scale[r], product, fmaf(sc.bias[r], sum.sum, out[r]));
    }
  }
  GALVANI_DEVICE static void add_all(const unsigned char* at, unsigned x, const StepSum* sums, const Lane& l, int lane,
                                     float (&out)[2]) {
    add<0>(at, x, sums, l, lane, out);
    if constexpr (kSub > 1) add<1>(at, x, sums, l, lane, out);
    if constexpr (kSub > 2) {
      add<2>(at, x, sums, l, lane, out);
      add<3>(at, x, sums, l, lane, out);
    }
  }
};

}  // namespace galvani::kernels::GALVANI_CUDA_NS
