#pragma once
/// Include before "hwy/foreach_target.h". The instruction sets our Highway files are compiled for: AVX-512 and AVX2 on
/// x86, NEON on ARM, and Highway's scalar target as the floor of both. SSSE3 and SSE4 would cost a third of the build
/// for processors older than 2013; scalable vectors (SVE) cannot be kept in arrays, which the register-blocked kernels
/// do.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

/// Unrolls the next loop, whose bounds are template parameters, so that arrays of vectors become registers.
#if defined(__clang__)
#define GALVANI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GALVANI_UNROLL _Pragma("GCC unroll 8")
#endif
