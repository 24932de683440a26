#pragma once
/// What the CPU can do, as plain data, so that plans are pure functions and tests can enumerate parts nobody owns.
/// A feature counts only when the operating system saves its registers too.
#include <string>

namespace galvani {

struct CpuCaps {
  bool avx2 = false;    ///< AVX2, FMA and F16C together
  bool avx512 = false;  ///< AVX-512 F, BW, DQ, VL and CD
  bool avx512_vbmi = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;  ///< vdpbf16ps
  bool amx_bf16 = false;     ///< tdpbf16ps, and the kernel granted this process the tile registers
  bool neon = false;         ///< 64-bit ARM

  constexpr bool operator==(const CpuCaps&) const = default;
};

/// Of this machine, found once. Asks the kernel for the AMX tile registers (Linux, once a process).
const CpuCaps& cpu_caps();

/// "avx2 avx512 avx512_bf16", or "none".
std::string cpu_caps_str(const CpuCaps& caps);

}  // namespace galvani
