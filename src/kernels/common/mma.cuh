#pragma once
// Tensor products of one warp. Fragment layouts: PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix".
//
// m16n8k16, lane = 4·g + t:  A (16×16, row) a0 = rows g, k 2t,2t+1; a1 = rows g+8; a2 = rows g, k 2t+8,2t+9; a3 = g+8.
//                            B (16×8, col)  b0 = k 2t,2t+1, column g; b1 = k 2t+8,2t+9.
//                            C (16×8)       c0,c1 = row g, columns 2t,2t+1; c2,c3 = row g+8.
// The asm statements are not volatile: they have no side effect, and the compiler may interleave their chains.
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Loads 8×8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8. From 7.5.
GALVANI_DEVICE void ldmatrix_x4(unsigned (&r)[4], unsigned shared) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
#else
  wrong_arch();
#endif
}
GALVANI_DEVICE void ldmatrix_x2(unsigned (&r)[2], unsigned shared) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared)
               : "memory");
#else
  wrong_arch();
#endif
}
/// Each 8×8 matrix transposed on the way.
GALVANI_DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], unsigned shared) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
#else
  wrong_arch();
#endif
}

/// c += a·b, bf16 inputs, f32 sums. From 8.0.
GALVANI_DEVICE void mma_m16n8k16_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  wrong_arch();
#endif
}

/// c += a·b, f16 inputs, f32 sums. One instruction from 8.0, two of half the depth on 7.5.
GALVANI_DEVICE void mma_m16n8k16_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif __CUDA_ARCH__ >= 750
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#else
  wrong_arch();
#endif
}

/// By element type: mma<bf16>(c, a, b), mma<f16>(c, a, b).
template <typename T>
GALVANI_DEVICE void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
GALVANI_DEVICE void mma_m16n8k16<bf16>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma_m16n8k16_bf16(c, a, b);
}
template <>
GALVANI_DEVICE void mma_m16n8k16<f16>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma_m16n8k16_f16(c, a, b);
}

/// c += a·b, signed bytes, 32-bit sums; fragments of m16n8k32, a register four elements side by side along k: A a0 =
/// row g, k 4t…4t+3; a1 = row g+8; a2, a3 = k + 16; B b0 = k 4t…4t+3, column g; b1 = k + 16; C as above. From 8.0.
GALVANI_DEVICE void mma_m16n8k32_s8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  wrong_arch();
#endif
}

/// Transposes the warp's 8×8 matrix of 16-bit elements (row = lane / 4, columns 2·(lane % 4) and the next). From 7.5.
GALVANI_DEVICE unsigned transpose8x8(unsigned x) {
  unsigned y = 0;
#if __CUDA_ARCH__ >= 750
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
#else
  wrong_arch();
#endif
  return y;
}

/// Two f32 as one register of 16-bit elements, `low` in the low half.
template <typename T>
GALVANI_DEVICE unsigned pack2(float low, float high);
template <>
GALVANI_DEVICE unsigned pack2<bf16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
#else
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
#endif
}
template <>
GALVANI_DEVICE unsigned pack2<f16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
