#pragma once
/// CpuOps itself, shared by the files that implement it (one a group of operations).
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/arena.h"
#include "exec/cpu_ops.h"
#include "kernels/attention/attention.h"
#include "kernels/gated_delta/gated_delta.h"
#include "kernels/moe/moe.h"
#include "kernels/norm/norm.h"
#include "kernels/qmatmul/qmatmul.h"
#include "kernels/rope/rope.h"

namespace galvani::exec {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const OpsOptions& options) : options_(options) {}
  Status parse_arms();

  std::string device() const override { return "cpu"; }
  const OpsOptions& options() const override { return options_; }
  Memory& memory() override { return host_memory(); }

  Result<LinearRef> load_linear(const std::string& name, std::span<const LinearPart> parts) override;
  Result<StackRef> load_stack(const std::string& name, std::span<const std::vector<LinearPart>> items,
                              int active) override;
  Result<EmbeddingRef> load_embedding(const quant::MatrixPtr& table) override;
  Result<VectorRef> load_vector(std::span<const float> values) override;
  Result<RopeRef> load_rope(const RopeSpec& rope) override;
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t step_bytes() const override { return step_bytes_; }

  void begin_step(const Batch& batch, State& state) override;
  Status finish_step() override { return status_; }
  void begin_layer(int layer) override {
    // One layer's activations fit into the caches; a whole pass's would not.
    if (layer == 0) layers_begin_ = arena_.mark();
    if (layer > 0) arena_.rewind(layers_begin_);
    layer_ = layer;
  }

  Act embed(EmbeddingRef table, float scale) override;
  Act linear(const Act& x, const std::optional<Norm>& norm, LinearRef w) override;
  AttentionInputs attention_inputs(const Act& x, const std::optional<Norm>& norm, const AttentionLayer& layer) override;
  Act attention(const AttentionInputs& inputs, const AttentionLayer& layer) override;
  Act latent_attention(const Act& x, const std::optional<Norm>& norm, const LatentAttentionLayer& layer) override;
  Act gated_delta(const Act& x, const std::optional<Norm>& norm, const GatedDeltaLayer& layer) override;
  Act gated_mlp(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up,
                const GatedActivation& activation) override;
  Act moe(const Act& x, const std::optional<Norm>& norm, const MoeLayer& layer) override;
  void linear_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, Act& residual) override;
  void add(const Act& y, const std::optional<Norm>& post_norm, Act& residual) override;
  Act norm(const Act& x, const Norm& norm) override;
  Act activate(const Act& gate, const Act& up, const GatedActivation& activation) override;
  Act columns(const Act& x, int64_t first, int64_t count) override;
  void scale(Act& x, float factor) override;
  Act logits(const Act& x, const std::optional<Norm>& norm, LinearRef head, float softcap) override;
  void tap(const Act& x) override;

  Result<std::vector<kernels::SampledToken>> sample(const Act& logits,
                                                    std::span<const kernels::RowSampling> rows) override;
  Status read(const Act& act, float* out) override;
  const std::vector<std::vector<float>>& taps() const override { return taps_; }
  const std::vector<ActivationCounters>& activation_counters() const override { return counters_; }
  const std::vector<std::vector<uint64_t>>& expert_counts() const override { return expert_counts_; }
  std::vector<std::pair<std::string, uint64_t>> kernels_run() const override;

 private:
  struct Linear {
    std::string name;
    std::vector<std::unique_ptr<kernels::CpuMatrix>> parts;
    std::vector<const kernels::CpuMatrix*> segments;  // the same, as qmatmul_multi takes them
    std::vector<float> bias;                          // one a row, or empty
    int64_t rows = 0, cols = 0, bytes = 0;
  };
  struct Stack {
    std::string name;
    std::vector<Linear> items;
  };
  struct Rope {
    RopeSpec spec;
    kernels::RopeTable table;  // this step's positions
    bool fresh = false;
  };

  Act make(int64_t rows, int64_t cols);
  Act normed(const Act& x, const std::optional<Norm>& norm);
  kernels::NormParams params(const Norm& norm) const { return {.eps = norm.eps, .plus_one = norm.plus_one}; }
  const float* weights(VectorRef ref) const { return ref ? vectors_[static_cast<size_t>(ref.id)].data() : nullptr; }
  Result<Linear> pack_linear(const std::string& name, std::span<const LinearPart> parts);
  Act multiply(const Act& x, LinearRef w);
  /// y = x · Wᵀ + bias for one Linear, in the given arithmetic.
  void multiply_into(const Act& x, const Linear& linear, kernels::Arithmetic arithmetic, Act& y);
  void activate_into(const float* gate, const float* up, int64_t rows, int64_t cols, int64_t gate_stride,
                     int64_t up_stride, const GatedActivation& activation, Act& out);
  /// Fills expert_ids_, expert_weights_ and expert_groups_; x as it came, `in` as the experts read it.
  Status route(const Act& x, const Act& in, const Router& router);
  /// y, one row a place, from each place's expert; `gather`: x has one row a token, else one a place.
  void multiply_experts(const Act& x, StackRef ref, bool gather, Act& y);
  void add_shared_expert(const Act& in, const MoeLayer& layer, Act& y);
  /// Head h's columns of x, from h·x_step on, times its own matrix, to the columns of y from h·y_step on.
  void multiply_heads(StackRef ref, const Act& x, int64_t x_step, Act& y, int64_t y_step);
  Act zeros(int64_t rows, int64_t cols);
  /// Keeps the step's first error.
  void fail_step(Status error) {
    if (status_) status_ = std::move(error);
  }
  const kernels::RopeTable& rope_table(RopeRef ref);
  /// Rotates `heads` heads a row in place; nothing without a rope.
  void rotate(RopeRef ref, float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t stride);
  void head_norm(const std::optional<Norm>& norm, bool whole, float* x, int64_t rows, int64_t heads, int64_t dim,
                 int64_t stride);
  std::vector<kernels::AttentionChunk> chunks(int group) const;
  void count(const Act& x);

  OpsOptions options_;
  kernels::QmatmulArm matmul_arm_ = kernels::QmatmulArm::kAuto;
  kernels::AttentionArm attention_arm_ = kernels::AttentionArm::kAuto;
  kernels::GatedDeltaArm delta_arm_ = kernels::GatedDeltaArm::kAuto;
  Arena arena_;
  Arena::Mark layers_begin_;
  const Batch* batch_ = nullptr;
  State* state_ = nullptr;
  Status status_;
  int layer_ = -1;

  std::vector<Linear> linears_;
  std::vector<Stack> stacks_;
  std::vector<quant::MatrixPtr> tables_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Rope> ropes_;
  int64_t weight_bytes_ = 0, step_bytes_ = 0;
  std::vector<std::vector<float>> taps_;
  std::vector<ActivationCounters> counters_;
  std::vector<std::vector<uint64_t>> expert_counts_;
  kernels::CpuInput input_;
  std::vector<int32_t> expert_ids_;      // [rows, top_k]
  std::vector<float> expert_weights_;    // likewise
  std::vector<int32_t> head_rows_;       // of an input that multiply_heads gathers
  kernels::ExpertGroups expert_groups_;  // of the layer being computed
  std::vector<kernels::QmatmulItem> group_items_;
  std::array<uint64_t, kernels::kQmatmulVariants> matmul_runs_{};
  uint64_t attention_runs_ = 0;
  std::array<uint64_t, kernels::kGatedDeltaArms> delta_runs_{};
};

inline float* floats(const Act& act) { return static_cast<float*>(act.data); }

}  // namespace galvani::exec
