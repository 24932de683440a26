#pragma once
/// Rows by four elements a thread: one load or store where the address allows it, else one an element. Loads give
/// values (nothing waits behind a store that may alias), so a kernel can ask for all it needs before it uses any of it.
/// NVRTC compiles it alone.
#include "kernels/common/store.cuh"

namespace galvani::kernels {

struct Four {
  float v[4];
};
__device__ __forceinline__ Four four_of(float4 x) { return {{x.x, x.y, x.z, x.w}}; }
__device__ __forceinline__ Four four_times(float x) { return {{x, x, x, x}}; }

template <int kFours>
__device__ __forceinline__ float squares_of(const Four (&x)[kFours]) {
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kFours; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j) squares = fmaf(x[k].v[j], x[k].v[j], squares);
  return squares;
}
__device__ __forceinline__ void add_four(Four& x, const Four& y) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x.v[j] += y.v[j];
}
/// x · inverse · w: a norm's last step.
__device__ __forceinline__ void weigh_four(Four& x, float inverse, const Four& w) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x.v[j] = x.v[j] * inverse * w.v[j];
}

/// Whether rows of `type` that begin at `base`, `stride` elements apart, can be read by fours.
__device__ __forceinline__ bool by_fours(const void* base, long long stride, StoreType type = StoreType::kF32) {
  const unsigned bytes = type == StoreType::kF32 ? 16 : 8;
  return (reinterpret_cast<unsigned long long>(base) & (bytes - 1)) == 0 && (stride & 3) == 0;
}

/// from[0 … 3], from being the address of a vector.
template <bool kEarly = false>
__device__ __forceinline__ Four vector_four(const float* from) {
  const auto* vector = reinterpret_cast<const float4*>(from);
  return four_of(kEarly ? load_early(vector) : *vector);
}

/// in[i … i + 3], 0 from n on. fours: by_fours(in), and i is a multiple of 4. kEarly: load_early.
template <bool kEarly = false>
__device__ __forceinline__ Four load_four(const float* in, int i, int n, bool fours) {
  if (fours && i + 4 <= n) return vector_four<kEarly>(in + i);
  Four x = four_times(0);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (i + j < n) x.v[j] = kEarly ? load_early(in + i + j) : in[i + j];
  return x;
}

/// The same of a row of `type` that begins at element `row`.
__device__ __forceinline__ Four load_four_as(const void* in, long long row, int i, int n, StoreType type, bool fours) {
  if (type == StoreType::kF32) return load_four(static_cast<const float*>(in) + row, i, n, fours);
  if (fours && i + 4 <= n) {
    const uint2 x = *reinterpret_cast<const uint2*>(static_cast<const __half*>(in) + row + i);
    if (type == StoreType::kF16) {
      const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&x.x)),
                   high = __half22float2(*reinterpret_cast<const __half2*>(&x.y));
      return {{low.x, low.y, high.x, high.y}};
    }
    return {{__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u), __uint_as_float(x.y << 16),
             __uint_as_float(x.y & 0xffff0000u)}};
  }
  Four x = four_times(0);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (i + j < n) x.v[j] = load_as(in, row + i + j, type);
  return x;
}

/// out[i … i + 3] = x, rounded to nearest even, that being the address of a vector.
__device__ __forceinline__ void store_vector_four(void* out, long long i, const Four& x, StoreType type) {
  if (type == StoreType::kF32) {
    *reinterpret_cast<float4*>(static_cast<float*>(out) + i) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    return;
  }
  const bool wide = type == StoreType::kBF16;
  *reinterpret_cast<uint2*>(static_cast<__half*>(out) + i) =
      make_uint2(wide ? pack2<__nv_bfloat16>(x.v[0], x.v[1]) : pack2<__half>(x.v[0], x.v[1]),
                 wide ? pack2<__nv_bfloat16>(x.v[2], x.v[3]) : pack2<__half>(x.v[2], x.v[3]));
}

/// out[row + i … row + i + 3] = x; nothing from n on.
__device__ __forceinline__ void store_four_as(void* out, long long row, int i, int n, const Four& x, StoreType type,
                                              bool fours) {
  if (fours && i + 4 <= n) return store_vector_four(out, row + i, x, type);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (i + j < n) store_as(out, row + i + j, x.v[j], type);
}

}  // namespace galvani::kernels
