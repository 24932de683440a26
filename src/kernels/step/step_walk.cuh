#pragma once
// The walk of a decode step's warp over chunks of 4-bit weights, in integers.
//
// Tensor cores multiply bytes, and four codes become bytes by one mask. So x is written as three bytes:
// x = u · (65536·high + 256·middle + low), u a power of two for each subgroup, the digits signed. |x / u| is below
// 2^21, so that x is off by at most 2^-21 of its subgroup's largest, and exact within 2^13 (bf16; f16: 2^10) of it; the
// products and their sums are exact.
//
// A column of B is one digit of one subgroup: columns 0, 1, 2 of the first of a pair of subgroups, 4, 5, 6 of the
// second, zeros in the columns of the other. So one product has all three digits, and the sums of two subgroups come
// out in a row's four lanes: high and middle of the first, its low, high and middle of the second, its low.
//
// x is loaded where it is wanted, by the lanes of its columns alone: with ldmatrix, zeros and all, a chunk took 52
// accesses of shared memory instead of 30.
#include "kernels/common/mma.cuh"
#include "kernels/common/ptx.cuh"
#include "kernels/qmatmul/a16_decode.cuh"
#include "kernels/step/step_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// x in shared memory: a unit of 64 columns is its high, its middle and its low digits, a plane each. Digit b of word
/// 4t + i of a plane is that of column 2t + {0, 8, 1, 9}[b] of the unit's i-th sixteen: the order in which masks leave
/// the codes of an A16 word, and a lane's words of a unit side by side.
constexpr int kStepPlane = kA16Cols, kStepUnitX = 3 * kStepPlane;
/// Of a subgroup: the sum of x, and u / 8, since a masked code is eight times the code.
struct alignas(8) StepSum {
  float sum, unit;
};
static_assert(kStepUnitX == kStepColumnBytes * kA16Cols && sizeof(StepSum) == kStepSumBytes);

/// x of a pair of subgroups, as the lanes of their columns have it; zeros in all others, which load nothing ever.
struct StepX {
  unsigned first[4] = {}, second[4] = {};
};

/// A chunk of four units: out += Σ scale · (codes · x) + bias · Σx over the lane's subgroups, rows g and g + 8.
template <int kSub, A16Scale kScale>
struct StepChunk {
  static constexpr int kUnits = 4, kPairBytes = a16_pair_bytes(kScale), kWords = a16_word_bytes(4);
  static constexpr int kUnitBytes = kWords + kA16Rows * kSub * kPairBytes;
  static constexpr int kSubgroups = kUnits * kSub;

  /// What a lane needs to know of its place; the same for every chunk.
  struct Lane {
    int x;               ///< offset in x of its digits of unit 0
    bool first, second;  ///< whether it has a digit of the pair's first or second subgroup
    int pair;            ///< of its sums: the scales' place in unit 0
    bool high;           ///< its sums are high and middle digits, not low ones
    int times;           ///< what the first of them counts beside the second
    float digit;         ///< worth of the second
  };
  GALVANI_DEVICE static Lane place(int lane) {
    const int digit = lane / 4 % 4, t = lane % 4, own = t / 2;
    Lane l;
    l.x = (digit < 3 ? digit : 0) * kStepPlane + t * 16;
    l.first = digit < 3 && lane < 16, l.second = digit < 3 && lane >= 16;
    l.pair = own / kSub * kUnitBytes + kWords + (own % kSub * 8 + lane / 4) * 2 * kPairBytes;
    l.high = t % 2 == 0;
    l.times = l.high ? 256 : 1;  // the column behind the low digits' is zeros
    l.digit = l.high ? 256.0f : 1.0f;
    return l;
  }

  /// Where the scales of pair `pair` are, from those of the first.
  static constexpr int pair_at(int pair) { return 2 * pair / kSub * kUnitBytes + 2 * pair % kSub * 8 * 2 * kPairBytes; }
  GALVANI_DEVICE static void codes(unsigned (&a)[4], unsigned first, unsigned second) {
    constexpr unsigned kCodes = 0x78787878u;
    a[0] = first & kCodes, a[1] = rotate_right<4>(first) & kCodes;
    a[2] = second & kCodes, a[3] = rotate_right<4>(second) & kCodes;
  }

