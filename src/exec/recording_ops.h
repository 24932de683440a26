#pragma once
/// Ops that computes nothing: it records which weights a model asks for, and with which shapes each call would run.
/// `inspect` loads a model through it, so what it prints is what a real load would use, without reading the weights.
#include <string>
#include <vector>

#include "exec/ops.h"

namespace galvani::exec {

class RecordingOps final : public Ops {
 public:
  struct Matrix {
    std::string product;  ///< name of the product it belongs to
    quant::MatrixPtr source;
    bool embedding = false;  ///< looked up by row, not multiplied
    bool multiplied = false;
    double active = 1;  ///< share of it that one token reads (experts)
  };

  const std::vector<Matrix>& matrices() const { return matrices_; }
  int64_t vector_bytes() const { return vector_bytes_; }

  std::string device() const override { return "none"; }
  const OpsOptions& options() const override { return options_; }
  Memory& memory() override { return host_memory(); }
  Result<LinearRef> load_linear(const std::string& name, std::span<const LinearPart> parts) override;
  Result<StackRef> load_stack(const std::string& name, std::span<const std::vector<LinearPart>> items,
                              int active) override;
  Result<EmbeddingRef> load_embedding(const quant::MatrixPtr& table) override;
  Result<VectorRef> load_vector(std::span<const float> values) override;
  Result<RopeRef> load_rope(const RopeSpec&) override { return RopeRef{0}; }
  /// Bytes of the tensors as the file stores them.
  int64_t weight_bytes() const override;
  /// Of those, what one decode step of one sequence reads: every multiplied matrix, one row of a pure look-up table.
  int64_t step_bytes() const override;

  void begin_step(const Batch& batch, State&) override { rows_ = batch.rows(); }
  Status finish_step() override { return {}; }
  void begin_layer(int) override {}
  Act embed(EmbeddingRef table, float) override { return shape(rows_, table.cols); }
  Act linear(const Act& x, const std::optional<Norm>&, LinearRef w) override { return shape(x.rows, w.rows); }
  AttentionInputs attention_inputs(const Act& x, const std::optional<Norm>&, const AttentionLayer& layer) override {
    const Act gate = layer.output_gate ? shape(x.rows, int64_t{layer.heads} * layer.v_dim) : Act{};
    return {shape(x.rows, int64_t{layer.heads} * layer.k_dim), gate};
  }
  Act attention(const AttentionInputs& inputs, const AttentionLayer& layer) override {
    return shape(inputs.q.rows, int64_t{layer.heads} * layer.v_dim);
  }
  Act latent_attention(const Act& x, const std::optional<Norm>&, const LatentAttentionLayer& layer) override {
    return shape(x.rows, int64_t{layer.heads} * layer.v_dim);
  }
  Act gated_delta(const Act& x, const std::optional<Norm>&, const GatedDeltaLayer& layer) override {
    return shape(x.rows, int64_t{layer.value_heads} * layer.v_dim);
  }
  Act gated_mlp(const Act& x, const std::optional<Norm>&, LinearRef w, const GatedActivation&) override {
    return shape(x.rows, w.rows / 2);
  }
  Act moe(const Act& x, const std::optional<Norm>&, const MoeLayer& layer) override {
    return shape(x.rows, layer.down.rows);
  }
  void linear_add(const Act&, LinearRef, const std::optional<Norm>&, Act&) override {}
  Act logits(const Act& x, const std::optional<Norm>&, LinearRef head, float) override {
    return shape(x.rows, head.rows);
  }
  void add(const Act&, const std::optional<Norm>&, Act&) override {}
  Act norm(const Act& x, const Norm&) override { return shape(x.rows, x.cols); }
  Act activate(const Act& gate, const Act&, const GatedActivation&) override { return shape(gate.rows, gate.cols); }
  Act columns(const Act& x, int64_t, int64_t count) override { return shape(x.rows, count); }
  void scale(Act&, float) override {}
  void tap(const Act&) override {}
  Result<std::vector<kernels::SampledToken>> sample(const Act&, std::span<const kernels::RowSampling>) override;
  Status read(const Act&, float*) override;
  const std::vector<std::vector<float>>& taps() const override { return taps_; }
  const std::vector<ActivationCounters>& activation_counters() const override { return counters_; }
  const std::vector<std::vector<uint64_t>>& expert_counts() const override { return expert_counts_; }
  std::vector<std::pair<std::string, uint64_t>> kernels_run() const override { return {}; }

 private:
  static Act shape(int64_t rows, int64_t cols) { return {nullptr, rows, cols, cols}; }
  OpsOptions options_;
  std::vector<Matrix> matrices_;
  int64_t vector_bytes_ = 0, rows_ = 0;
  std::vector<std::vector<float>> taps_;
  std::vector<ActivationCounters> counters_;
  std::vector<std::vector<uint64_t>> expert_counts_;
};

}  // namespace galvani::exec
