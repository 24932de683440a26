#pragma once
// Instructions that CUDA C++ has no name for, one function each. Together with clock, cluster, copy, grid, mma, wgmma
// (all .cuh) and attention_wgmma_mma.cuh this is all the assembly there is: tests/emulated_gpu has the same
// functions in C++, and scripts/check keeps `asm` out of other files. Include device.cuh, which includes this.
#include "kernels/common/device.cuh"

/// Dynamic shared memory of this block: `name` is its address as a `type*`.
#define GALVANI_DYNAMIC_SHARED(type, name, alignment) \
  extern __shared__ __align__(alignment)              \
  type name[]

namespace galvani::kernels::GALVANI_CUDA_NS {

/// The body of whatever this architecture cannot do. Never empty: a kernel that returns without writing is wrong in
/// silence, a trap is an error with a name.
GALVANI_DEVICE void wrong_arch() { asm volatile("trap;"); }

/// Address in the shared window, as PTX takes it.
GALVANI_DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
GALVANI_DEVICE void store_shared_16(unsigned to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
/// What nobody writes while the kernel runs, past L1.
GALVANI_DEVICE uint4 load_once(const uint4* pointer) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(pointer));
  return v;
}

/// The line of `address` on its way to the L2.
GALVANI_DEVICE void prefetch_l2(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

/// What is read once, without a place in L1.
GALVANI_DEVICE uint4 load_streamed(const void* pointer) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(pointer)
               : "memory");
  return v;
}

/// A dependent launch: wait until the kernel before has written, and let the next one start. No-ops below 9.0, where
/// nothing is launched that way.
GALVANI_DEVICE void dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
GALVANI_DEVICE void dependency_release() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Moves registers between the warpgroups of a block (9.0a and the a and f images after it). The kernel needs launch
/// bounds with one block, and each role must be one branch, or ptxas ignores it and says so.
template <int kRegisters>
GALVANI_DEVICE void registers_up() {
#if GALVANI_ARCH_SPECIFIC
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#else
  wrong_arch();
#endif
}
template <int kRegisters>
GALVANI_DEVICE void registers_down() {
#if GALVANI_ARCH_SPECIFIC
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#else
  wrong_arch();
#endif
}

/// x, of which the compiler does not know that it is the same in every turn of a loop: what follows from it is computed
/// again each time instead of kept in registers.
GALVANI_DEVICE unsigned not_hoisted(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// One barrier of the sixteen for some of a block's threads.
GALVANI_DEVICE void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Counts as arrived there, without waiting.
GALVANI_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// 2^x within 2 ulp; results below the normal range are 0.
GALVANI_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x within 1 ulp; results below the normal range are 0.
GALVANI_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// to[0 … 3] += v, to being the address of a vector; nobody waits for it, and subnormal results become 0. From 9.0.
GALVANI_DEVICE void add_vector(float* to, float4 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
#else
  wrong_arch();
#endif
}
/// True in one lane of a converged warp, and the compiler knows it is one: what that lane starts with operands that are
/// the same in all lanes needs no loop over lanes.
GALVANI_DEVICE bool elect_one() {
#if __CUDA_ARCH__ >= 900
  unsigned one = 0;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(one));
  return one != 0;
#else
  return lane_id() == 0;
#endif
}
/// A value that all lanes of a warp share, told to the compiler.
GALVANI_DEVICE int warp_uniform(int value) { return __shfl_sync(kFullMask, value, 0); }

/// The same value, kept in a register: what special registers give is computed again in loops otherwise.
GALVANI_DEVICE unsigned kept(unsigned value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// (a & b) | c and (a & b) ^ c in one instruction.
template <unsigned kMask>
GALVANI_DEVICE unsigned and_or(unsigned a, unsigned c) {
  unsigned result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "n"(kMask), "r"(c));
  return result;
}
template <unsigned kMask>
GALVANI_DEVICE unsigned and_xor(unsigned a, unsigned c) {
  unsigned result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "n"(kMask), "r"(c));
  return result;
}

/// Two packed elements of T: sum, fused multiply-add, one rounding each.
template <typename T>
GALVANI_DEVICE unsigned add2(unsigned a, unsigned b);
template <typename T>
GALVANI_DEVICE unsigned fma2(unsigned a, unsigned b, unsigned c);
template <>
GALVANI_DEVICE unsigned add2<bf16>(unsigned a, unsigned b) {
  unsigned r = 0;
#if __CUDA_ARCH__ >= 900
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#elif __CUDA_ARCH__ >= 800
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(0x3f803f80u), "r"(b));
#else
  wrong_arch();
#endif
  return r;
}
template <>
GALVANI_DEVICE unsigned fma2<bf16>(unsigned a, unsigned b, unsigned c) {
  unsigned r = 0;
#if __CUDA_ARCH__ >= 800
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
#else
  wrong_arch();
#endif
  return r;
}
template <>
GALVANI_DEVICE unsigned add2<f16>(unsigned a, unsigned b) {
  unsigned r;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
template <>
GALVANI_DEVICE unsigned fma2<f16>(unsigned a, unsigned b, unsigned c) {
  unsigned r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
