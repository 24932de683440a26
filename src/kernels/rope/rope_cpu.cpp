#include <cmath>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/rope/rope.h"

namespace galvani::kernels {
namespace {
constexpr int32_t kLargestF32Position = 1 << 17;
}

void rope_build(RopeTable& table, const int32_t* positions, int64_t rows, const float* inv_freq, int64_t rotary_dim,
                float attention_scale) {
  GALVANI_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0, "rotary_dim is {}, must be even", rotary_dim);
  const int64_t half = rotary_dim / 2;
  table.rows = rows;
  table.rotary_dim = rotary_dim;
  table.cosine.resize(static_cast<size_t>(rows * half));
  table.sine.resize(static_cast<size_t>(rows * half));
  parallel_for(rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* cosine = table.cosine.data() + r * half;
      float* sine = table.sine.data() + r * half;
      for (int64_t i = 0; i < half; ++i) {
        if (positions[r] > kLargestF32Position) {
          const double angle = double{inv_freq[i]} * positions[r];
          cosine[i] = static_cast<float>(std::cos(angle)) * attention_scale;
          sine[i] = static_cast<float>(std::sin(angle)) * attention_scale;
        } else {
          const float angle = inv_freq[i] * static_cast<float>(positions[r]);
          cosine[i] = std::cos(angle) * attention_scale;
          sine[i] = std::sin(angle) * attention_scale;
        }
      }
    }
  });
}

void rope_apply(const RopeTable& table, RopePairing pairing, float* x, int64_t first_row, int64_t rows, int64_t heads,
                int64_t head_dim, int64_t row_stride) {
  GALVANI_CHECK(first_row >= 0 && first_row + rows <= table.rows, "rows [{}, {}) of a rope table of {}", first_row,
                first_row + rows, table.rows);
  GALVANI_CHECK(table.rotary_dim <= head_dim, "rotary_dim {} exceeds head_dim {}", table.rotary_dim, head_dim);
  const int64_t half = table.rotary_dim / 2;
  const bool split = pairing == RopePairing::kHalfSplit;
  parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* cosine = table.cosine.data() + (first_row + r) * half;
      const float* sine = table.sine.data() + (first_row + r) * half;
      for (int64_t h = 0; h < heads; ++h) {
        float* head = x + r * row_stride + h * head_dim;
        for (int64_t i = 0; i < half; ++i) {
          float& a = head[split ? i : 2 * i];
          float& b = head[split ? i + half : 2 * i + 1];
          const float old_a = a;
          a = a * cosine[i] - b * sine[i];
          b = b * cosine[i] + old_a * sine[i];
        }
      }
    }
  });
}

void rope_half_split(float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
                     const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale) {
  RopeTable table;
  rope_build(table, positions, rows, inv_freq, rotary_dim, attention_scale);
  rope_apply(table, RopePairing::kHalfSplit, x, 0, rows, heads, head_dim, row_stride);
}

void rope_interleaved(float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
                      const int32_t* positions, const float* inv_freq, int64_t rotary_dim, float attention_scale) {
  RopeTable table;
  rope_build(table, positions, rows, inv_freq, rotary_dim, attention_scale);
  rope_apply(table, RopePairing::kInterleaved, x, 0, rows, heads, head_dim, row_stride);
}

}  // namespace galvani::kernels
