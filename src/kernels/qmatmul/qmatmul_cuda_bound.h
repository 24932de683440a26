#pragma once
/// What rounding may make of a product on a GPU: the bounds that `galvani doctor` and the tests hold the kernels to.
///
/// A bound that sees no more than Σ|w·x| has to guess two things, and guessed both wrong on an H200 (seeds 2088716442
/// and 13 of doctor). The arms for few tokens do not add products w·x: they add (offset + code)·x in the tensor core
/// and s·that + (b − offset·s)·Σx in f32, and where s is large and the weight small (2 bits: offset 16, codes 0 to 3)
/// these terms are ten times what they leave. And a sum that grows early and stays large is cut off at every step,
/// which no factor √K foresees. So the terms that the kernel adds are added here too, in f64, and each rounding is
/// counted where it happens, with the sum that it happens to (running error analysis; Higham, Accuracy and Stability of
/// Numerical Algorithms, 3.3). u is 2^−24. Counted are
///  - a step of a tensor core (device/tensor_core.h): each addend is cut off, and loses less than the place of its last
///    bit that is kept, 2^(−23−extra) of the largest addend; the sum less than 2^−23 of itself. (An addend may have no
///    bits below that place; a bound that knew would hold for no other order of additions, and cuBLASLt's is not
///    known.);
///  - few tokens, for every group of a unit: b − offset·s and its product with Σx, u each; an addition of Σx's tree,
///    u of its sum, unless f32 holds it; the two additions to the sum so far and one where lanes, warps or blocks
///    join, u of D each. D is the largest sum of any run of groups: a warp's, a block's or the whole sum may be it;
///  - many tokens: one chain through K, or one for each part of K with an addition, u of the parts' sums, where they
///    join;
///  - float codes: in the arms for few tokens and in mma a subgroup is a chain, and its scale and the matrix's factor
///    come with the additions (u of D each); elsewhere they are in the weights, the factor is a rounding of the result.
/// The bound is the least of two: every rounding at its worst and all of one sign; or what cutting off must be expected
/// to add up to (half a place of the last bit, of addends as their signs differ in number), all steps of one sign, and
/// six standard deviations of the rest, taken as uniform and independent. The second is some times the smaller one, so
/// that faults of one scale's rounding are seen; six, since doctor looks at 10^7 results.
/// Second-order terms, 10^−6 of it all, are not counted. What no rounding explains stays outside: a group's bias left
/// out, two codes exchanged, columns left out, a scale rounded to 16 bits, sums in f16 (qmatmul_cuda_bound_test.cpp).
#include <cstdint>
#include <span>
#include <vector>

#include "device/tensor_core.h"
#include "kernels/common/arithmetic.h"
#include "kernels/qmatmul/qmatmul_cuda_plan.h"

namespace galvani::kernels {

/// A sum in f64, and what it may be off by.
struct BoundedSum {
  double value = 0;
  double worst = 0;     ///< all roundings at their worst
  double drift = 0;     ///< what is expected of those that cut off
  double variance = 0;  ///< of the rest

  double error() const;
  /// A rounding to nearest of something as large as `size`.
  void round(double size);
  void add(const BoundedSum& other, double times = 1);
};

/// Products in the order in which one accumulator gets them; at any common scale.
BoundedSum tensor_sum(std::span<const double> products, TensorCore core);

/// The row of an affine matrix as it is stored; a scale and a bias a group.
struct AffineRow {
  std::span<const uint32_t> codes;
  std::span<const float> scales, biases;
  int bits = 4, group = 64;
  bool upper = false;  ///< one of rows 8…15 of its row tile, which matters to 2-bit codes
};
/// Its product with a token in the arms for few tokens.
BoundedSum few_affine_sum(const AffineRow& row, std::span<const float> x, Arithmetic arithmetic, TensorCore core);

/// The product of a row of float codes in the arms that apply scales to sums (few tokens, mma). values: the weights.
BoundedSum scaled_sum(std::span<const double> values, std::span<const float> x, int subgroup, TensorCore core);

/// Units of K in the order in which each accumulator of an arm for many tokens gets them. cuBLASLt's order (expand) is
/// not known and taken to be that of k.
std::vector<std::vector<int>> qmatmul_cuda_chains(const QmatmulCudaPlan& plan, int units);
/// The product of a row in those arms. weights: as they enter the product, or times the matrix's factor.
BoundedSum chained_sum(std::span<const double> weights, std::span<const float> x,
                       std::span<const std::vector<int>> chains, TensorCore core);

}  // namespace galvani::kernels
