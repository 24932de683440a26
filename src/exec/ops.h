#pragma once
/// What a model is written in. Each call is the size of one good launch, not of one formula; models are written once
/// against this class and run on every backend that implements it.
///
/// Ops owns weights (handed over at load, named by small handles) and activations (valid until the next begin_step).
/// The residual stream is f32 everywhere; where an activation enters a matrix product it is rounded to the run's
/// arithmetic (`--act`); norms, softmax, router, recurrent state and logits are f32 (models.md 1.2).
///
/// Errors inside a step are sticky: the first one is kept, later calls do nothing, and finish_step() returns it. So a
/// forward pass reads like the formula it is, and still nothing unwritten is ever used.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/batch.h"
#include "exec/layers.h"
#include "exec/memory.h"
#include "exec/state.h"
#include "galvani/graph_info.h"
#include "kernels/common/arithmetic.h"
#include "kernels/sampling/sampling.h"
#include "quant/matrix_source.h"

namespace galvani::exec {

/// How a tensor-parallel run splits a model; one rank for now, and models already ask for their local sizes.
struct Shard {
  int rank = 0, world = 1;
};

/// What a run counted about its activations where they entered matrix products, per layer.
struct ActivationCounters {
  uint64_t values = 0, non_finite = 0, saturated = 0;
};

/// What a backend's own preparations took so far; zeros on a CPU.
struct LoadCosts {
  double upload_ms = 0;  ///< reading, converting and copying weights until they are ready on the device
  int64_t upload_bytes = 0;
  /// Of upload_ms: waiting for allocations, for blocks to be read, for copies and packing.
  double memory_ms = 0, reading_ms = 0, link_ms = 0;
  double graph_ms = 0;  ///< capturing and instantiating graphs
};

struct OpsOptions {
  kernels::Arithmetic arithmetic = kernels::Arithmetic::kF32;
  bool batch_invariant = false;    ///< one arm and one split whatever the number of rows
  bool count_activations = false;  ///< fill ActivationCounters (slower)
  bool poison = false;             ///< fill outputs with NaN before they are computed
  /// A GPU: MiB of the largest matrix that a product may hold in 16 bits on its way to cuBLASLt (the expand arm); 0
  /// forbids it.
  int64_t expand_mib = 512;
  /// Forced arms, "op=name" already split, e.g. {"qmatmul", "panel"}; unknown ones are refused at creation.
  std::vector<std::pair<std::string, std::string>> arms;
};

class Ops {
 public:
  virtual ~Ops() = default;

  /// "cpu", "cuda:0".
  virtual std::string device() const = 0;
  virtual const OpsOptions& options() const = 0;
  virtual Memory& memory() = 0;
  virtual Shard shard() const { return {}; }

  // --- weights, at load -------------------------------------------------------------------------------------------
  /// Several matrices that read the same input, stacked by rows: y = x · [A; B; …]ᵀ + bias.
  virtual Result<LinearRef> load_linear(const std::string& name, std::span<const LinearPart> parts) = 0;
  /// One product per expert (or head), each made of parts like a linear's; all [rows, cols]. A token uses `active` of
  /// them (for step_bytes).
  virtual Result<StackRef> load_stack(const std::string& name, std::span<const std::vector<LinearPart>> items,
                                      int active) = 0;
  virtual Result<EmbeddingRef> load_embedding(const quant::MatrixPtr& table) = 0;
  virtual Result<VectorRef> load_vector(std::span<const float> values) = 0;
  virtual Result<RopeRef> load_rope(const RopeSpec& rope) = 0;
  /// After the last weight: waits until all are ready and takes what steps will need. A step does it where nobody did.
  virtual Status finish_load() { return {}; }
  virtual LoadCosts load_costs() const { return {}; }
  /// Bytes of weights held, and bytes that one decode step of one sequence reads.
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t step_bytes() const = 0;

  // --- a step -----------------------------------------------------------------------------------------------------
  /// Starts a step: activations of the last one are gone; `state` has reserved room for every chunk.
  virtual void begin_step(const Batch& batch, State& state) = 0;
  /// First error of the step, if any. Outputs are complete when it returns.
  virtual Status finish_step() = 0;
  /// After a finish_step() without an error: true if the step was only looked at, to learn what a model asks for, and
  /// nothing has run. Begin it and walk the model once more. Backends do so at most once in their life.
  virtual bool only_looked() const { return false; }
  /// Layer that the following calls belong to, for counters, taps and traces; -1 outside layers. Activations made
  /// inside a layer are gone when the next one begins; those made before layer 0 (the residual stream) last the step.
  virtual void begin_layer(int layer) = 0;

