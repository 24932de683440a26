#pragma once
/// Philox4x32-10, a counter-based random generator: equal (key, counter) give equal bits on every machine.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.4.
#include <array>
#include <cstdint>

namespace galvani::kernels {

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Uniform in [0, 1) with 53 bits: the draw of the token at `position` of a request with `seed`.
constexpr double philox_uniform(uint64_t seed, uint64_t position) {
  const auto bits = philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t high = bits[0] >> 5, low = bits[1] >> 6;  // 27 and 26 bits
  return static_cast<double>(high << 26 | low) * 0x1p-53;
}

}  // namespace galvani::kernels
