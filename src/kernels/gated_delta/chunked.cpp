// The recurrence over chunks of tokens. With γ the running sum of log-decays inside a chunk, D_ij = e^(γ_i − γ_j) and
// S the state at its start (models.md 3.5, multiplied out so that no inverse is formed):
//
//   R = β ⊙ (V − e^γ ⊙ (K S));   V' = R − L V',  L_ij = β_i (k_i·k_j) D_ij for j < i
//   O = e^γ ⊙ (Q S) + A V',      A_ij = (q_i·k_j) D_ij for j ≤ i
//   S ← e^γ_c S + Kᵀ (e^(γ_c − γ) ⊙ V')
//
// Only differences γ_i − γ_j with i ≥ j are exponentiated, so nothing overflows. Row t of V' and O depends on rows up
// to t alone, and its sums run in the same order whatever follows, so a chunk that is cut short gives the same bits for
// what it has.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/simd_targets.h"
#include "kernels/gated_delta/steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_delta/chunked.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

#ifndef GALVANI_DELTA_CHUNK_SCRATCH
#define GALVANI_DELTA_CHUNK_SCRATCH
namespace galvani::kernels {
/// What one chunk needs beside the state; one a thread.
struct DeltaChunk {
  static constexpr int kRows = kMaxDeltaChunk, kColumns = 64;  // columns of a block, at most
  alignas(64) float lower[kRows * kRows];                      // L
  alignas(64) float attend[kRows * kRows];                     // A
  alignas(64) float change[kRows * kColumns];                  // R, then V', for one block of columns
  alignas(64) float read[kRows * kColumns];                    // e^γ ⊙ (Q S), then O
  float gamma[kRows], gamma_rest[kRows];                       // γ in two parts: f32 alone would blur differences
  float grown[kRows], left[kRows];                             // e^γ, e^(γ_c − γ)
  std::vector<float> keys;                                     // Kᵀ, [k_dim, kRows]
  int count = 0;
};
}  // namespace galvani::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

constexpr int kStride = DeltaChunk::kRows;

/// Rows [i, i + kTokens) of L and A, as far as they are read: L's below the diagonal, A's with it.
template <int kTokens>
void weigh_pairs(const DeltaHead& head, int64_t first, int i, DeltaChunk& chunk) {
  const F32 d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const float* q = head.q + (first + i) * head.stride;
  const float* k = head.k + (first + i) * head.stride;
  for (int j = 0; j < i + kTokens; j += lanes) {
    F32Vec known[kTokens], read[kTokens];
    GALVANI_UNROLL
    for (int m = 0; m < kTokens; ++m) known[m] = read[m] = hn::Zero(d);
    for (int e = 0; e < head.k_dim; ++e) {
      const F32Vec keys = hn::LoadU(d, chunk.keys.data() + e * kStride + j);
      GALVANI_UNROLL
      for (int m = 0; m < kTokens; ++m) {
        known[m] = hn::MulAdd(hn::Set(d, k[m * head.stride + e]), keys, known[m]);
        read[m] = hn::MulAdd(hn::Set(d, q[m * head.stride + e]), keys, read[m]);
      }
    }
    const F32Vec gamma = hn::LoadU(d, chunk.gamma + j), rest = hn::LoadU(d, chunk.gamma_rest + j);
    GALVANI_UNROLL
    for (int m = 0; m < kTokens; ++m) {
      // Beyond the diagonal the difference is positive and what comes out is not read; at most 0 keeps it finite.
      const F32Vec since =
          hn::Add(hn::Sub(hn::Set(d, chunk.gamma[i + m]), gamma), hn::Sub(hn::Set(d, chunk.gamma_rest[i + m]), rest));
      const F32Vec decay = exp_full(d, at_most(d, since, 0.0f));
      const F32Vec beta = hn::Set(d, head.beta[(first + i + m) * head.gate_stride]);
      hn::StoreU(hn::Mul(hn::Mul(known[m], decay), beta), d, chunk.lower + (i + m) * kStride + j);
      hn::StoreU(hn::Mul(read[m], decay), d, chunk.attend + (i + m) * kStride + j);
    }
  }
}

