#pragma once
namespace galvani::kernels {

/// Arithmetic of matrix products (`--act`): the type activations are rounded to where they enter a product. Sums are
/// f32.
enum class Arithmetic { kF32, kF16, kBF16 };

constexpr const char* arithmetic_name(Arithmetic a) {
  switch (a) {
    case Arithmetic::kF32: return "f32";
    case Arithmetic::kF16: return "f16";
    case Arithmetic::kBF16: return "bf16";
  }
  return "?";
}

}  // namespace galvani::kernels
