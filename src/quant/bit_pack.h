#pragma once
/// Eight `Bits`-wide codes between a little-endian bit stream (Bits bytes) and eight bytes, a few integer operations
/// each.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace galvani::quant {

template <int Bits>
struct BitPack {
  static constexpr uint64_t low(int bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }
  static constexpr uint64_t kHalves = low(4 * Bits);                            // 4 codes in each 32-bit lane
  static constexpr uint64_t kQuarters = low(2 * Bits) * 0x0000000100000001ull;  // 2 codes in each 16-bit lane
  static constexpr uint64_t kBytes = low(Bits) * 0x0001000100010001ull;         // 1 code in each byte lane

  /// Bits bytes of stream → eight code bytes.
  static void unpack8(const std::byte* stream, uint8_t* codes) {
    uint64_t x = 0;
    std::memcpy(&x, stream, Bits);
    x = (x & kHalves) | ((x << (32 - 4 * Bits)) & (kHalves << 32));
    x = (x & kQuarters) | ((x << (16 - 2 * Bits)) & (kQuarters << 16));
    x = (x & kBytes) | ((x << (8 - Bits)) & (kBytes << 8));
    std::memcpy(codes, &x, 8);
  }
  /// Eight code bytes (< 2^Bits each) → Bits bytes of stream.
  static void pack8(const uint8_t* codes, std::byte* stream) {
    uint64_t x = 0;
    std::memcpy(&x, codes, 8);
    x = (x & kBytes) | ((x >> (8 - Bits)) & (kBytes << Bits));
    x = (x & kQuarters) | ((x >> (16 - 2 * Bits)) & (kQuarters << (2 * Bits)));
    x = (x & kHalves) | ((x >> (32 - 4 * Bits)) & (kHalves << (4 * Bits)));
    std::memcpy(stream, &x, Bits);
  }
};

/// `count` codes, a multiple of 8. bits: 2, 3, 4, 5, 6 or 8.
inline void unpack_codes(int bits, const std::byte* stream, int64_t count, uint8_t* codes) {
  const auto run = [&]<int Bits>() {
    for (int64_t i = 0; i < count / 8; ++i) BitPack<Bits>::unpack8(stream + i * Bits, codes + i * 8);
  };
  switch (bits) {
    case 2: return run.template operator()<2>();
    case 3: return run.template operator()<3>();
    case 4: return run.template operator()<4>();
    case 5: return run.template operator()<5>();
    case 6: return run.template operator()<6>();
    case 8: std::memcpy(codes, stream, static_cast<size_t>(count)); return;
    default: return;
  }
}
inline void pack_codes(int bits, const uint8_t* codes, int64_t count, std::byte* stream) {
  const auto run = [&]<int Bits>() {
    for (int64_t i = 0; i < count / 8; ++i) BitPack<Bits>::pack8(codes + i * 8, stream + i * Bits);
  };
  switch (bits) {
    case 2: return run.template operator()<2>();
    case 3: return run.template operator()<3>();
    case 4: return run.template operator()<4>();
    case 5: return run.template operator()<5>();
    case 6: return run.template operator()<6>();
    case 8: std::memcpy(stream, codes, static_cast<size_t>(count)); return;
    default: return;
  }
}

}  // namespace galvani::quant