/// R and e^γ ⊙ (Q S) of kTokens tokens from t on.
template <int kTokens, int kVectors, class D>
void project_tokens(D d, const DeltaHead& head, int64_t first, int64_t column, int t, DeltaChunk& chunk) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* q = head.q + (first + t) * head.stride;
  const float* k = head.k + (first + t) * head.stride;
  hn::Vec<D> known[kTokens][kVectors], read[kTokens][kVectors];
  GALVANI_UNROLL
  for (int m = 0; m < kTokens; ++m) {
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) known[m][n] = read[m][n] = hn::Zero(d);
  }
  for (int i = 0; i < head.k_dim; ++i) {
    const float* row = head.state + i * head.v_dim + column;
    hn::Vec<D> s[kVectors];
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) s[n] = hn::LoadU(d, row + n * lanes);
    GALVANI_UNROLL
    for (int m = 0; m < kTokens; ++m) {
      const auto key = hn::Set(d, k[m * head.stride + i]), query = hn::Set(d, q[m * head.stride + i]);
      GALVANI_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        known[m][n] = hn::MulAdd(key, s[n], known[m][n]);
        read[m][n] = hn::MulAdd(query, s[n], read[m][n]);
      }
    }
  }
  GALVANI_UNROLL
  for (int m = 0; m < kTokens; ++m) {
    const float* v = head.v + (first + t + m) * head.stride + column;
    const auto grown = hn::Set(d, chunk.grown[t + m]), beta = hn::Set(d, head.beta[(first + t + m) * head.gate_stride]);
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const auto rest = hn::Mul(beta, hn::NegMulAdd(grown, known[m][n], hn::LoadU(d, v + n * lanes)));
      hn::StoreU(rest, d, chunk.change + (t + m) * DeltaChunk::kColumns + n * lanes);
      hn::StoreU(hn::Mul(grown, read[m][n]), d, chunk.read + (t + m) * DeltaChunk::kColumns + n * lanes);
    }
  }
}

/// V' and O of kTokens tokens from t on; those before are done.
template <int kTokens, int kVectors, class D>
void solve_tokens(D d, const DeltaHead& head, int64_t first, int64_t column, int t, DeltaChunk& chunk) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* change = chunk.change + t * DeltaChunk::kColumns;
  const float* lower = chunk.lower + t * kStride;
  const float* attend = chunk.attend + t * kStride;
  hn::Vec<D> own[kTokens][kVectors], out[kTokens][kVectors];
  GALVANI_UNROLL
  for (int m = 0; m < kTokens; ++m) {
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      own[m][n] = hn::LoadU(d, change + m * DeltaChunk::kColumns + n * lanes);
      out[m][n] = hn::LoadU(d, chunk.read + (t + m) * DeltaChunk::kColumns + n * lanes);
    }
  }
  for (int s = 0; s < t; ++s) {
    hn::Vec<D> before[kVectors];
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) before[n] = hn::LoadU(d, chunk.change + s * DeltaChunk::kColumns + n * lanes);
    GALVANI_UNROLL
    for (int m = 0; m < kTokens; ++m) {
      const auto l = hn::Set(d, lower[m * kStride + s]), a = hn::Set(d, attend[m * kStride + s]);
      GALVANI_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        own[m][n] = hn::NegMulAdd(l, before[n], own[m][n]);
        out[m][n] = hn::MulAdd(a, before[n], out[m][n]);
      }
    }
  }
  GALVANI_UNROLL
  for (int m = 0; m < kTokens; ++m) {
    GALVANI_UNROLL
    for (int s = 0; s < kTokens; ++s) {
      if (s >= m) continue;
      const auto l = hn::Set(d, lower[m * kStride + t + s]), a = hn::Set(d, attend[m * kStride + t + s]);
      GALVANI_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        own[m][n] = hn::NegMulAdd(l, own[s][n], own[m][n]);
        out[m][n] = hn::MulAdd(a, own[s][n], out[m][n]);
      }
    }
    const auto a = hn::Set(d, attend[m * kStride + t + m]);
    float* result = head.out + (first + t + m) * head.out_stride + column;
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      hn::StoreU(own[m][n], d, change + m * DeltaChunk::kColumns + n * lanes);
      hn::StoreU(hn::MulAdd(a, own[m][n], out[m][n]), d, result + n * lanes);
    }
  }
}

/// S ← e^γ_c S + Kᵀ(e^(γ_c − γ) ⊙ V') for kRows rows of S from i on; V' is scaled already.
template <int kRows, int kVectors, class D>
void advance_rows(D d, const DeltaHead& head, int64_t first, int64_t column, int i, const DeltaChunk& chunk) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* state = head.state + i * head.v_dim + column;
  const auto keep = hn::Set(d, chunk.grown[chunk.count - 1]);
  hn::Vec<D> sum[kRows][kVectors];
  GALVANI_UNROLL
  for (int m = 0; m < kRows; ++m) {
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) sum[m][n] = hn::Mul(keep, hn::LoadU(d, state + m * head.v_dim + n * lanes));
  }
  for (int t = 0; t < chunk.count; ++t) {
    const float* k = head.k + (first + t) * head.stride + i;
    hn::Vec<D> change[kVectors];
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) change[n] = hn::LoadU(d, chunk.change + t * DeltaChunk::kColumns + n * lanes);
    GALVANI_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const auto key = hn::Set(d, k[m]);
      GALVANI_UNROLL
      for (int n = 0; n < kVectors; ++n) sum[m][n] = hn::MulAdd(key, change[n], sum[m][n]);
    }
  }
  GALVANI_UNROLL
  for (int m = 0; m < kRows; ++m) {
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::StoreU(sum[m][n], d, state + m * head.v_dim + n * lanes);
  }
}

