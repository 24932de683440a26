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
    /// What a decode step in one kernel (kernels/step) asks besides: the norm before a product and where it goes; of
    /// attention the pairs that rope turns and whether the layer has keys and values of its own.
    enum class Goes { kStore, kGated, kAdd };
    Goes goes = Goes::kStore;
    bool normed = false, own_kv = true;
    int rope_pairs = 0;
  };

  /// What no decode step in one kernel holds, by name, and how many calls were before it.
  struct Obstacle {
    const char* what = nullptr;
    size_t at = 0;
  };

  /// Starts a recorded pass of this many rows of one sequence from `first_position` on: what begin_step does, without a
  /// state. Models ask a batch for nothing else.
  Batch begin_recording(int64_t rows, int64_t first_position = 0);
  /// Since begin_recording, in order.
  const std::vector<Call>& calls() const { return calls_; }
  /// The first one inside a layer since begin_recording.
  const Obstacle& obstacle() const { return obstacle_; }

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
  Result<RopeRef> load_rope(const RopeSpec& spec) override {
    rope_pairs_.push_back(static_cast<int>(spec.inv_freq.size()));
    return RopeRef{static_cast<int>(rope_pairs_.size()) - 1};
  }
  /// Bytes of the tensors as the file stores them.
  int64_t weight_bytes() const override;
  /// Of those, what one decode step of one sequence reads: every multiplied matrix, one row of a pure look-up table.
  int64_t step_bytes() const override;

  void begin_step(const Batch& batch, State&) override { rows_ = batch.rows(); }
  Status finish_step() override { return {}; }
  void begin_layer(int layer) override { layer_ = layer; }
  Act embed(EmbeddingRef table, float) override { return shape(rows_, table.cols); }
  Act linear(const Act& x, const std::optional<Norm>& norm, LinearRef w) override {
    obstructed("a product of its own");
    return product(x.rows, w, norm);
  }
  AttentionInputs attention_inputs(const Act& x, const std::optional<Norm>& norm,
                                   const AttentionLayer& layer) override {
    if (layer.output_gate) obstructed("attention with an output gate");
    if (layer.norm_whole) obstructed("norms over all heads at once");
    product(x.rows, layer.qkv, norm);
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
        .own_kv = !layer.reuse_kv,
        .rope_pairs = layer.rope ? rope_pairs_[static_cast<size_t>(layer.rope.id)] : 0,
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
  Act gated_mlp(const Act& x, const std::optional<Norm>& norm, LinearRef w, const GatedActivation&) override {
    if (biased(w)) obstructed("a bias of gate and up");
    product(x.rows, w, norm, Call::Goes::kGated);
    return shape(x.rows, w.rows / 2);
  }
  Act moe(const Act& x, const std::optional<Norm>&, const MoeLayer& layer) override;
  void linear_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, Act&) override {
    if (post_norm) obstructed("a norm of what is added to the residual");
    if (biased(w)) obstructed("a bias of what is added to the residual");
    product(y.rows, w, {}, Call::Goes::kAdd);
  }
  Act logits(const Act& x, const std::optional<Norm>& norm, LinearRef head, float) override {
    // Only the rows whose logits are wanted.
    return product(std::min(x.rows, logit_rows_), head, norm);
  }
  void add(const Act&, const std::optional<Norm>&, Act&) override { obstructed("an addition of its own"); }
  Act norm(const Act& x, const Norm&) override {
    obstructed("a norm of its own");
    return shape(x.rows, x.cols);
  }
  Act activate(const Act& gate, const Act&, const GatedActivation&) override {
    obstructed("an activation of its own");
    return shape(gate.rows, gate.cols);
  }
  Act columns(const Act& x, int64_t, int64_t count) override {
    obstructed("columns of an activation");
    return shape(x.rows, count);
  }
  void scale(Act&, float) override { obstructed("a factor"); }
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
    bool biased = false;
  };
  static Act shape(int64_t rows, int64_t cols) { return {nullptr, rows, cols, cols}; }
  Act product(int64_t rows, LinearRef w, const std::optional<Norm>& norm = {}, Call::Goes goes = Call::Goes::kStore);
  bool biased(LinearRef w) const { return products_[static_cast<size_t>(w.id)].biased; }
  void obstructed(const char* what) {
    if (layer_ >= 0 && obstacle_.what == nullptr) obstacle_ = {what, calls_.size()};
  }
  void experts(int64_t pairs, const StackRef& w);

  std::vector<Product> products_;  // by the id of a LinearRef or StackRef
  std::vector<Call> calls_;
  Obstacle obstacle_;
  std::vector<int> rope_pairs_;  // by the id of a RopeRef
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
