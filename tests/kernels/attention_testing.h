#pragma once
/// Sequences in a pool of scattered, poisoned pages, for the attention tests.
#include <algorithm>
#include <numeric>

#include "core/parallel.h"
#include "kernels/attention/attention.h"
#include "kernels/kernel_testing.h"

namespace galvani::kernels {

struct AttentionCase {
  int heads = 4, kv_heads = 2, k_dim = 64, v_dim = 64;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  DType dtype = DType::kF32;
  int length = 100;
  bool v_in_k = false;
};

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << c.heads << '/' << c.kv_heads << " heads, dims " << c.k_dim << '/' << c.v_dim << ", window " << c.window
             << ", softcap " << c.softcap << (c.sinks ? ", sinks, " : ", ") << dtype_name(c.dtype) << ", length "
             << c.length << (c.v_in_k ? ", V in K" : "");
}

/// `count` sequences of one length. Pages lie scattered and start as 0xff bytes: NaN in all three types.
class PagedSequences {
 public:
  PagedSequences(const AttentionCase& c, int count, std::mt19937_64& random) : shape(c), sequences(count) {
    const int pages = (c.length + kPageTokens - 1) / kPageTokens;
    std::vector<int32_t> ids(static_cast<size_t>(count * pages + 3));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    blocks.resize(static_cast<size_t>(count));
    for (int s = 0; s < count; ++s)
      blocks[static_cast<size_t>(s)].assign(ids.begin() + s * pages, ids.begin() + (s + 1) * pages);
    const int64_t bytes = dtype_bytes(c.dtype), tokens = int64_t{c.kv_heads} * kPageTokens;
    layer = {
        nullptr, nullptr, tokens * c.k_dim * bytes + 64, tokens * c.v_dim * bytes + 128, c.kv_heads, c.k_dim, c.v_dim,
        c.dtype, c.v_in_k};
    k_pool.assign(ids.size() * static_cast<size_t>(layer.k_page_stride), std::byte{0xff});
    if (!c.v_in_k) v_pool.assign(ids.size() * static_cast<size_t>(layer.v_page_stride), std::byte{0xff});
    layer.k = k_pool.data();
    layer.v = c.v_in_k ? nullptr : v_pool.data();
    const size_t rows = static_cast<size_t>(count * c.length);
    q = normal(random, rows * static_cast<size_t>(c.heads * c.k_dim));
    k = normal(random, rows * static_cast<size_t>(c.kv_heads * c.k_dim));
    v = normal(random, rows * static_cast<size_t>(c.kv_heads * c.v_dim));
    if (c.v_in_k) {
      for (size_t row = 0; row < rows * static_cast<size_t>(c.kv_heads); ++row)
        std::copy_n(k.data() + static_cast<int64_t>(row) * c.k_dim, c.v_dim,
                    v.data() + static_cast<int64_t>(row) * c.v_dim);
    }
    sinks = normal(random, static_cast<size_t>(c.heads));
    params = {c.heads, 1.0f / std::sqrt(static_cast<float>(c.k_dim)), c.window, c.softcap,
              c.sinks ? sinks.data() : nullptr};
  }

  AttentionChunk chunk(int sequence, int first, int count) const {
    return {int64_t{sequence} * shape.length + first, count, first, blocks[static_cast<size_t>(sequence)].data()};
  }
  std::vector<AttentionChunk> whole() const {
    std::vector<AttentionChunk> chunks;
    for (int s = 0; s < sequences; ++s) chunks.push_back(chunk(s, 0, shape.length));
    return chunks;
  }
  int64_t out_width() const { return int64_t{shape.heads} * shape.v_dim; }
  size_t out_size() const { return static_cast<size_t>(sequences * shape.length * out_width()); }
  void append(std::span<const AttentionChunk> chunks) const {
    kv_append(layer, chunks, k.data(), int64_t{shape.kv_heads} * shape.k_dim, v.data(),
              int64_t{shape.kv_heads} * shape.v_dim);
  }
  void attend(std::span<const AttentionChunk> chunks, float* out, AttentionArm arm) const {
    attention(layer, params, chunks, q.data(), int64_t{shape.heads} * shape.k_dim, out, out_width(), arm);
  }

  AttentionCase shape;
  int sequences;
  KvLayer layer;
  AttentionParams params;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<std::byte> k_pool, v_pool;
  std::vector<float> q, k, v, sinks;
};

}  // namespace galvani::kernels
