#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "kernels/attention/attention.h"

namespace galvani::kernels {
namespace {

void store(std::byte* target, DType dtype, const float* source, int count) {
  if (dtype == DType::kF32) {
    std::memcpy(target, source, static_cast<size_t>(count) * 4);
    return;
  }
  for (int i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(source[i]) : f32_to_bf16(source[i]);
    std::memcpy(target + i * 2, &bits, 2);
  }
}

}  // namespace

void kv_append(const KvLayer& layer, std::span<const AttentionChunk> chunks, const float* k, int64_t k_stride,
               const float* v, int64_t v_stride) {
  const int64_t bytes = dtype_bytes(layer.dtype);
  for (const AttentionChunk& chunk : chunks) {
    for (int32_t i = 0; i < chunk.count; ++i) {
      const int32_t position = chunk.first_position + i;
      const int64_t block = chunk.blocks[position / kPageTokens], slot = position % kPageTokens;
      const int64_t row = chunk.row + i;
      for (int h = 0; h < layer.kv_heads; ++h) {
        const int64_t token = int64_t{h} * kPageTokens + slot;
        store(layer.k + block * layer.k_page_stride + token * layer.k_dim * bytes, layer.dtype,
              k + row * k_stride + h * layer.k_dim, layer.k_dim);
        store(layer.v + block * layer.v_page_stride + token * layer.v_dim * bytes, layer.dtype,
              v + row * v_stride + h * layer.v_dim, layer.v_dim);
      }
    }
  }
}

void attention(const KvLayer& layer, const AttentionParams& params, std::span<const AttentionChunk> chunks,
               const float* q, int64_t q_stride, float* out, int64_t out_stride, AttentionArm) {
  const int64_t width = int64_t{params.heads} * layer.v_dim;
  for (const AttentionChunk& chunk : chunks) {
    parallel_for(chunk.count, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<double> exact(static_cast<size_t>(width));
      for (int64_t i = begin; i < end; ++i) {
        AttentionChunk one = chunk;
        one.row = 0;
        one.count = 1;
        one.first_position = chunk.first_position + static_cast<int32_t>(i);
        attention_ref(layer, params, {&one, 1}, q + (chunk.row + i) * q_stride, q_stride, exact.data(), width);
        for (int64_t j = 0; j < width; ++j)
          out[(chunk.row + i) * out_stride + j] = static_cast<float>(exact[static_cast<size_t>(j)]);
      }
    });
  }
}

}  // namespace galvani::kernels
