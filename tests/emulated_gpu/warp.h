#pragma once
/// What the lanes of a warp exchange, and rounding. Source: CUDA C++ Programming Guide, "Warp Shuffle Functions" and
/// "Warp Vote Functions".
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulated_gpu/block.h"

namespace galvani::emulated {

/// Keeps a product or sum out of a fused multiply-add.
inline float unfused(float x) {
  asm("" : "+x"(x));
  return x;
}

/// A double to the nearest 16-bit float of kMantissa mantissa bits after f32's rounding to odd, which loses nothing
/// that a second rounding would need.
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || !std::isfinite(nearest)) return nearest;
  // The neighbour towards zero, with its last bit set.
  unsigned bits = std::bit_cast<unsigned>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename T>
struct Exchange {
  T value;
  int source;  ///< lane it wants; outside 0…31: its own
  T result;
};
template <typename T>
T exchange(unsigned mask, const char* what, T value, int source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  Exchange<T> mine{value, source, value};
  collective(mask, what, &mine, [](void* const* lanes, unsigned present) {
    for (int l = 0; l < 32; ++l) {
      if ((present >> l & 1u) == 0) continue;
      auto& to = *static_cast<Exchange<T>*>(lanes[l]);
      if (to.source < 0 || to.source > 31) continue;
      if ((present >> to.source & 1u) == 0)
        std::memset(&to.result, 0xff, sizeof(T));  // undefined on a GPU: nothing sensible may come of it
      else
        to.result = static_cast<Exchange<T>*>(lanes[to.source])->value;
    }
  });
  return mine.result;
}
inline int lane() { return current_thread->lane; }
/// Segments of `width` lanes; a source outside the segment leaves the lane its own value.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return exchange(mask, "shfl", value, (lane() & ~(width - 1)) | (source & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  const int source = lane() ^ by;
  return exchange(mask, "shfl.xor", value, source < (lane() & ~(width - 1)) + width ? source : -1);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int source = lane() - static_cast<int>(by);
  return exchange(mask, "shfl.up", value, source >= (lane() & ~(width - 1)) ? source : -1);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int source = lane() + static_cast<int>(by);
  return exchange(mask, "shfl.down", value, source < (lane() & ~(width - 1)) + width ? source : -1);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  struct Vote {
    bool yes;
    unsigned all;
  } mine{predicate != 0, 0};
  collective(mask, "vote", &mine, [](void* const* lanes, unsigned present) {
    unsigned all = 0;
    for (int l = 0; l < 32; ++l)
      if ((present >> l & 1u) != 0 && static_cast<Vote*>(lanes[l])->yes) all |= 1u << l;
    for (int l = 0; l < 32; ++l)
      if ((present >> l & 1u) != 0) static_cast<Vote*>(lanes[l])->all = all;
  });
  return mine.all;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  collective(mask, "__syncwarp", nullptr, [](void* const*, unsigned) {});
}

}  // namespace galvani::emulated