/// One chunk over kVectors vectors of columns from `column` on.
template <int kVectors, class D>
void chunk_block(D d, const DeltaHead& head, int64_t first, int64_t column, DeltaChunk& chunk) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int t = 0;
  for (; t + 4 <= chunk.count; t += 4) project_tokens<4, kVectors>(d, head, first, column, t, chunk);
  for (; t < chunk.count; ++t) project_tokens<1, kVectors>(d, head, first, column, t, chunk);
  for (t = 0; t + 4 <= chunk.count; t += 4) solve_tokens<4, kVectors>(d, head, first, column, t, chunk);
  for (; t < chunk.count; ++t) solve_tokens<1, kVectors>(d, head, first, column, t, chunk);
  for (t = 0; t < chunk.count; ++t) {
    const auto left = hn::Set(d, chunk.left[t]);
    float* row = chunk.change + t * DeltaChunk::kColumns;
    GALVANI_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::StoreU(hn::Mul(left, hn::LoadU(d, row + n * lanes)), d, row + n * lanes);
  }
  int i = 0;
  for (; i + 8 <= head.k_dim; i += 8) advance_rows<8, kVectors>(d, head, first, column, i, chunk);
  for (; i < head.k_dim; ++i) advance_rows<1, kVectors>(d, head, first, column, i, chunk);
}

template <int kVectors, class D>
void chunk_columns(D d, const DeltaHead& head, int64_t first, DeltaChunk& chunk) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t column = 0;
  for (; column + kVectors * lanes <= head.v_dim; column += kVectors * lanes)
    chunk_block<kVectors>(d, head, first, column, chunk);
  for (; column + lanes <= head.v_dim; column += lanes) chunk_block<1>(d, head, first, column, chunk);
}

/// γ, its powers, Kᵀ, L and A of tokens [first, first + count).
void prepare_chunk(const DeltaHead& head, int64_t first, int count, DeltaChunk& chunk) {
  chunk.count = count;
  double sum = 0;
  for (int t = 0; t < count; ++t) {
    sum += head.log_g[(first + t) * head.gate_stride];
    chunk.gamma[t] = static_cast<float>(sum);
    chunk.gamma_rest[t] = static_cast<float>(sum - double{chunk.gamma[t]});
  }
  std::fill(chunk.gamma + count, chunk.gamma + DeltaChunk::kRows, chunk.gamma[count - 1]);
  std::fill(chunk.gamma_rest + count, chunk.gamma_rest + DeltaChunk::kRows, chunk.gamma_rest[count - 1]);
  const F32 d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const F32Vec end = hn::Set(d, chunk.gamma[count - 1]), end_rest = hn::Set(d, chunk.gamma_rest[count - 1]);
  for (int t = 0; t < count; t += lanes) {
    const F32Vec gamma = hn::LoadU(d, chunk.gamma + t), rest = hn::LoadU(d, chunk.gamma_rest + t);
    hn::StoreU(exp_full(d, gamma), d, chunk.grown + t);
    hn::StoreU(exp_full(d, hn::Add(hn::Sub(end, gamma), hn::Sub(end_rest, rest))), d, chunk.left + t);
  }
  chunk.keys.resize(static_cast<size_t>(head.k_dim) * kStride);
  const int padded = (count + lanes - 1) / lanes * lanes;
  for (int t = 0; t < padded; ++t) {
    const float* k = head.k + (first + t) * head.stride;
    for (int i = 0; i < head.k_dim; ++i) chunk.keys[static_cast<size_t>(i * kStride + t)] = t < count ? k[i] : 0.0f;
  }
  int t = 0;
  for (; t + 4 <= count; t += 4) weigh_pairs<4>(head, first, t, chunk);
  for (; t < count; ++t) weigh_pairs<1>(head, first, t, chunk);
}

void chunked(const DeltaHead& head, int size, DeltaChunk& chunk) {
  for (int64_t first = 0; first < head.count;) {
    const int64_t border = size - (head.first_position + first) % size;
    const int count = static_cast<int>(std::min(border, head.count - first));
    prepare_chunk(head, first, count, chunk);
    const F32 d;
    if (head.v_dim % static_cast<int>(hn::Lanes(d)) == 0) {
      chunk_columns<hn::MaxLanes(F32()) >= 16 ? 2 : 1>(d, head, first, chunk);
    } else if (head.v_dim % 4 == 0) {
      chunk_columns<1>(hn::CappedTag<float, 4>(), head, first, chunk);
    } else {
      chunk_columns<1>(hn::CappedTag<float, 1>(), head, first, chunk);
    }
    first += count;
  }
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {
HWY_EXPORT(chunked);
}

void delta_chunked(const DeltaHead& head, int chunk) {
  static thread_local DeltaChunk scratch;
  HWY_DYNAMIC_DISPATCH(chunked)(head, chunk, scratch);
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
