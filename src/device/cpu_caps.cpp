#include "device/cpu_caps.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace galvani {
namespace {

#if defined(__x86_64__)
constexpr bool bit(unsigned word, int index) { return ((word >> index) & 1u) != 0; }

/// Register sets that the operating system saves (XCR0).
uint64_t saved_state() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

/// Linux gives the 8 KB of tile registers only to processes that ask (arch_prctl, since 5.16).
bool request_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuCaps detect() {
  CpuCaps caps;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) return caps;
  const bool fma = bit(c, 12), f16c = bit(c, 29);
  const uint64_t state = saved_state();
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6, tiles = ((state >> 17) & 3) == 3;
  unsigned b7 = 0, c7 = 0, d7 = 0, a71 = 0;
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return caps;
  if (a >= 1) __get_cpuid_count(7, 1, &a71, &b, &c, &d);
  caps.avx2 = ymm && bit(b7, 5) && fma && f16c;
  // F, DQ, CD, BW, VL
  caps.avx512 = caps.avx2 && zmm && bit(b7, 16) && bit(b7, 17) && bit(b7, 28) && bit(b7, 30) && bit(b7, 31);
  caps.avx512_vbmi = caps.avx512 && bit(c7, 1);
  caps.avx512_vnni = caps.avx512 && bit(c7, 11);
  caps.avx512_bf16 = caps.avx512 && bit(a71, 5);
  caps.amx_bf16 = caps.avx512_bf16 && bit(d7, 22) && bit(d7, 24) && tiles && request_tiles();
  return caps;
}
#else
CpuCaps detect() {
  CpuCaps caps;
#if defined(__aarch64__)
  caps.neon = true;
#endif
  return caps;
}
#endif

}  // namespace

const CpuCaps& cpu_caps() {
  static const CpuCaps caps = detect();
  return caps;
}

std::string cpu_caps_str(const CpuCaps& caps) {
  std::string text;
  const auto add = [&text](bool has, const char* name) {
    if (!has) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(caps.avx2, "avx2"), add(caps.avx512, "avx512"), add(caps.avx512_vbmi, "avx512_vbmi");
  add(caps.avx512_vnni, "avx512_vnni"), add(caps.avx512_bf16, "avx512_bf16"), add(caps.amx_bf16, "amx_bf16");
  add(caps.neon, "neon");
  return text.empty() ? "none" : text;
}

}  // namespace galvani