  /// The sums of a pair: c = high, middle of row g, then of row g + 8; or low, nothing.
  template <int kPair>
  GALVANI_DEVICE static void add(const int (&c)[4], const unsigned char* at, const StepSum* sums, const Lane& l,
                                 float (&out)[2]) {
    const StepSum sum = sums[2 * kPair];
    const A16Scales sc = a16_scales<kScale>(at + l.pair + pair_at(kPair));
    const float unit = sum.unit * l.digit, bias = l.high ? sum.sum : 0.0f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int digits = c[2 * r] * l.times + c[2 * r + 1];
      out[r] = fmaf(sc.scale[r], static_cast<float>(digits) * unit, fmaf(sc.bias[r], bias, out[r]));
    }
  }

  /// Units kUnit and, where a pair is two units, kUnit + 1.
  template <int kUnit>
  GALVANI_DEVICE static void unit(const unsigned char* at, const unsigned char* x, StepX& b, const StepSum* sums,
                                  const Lane& l, int lane, float (&out)[2]) {
    const auto words = [&](int u) {
      return *reinterpret_cast<const uint4*>(at + (kUnit + u) * kUnitBytes + lane * 16);
    };
    unsigned a[4];
    if constexpr (kSub == 1) {
      int c[4] = {};
      const uint4 w = words(0), v = words(1);
      const auto* const own = reinterpret_cast<const uint4*>(x + (kUnit + (l.second ? 1 : 0)) * kStepUnitX);
      if (l.first) b.first[0] = own->x, b.first[1] = own->y, b.first[2] = own->z, b.first[3] = own->w;
      if (l.second) b.second[0] = own->x, b.second[1] = own->y, b.second[2] = own->z, b.second[3] = own->w;
      codes(a, w.x, w.y), mma_m16n8k32_s8(c, a, {b.first[0], b.first[1]});
      codes(a, w.z, w.w), mma_m16n8k32_s8(c, a, {b.first[2], b.first[3]});
      codes(a, v.x, v.y), mma_m16n8k32_s8(c, a, {b.second[0], b.second[1]});
      codes(a, v.z, v.w), mma_m16n8k32_s8(c, a, {b.second[2], b.second[3]});
      add<kUnit / 2>(c, at, sums, l, out);
    } else if constexpr (kSub == 2) {
      int c[4] = {};
      const uint4 w = words(0);
      const auto* const own = reinterpret_cast<const uint2*>(x + kUnit * kStepUnitX);
      if (l.first) b.first[0] = own[0].x, b.first[1] = own[0].y;
      if (l.second) b.second[0] = own[1].x, b.second[1] = own[1].y;
      codes(a, w.x, w.y), mma_m16n8k32_s8(c, a, {b.first[0], b.first[1]});
      codes(a, w.z, w.w), mma_m16n8k32_s8(c, a, {b.second[0], b.second[1]});
      add<kUnit>(c, at, sums, l, out);
    } else {
      const uint4 w = words(0);
      const auto* const own = reinterpret_cast<const unsigned*>(x + kUnit * kStepUnitX);
      int c[4] = {}, d[4] = {};
      if (l.first) b.first[0] = own[0], b.first[1] = own[2];
      if (l.second) b.second[0] = own[1], b.second[1] = own[3];
      codes(a, w.x, w.y), mma_m16n8k32_s8(c, a, {b.first[0], b.second[0]});
      codes(a, w.z, w.w), mma_m16n8k32_s8(d, a, {b.first[1], b.second[1]});
      add<2 * kUnit>(c, at, sums, l, out);
      add<2 * kUnit + 1>(d, at, sums, l, out);
    }
  }
  /// x: the lane's digits of the chunk's first unit; sums: those of the lane's subgroup in its first pair.
  GALVANI_DEVICE static void add_all(const unsigned char* at, const unsigned char* x, StepX& b, const StepSum* sums,
                                     const Lane& l, int lane, float (&out)[2]) {
    unit<0>(at, x, b, sums, l, lane, out);
    if constexpr (kSub > 1) unit<1>(at, x, b, sums, l, lane, out);
    unit<2>(at, x, b, sums, l, lane, out);
    if constexpr (kSub > 1) unit<3>(at, x, b, sums, l, lane, out);
  }
};

}  // namespace galvani::kernels::GALVANI_CUDA_NS
