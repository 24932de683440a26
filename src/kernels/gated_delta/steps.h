#pragma once
/// The steps that the arms of the gated delta net are made of; private to this folder. Each is compiled for every
/// instruction set and dispatched by its wrapper.
#include <cstdint>

#include "kernels/gated_delta/gated_delta.h"

namespace galvani::kernels {

/// One value head of one sequence: what its recurrence reads and writes. Row strides in elements.
struct DeltaHead {
  const float* q;      ///< [count, k_dim], normalised and scaled
  const float* k;      ///< [count, k_dim], normalised
  const float* v;      ///< [count, v_dim]
  int64_t stride;      ///< of q, k and v
  const float* log_g;  ///< [count] log-decays g
  const float* decay;  ///< [count] e^g
  const float* beta;   ///< [count]
  int64_t gate_stride;
  float* state;  ///< [k_dim, v_dim]
  float* out;    ///< [count, v_dim]
  int64_t out_stride;
  int64_t count, first_position;
  int k_dim, v_dim;
};

/// u[c] = silu(Σ_j taps[j · channels + c] · rows[j][c]) for c < n; `rows` are `kernel` rows, oldest first.
void delta_convolve(const float* const* rows, const float* taps, int64_t channels, int kernel, int64_t n, float* u);
/// x ← x / √(Σ x² + 1e-6) · factor.
void delta_normalise(float* x, int64_t dim, float factor);
/// o ← norm ⊙ o / √(mean o² + eps) ⊙ act(z), in place.
void delta_finish(float* o, const float* z, const float* norm, int64_t dim, float eps, bool sigmoid_gate);
/// Token by token.
void delta_recurrent(const DeltaHead& head);
/// `chunk` tokens at once; chunk ≤ kMaxDeltaChunk.
void delta_chunked(const DeltaHead& head, int chunk);
constexpr int kMaxDeltaChunk = 64;

}  // namespace galvani::kernels
