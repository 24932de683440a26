#pragma once
/// Ops that computes nothing: it records which weights a model asks for, and with which shapes each call would run.
/// `inspect` loads a model through it, so what it prints is what a real load would use, without reading the weights.
#include <algorithm>
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

  /// A call of a forward pass that a kernel is chosen for.
  struct Call {
    enum class Kind { kProduct, kExperts, kAttention, kLatentAttention, kGatedDelta };
    Kind kind = Kind::kProduct;
    int layer = -1;           ///< -1 outside layers
    std::string name;         ///< of the product, or what it is: "attention", "latent attention", "gated delta net"
    int64_t rows = 0;         ///< that enter; of experts (and of heads' own matrices): (token, expert) pairs
    int64_t out = 0, in = 0;  ///< the product is [rows, in] → [rows, out]
    std::vector<quant::MatrixPtr> parts;  ///< of a product, stacked by rows; of experts: those of the first
    int experts = 0;                      ///< of kExperts
    /// Of the attention kinds and kGatedDelta (kv_heads: key heads).
    int heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0, window = 0;
  };

  /// Starts a recorded pass of this many rows of one sequence from `first_position` on: what begin_step does, without a
  /// state. Models ask a batch for nothing else.
  Batch begin_recording(int64_t rows, int64_t first_position = 0);
  /// Since begin_recording, in order.
  const std::vector<Call>& calls() const { return calls_; }

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
  void begin_layer(int layer) override { layer_ = layer; }
  Act embed(EmbeddingRef table, float) override { return shape(rows_, table.cols); }
  Act linear(const Act& x, const std::optional<Norm>&, LinearRef w) override { return product(x.rows, w); }
  AttentionInputs attention_inputs(const Act& x, const std::optional<Norm>&, const AttentionLayer& layer) override {
    product(x.rows, layer.qkv);
    const Act gate = layer.output_gate ? shape(x.rows, int64_t{layer.heads} * layer.v_dim) : Act{};
    return {shape(x.rows, int64_t{layer.heads} * layer.k_dim), gate};
  }
  Act attention(const AttentionInputs& inputs, const AttentionLayer& layer) override {
    calls_.push_back({
        .kind = Call::Kind::kAttention,
        .layer = layer_,
        .name = "attention",
        .rows = inputs.q.rows,
        .heads = layer.heads,
        .kv_heads = layer.kv_heads,
        .k_dim = layer.k_dim,
        .v_dim = layer.v_dim,
        .window = layer.window,
    });
    return shape(inputs.q.rows, int64_t{layer.heads} * layer.v_dim);
  }
  Act latent_attention(const Act& x, const std::optional<Norm>&, const LatentAttentionLayer& layer) override {
    product(x.rows, layer.q);
    if (layer.q_b) product(x.rows, layer.q_b);
    product(x.rows, layer.kv_a);
    experts(x.rows * layer.heads, layer.k_up);
    // One key and value head: the latent with its rotated part.
    calls_.push_back({.kind = Call::Kind::kLatentAttention,
                      .layer = layer_,
                      .name = "latent attention",
                      .rows = x.rows,
                      .heads = layer.heads,
                      .kv_heads = 1,
                      .k_dim = layer.latent + layer.rope_dim,
                      .v_dim = layer.latent});
    experts(x.rows * layer.heads, layer.v_up);
    return shape(x.rows, int64_t{layer.heads} * layer.v_dim);
  }
  Act gated_delta(const Act& x, const std::optional<Norm>&, const GatedDeltaLayer& layer) override {
    product(x.rows, layer.in);
    calls_.push_back({.kind = Call::Kind::kGatedDelta,
                      .layer = layer_,
                      .name = "gated delta net",
                      .rows = x.rows,
                      .heads = layer.value_heads,
                      .kv_heads = layer.key_heads,
                      .k_dim = layer.k_dim,
                      .v_dim = layer.v_dim});
    return shape(x.rows, int64_t{layer.value_heads} * layer.v_dim);
  }
  Act gated_mlp(const Act& x, const std::optional<Norm>&, LinearRef w, const GatedActivation&) override {
    product(x.rows, w);
    return shape(x.rows, w.rows / 2);
  }
  Act moe(const Act& x, const std::optional<Norm>&, const MoeLayer& layer) override;
  void linear_add(const Act& y, LinearRef w, const std::optional<Norm>&, Act&) override { product(y.rows, w); }
  Act logits(const Act& x, const std::optional<Norm>&, LinearRef head, float) override {
    // Only the rows whose logits are wanted.
    return product(std::min(x.rows, logit_rows_), head);
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
  struct Product {
    std::string name;
    std::vector<quant::MatrixPtr> parts;
  };
  static Act shape(int64_t rows, int64_t cols) { return {nullptr, rows, cols, cols}; }
  Act product(int64_t rows, LinearRef w);
  void experts(int64_t pairs, const StackRef& w);

  std::vector<Product> products_;  // by the id of a LinearRef or StackRef
  std::vector<Call> calls_;
  int layer_ = -1;
  int64_t logit_rows_ = 1;
  OpsOptions options_;
  std::vector<Matrix> matrices_;
  int64_t vector_bytes_ = 0, rows_ = 0;
  std::vector<std::vector<float>> taps_;
  std::vector<ActivationCounters> counters_;
  std::vector<std::vector<uint64_t>> expert_counts_;
};

}  // namespace galvani::exec
