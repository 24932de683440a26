#pragma once
/// Finds the smallest exact way of storing a matrix's scales and biases.
#include <cstdint>
#include <span>

#include "kernels/qmatmul/packed.h"

namespace galvani::kernels {

/// f32 values [rows, groups].
struct GroupValues {
  std::span<const float> values;
  int64_t groups = 0;
  int group = 0;  ///< columns a group
};

/// One row's groups of one 256-column stretch as bytes times one f32; false when no such form gives the same values.
/// GGUF K-quants were made by such a product, so the greatest common divisor of the significands finds it again.
bool two_level_split(std::span<const float> values, float& top, int8_t* bytes);

/// The smallest form that gives back every value (−0 may become +0).
ScaleForm scale_form_for(const GroupValues& values);

/// True when bias = −2^(bits−1)·scale everywhere and scale · code is exact in f32, so that the bias can be dropped:
/// scale·q + bias and scale·(q − 2^(bits−1)) are then the same f32.
bool bias_is_centre(const GroupValues& scales, const GroupValues& biases, int bits);

/// Writes `values`' rows [16·block, 16·block + 16) in `form` at `at` (and super-scales at `super`); absent rows are 0.
void pack_scales(const GroupValues& values, ScaleForm form, int64_t block, std::byte* at, std::byte* super);

}  // namespace galvani::kernels
