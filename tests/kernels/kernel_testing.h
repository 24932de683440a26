#pragma once
/// What the kernel tests share: printed seeds, buffers with guard bands, and a run per instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "hwy/targets.h"

namespace galvani::kernels {

constexpr double kUnit = 0x1p-24;  ///< unit roundoff of f32

/// A new seed each run, printed; GALVANI_TEST_SEED repeats one.
inline uint64_t fresh_seed() {
  const char* fixed = std::getenv("GALVANI_TEST_SEED");
  const uint64_t seed = fixed ? std::strtoull(fixed, nullptr, 10) : std::random_device{}();
  std::cout << "seed " << seed << " (repeat with GALVANI_TEST_SEED=" << seed << ")\n";
  return seed;
}

inline std::vector<float> normal(std::mt19937_64& random, size_t n, float deviation = 1.0f) {
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = distribution(random);
  return values;
}

/// n floats of a NaN pattern between two guard bands of another one.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t n) : values_(n + 2 * kBand, pattern(kGuard)), n_(n) {
    for (size_t i = 0; i < n; ++i) data()[i] = pattern(kPoison);
  }
  float* data() { return values_.data() + kBand; }
  float operator[](size_t i) const { return values_[kBand + i]; }
  size_t size() const { return n_; }
  bool untouched(size_t i) const { return bits(values_[kBand + i]) == kPoison; }
  bool guards_intact() const {
    for (size_t i = 0; i < kBand; ++i)
      if (bits(values_[i]) != kGuard || bits(values_[kBand + n_ + i]) != kGuard) return false;
    return true;
  }

 private:
  static constexpr size_t kBand = 67;  // odd, so that data() is not aligned to a vector
  static constexpr uint32_t kGuard = 0x7fc0dead, kPoison = 0x7fc0beef;
  static float pattern(uint32_t value) {
    float result;
    std::memcpy(&result, &value, 4);
    return result;
  }
  static uint32_t bits(float value) {
    uint32_t result;
    std::memcpy(&result, &value, 4);
    return result;
  }
  std::vector<float> values_;
  size_t n_;
};

/// Calls body under each instruction set that our kernels are compiled for and this machine has.
template <typename Body>
void for_each_target(const Body& body) {
  int runs = 0;
  const int64_t native = hwy::SupportedTargets();
  for (int64_t target : {HWY_AVX3, HWY_AVX2, HWY_NEON, HWY_SCALAR}) {
    if (target != HWY_SCALAR && !(native & target)) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    ++runs;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  ASSERT_GT(runs, 0);
}

}  // namespace galvani::kernels
