#pragma once
/// The codes of synthetic weights: a 32-bit word of a matrix's code stream from (seed, row, word), the same on host and
/// device. Plain constexpr, no includes, so that device code compiles alone.

namespace galvani::quant {

/// A step of splitmix64 (Steele, Lea and Flood 2014).
constexpr unsigned long long synthetic_mix(unsigned long long x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Words are numbered from the row's first column, so that a block of columns holds what the whole row holds there.
constexpr unsigned synthetic_word(unsigned long long seed, long long row, long long word) {
  return static_cast<unsigned>(
      synthetic_mix(seed ^ (static_cast<unsigned long long>(row) << 24) ^ static_cast<unsigned long long>(word)));
}

/// Everything that a synthetic matrix consists of besides its shape and width; scale and bias are bf16.
struct SyntheticWords {
  unsigned long long seed = 0;
  unsigned short scale = 0, bias = 0;
};

}  // namespace galvani::quant