  /// x[r] = table[token of r] · scale; the residual stream.
  virtual Act embed(EmbeddingRef table, float scale) = 0;
  /// y = norm(x) · Wᵀ + bias.
  virtual Act linear(const Act& x, const std::optional<Norm>& norm, LinearRef w) = 0;
  /// q, k, v = norm(x) · Wᵀ with per-head norms and rope; k and v are appended to the pages.
  virtual AttentionInputs attention_inputs(const Act& x, const std::optional<Norm>& norm,
                                           const AttentionLayer& layer) = 0;
  /// softmax(q·kᵀ)·v over each row's own past, times sigmoid(gate) where there is one; [rows, heads·v_dim].
  virtual Act attention(const AttentionInputs& inputs, const AttentionLayer& layer) = 0;
  /// Latent attention from x to the heads' values, appending to the pages; [rows, heads·v_dim].
  virtual Act latent_attention(const Act& x, const std::optional<Norm>& norm, const LatentAttentionLayer& layer) = 0;
  /// The gated delta net from norm(x) to its gated, normed output; reads and advances the sequences' slots. [rows,
  /// value_heads·v_dim].
  virtual Act gated_delta(const Act& x, const std::optional<Norm>& norm, const GatedDeltaLayer& layer) = 0;
  /// act(gate)·up with [gate; up] = norm(x) · Wᵀ; w has 2·I rows, gate first.
  virtual Act gated_mlp(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up,
                        const GatedActivation& activation) = 0;
  /// The experts of norm(x), weighed and summed, with the shared expert; [rows, hidden].
  virtual Act moe(const Act& x, const std::optional<Norm>& norm, const MoeLayer& layer) = 0;
  /// residual += post_norm(y · Wᵀ + bias).
  virtual void linear_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, Act& residual) = 0;
  /// residual += post_norm(y).
  virtual void add(const Act& y, const std::optional<Norm>& post_norm, Act& residual) = 0;
  /// norm(x), as an activation of its own.
  virtual Act norm(const Act& x, const Norm& norm) = 0;
  /// act(gate) ⊙ up, element by element; both [rows, cols].
  virtual Act activate(const Act& gate, const Act& up, const GatedActivation& activation) = 0;
  /// Columns [first, first + count) of x; no copy: writing to them writes to x.
  virtual Act columns(const Act& x, int64_t first, int64_t count) = 0;
  /// x *= factor, in place.
  virtual void scale(Act& x, float factor) = 0;
  /// Logits of the batch's logit rows, f32: cap·tanh(z/cap) with z = norm(x) · Wᵀ; cap 0 = none.
  virtual Act logits(const Act& x, const std::optional<Norm>& norm, LinearRef head, float softcap) = 0;
  /// Copies x out when the batch taps hidden states.
  virtual void tap(const Act& x) = 0;

  /// Sums over ranks in place; nothing to do at one rank.
  virtual void all_reduce(Act& x) { (void)x; }
  /// Exchanges rows between ranks for experts; nothing to do at one rank.
  virtual void all_to_all(Act& x) { (void)x; }

  // --- results ----------------------------------------------------------------------------------------------------
  /// Draws one token a row; parameters are per row.
  virtual Result<std::vector<kernels::SampledToken>> sample(const Act& logits,
                                                            std::span<const kernels::RowSampling> rows) = 0;
  /// An activation as host f32, row after row.
  virtual Status read(const Act& act, float* out) = 0;
  /// Hidden states tapped in the last step, one [rows, hidden] matrix per tap.
  virtual const std::vector<std::vector<float>>& taps() const = 0;
  /// Per layer (index 0 = outside layers, i + 1 = layer i); empty unless counting is on.
  virtual const std::vector<ActivationCounters>& activation_counters() const = 0;
  /// Tokens that each expert of each layer has served so far, [layer][expert]; empty rows for layers without experts.
  virtual const std::vector<std::vector<uint64_t>>& expert_counts() const = 0;
  /// Arms that ran so far with counts, e.g. {"qmatmul.rows", 120}.
  virtual std::vector<std::pair<std::string, uint64_t>> kernels_run() const = 0;
  /// Captured decode steps, by size.
  virtual std::vector<GraphInfo> graphs() const { return {}; }
};

}  // namespace galvani::exec
