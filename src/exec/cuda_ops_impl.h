#pragma once
/// CudaOps itself, shared by the files that implement it (one a group of operations).
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "cuda/blas.h"
#include "exec/call_plans.h"
#include "exec/cuda_memory.h"
#include "exec/cuda_ops.h"
#include "exec/cuda_tables.h"
#include "exec/cuda_weights.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/elementwise/elementwise_cuda_args.h"
#include "kernels/norm/norm_cuda_args.h"
#include "kernels/rope/rope_cuda_args.h"
#include "kernels/sampling/sampling_cuda.h"
#include "kernels/step/step_cuda.h"

namespace galvani::exec {

/// Layers whose activations can be counted, and what stands outside layers.
constexpr size_t kMostCounted = 1025;

/// What the calls of a step do: run, run into a graph, nothing but name the memory that the graph will write, or
/// nothing but say whether they could be phases of one kernel.
enum class StepMode { kEager, kCapture, kReplay, kLook };

class CudaOps final : public Ops {
 public:
  CudaOps(const OpsOptions& options, std::shared_ptr<cuda::CudaDevice> device, cuda::Stream stream);
  ~CudaOps() override;
  /// `expected_weights`: bytes that loading will ask for, 0 when unknown.
  /// one_kernel_keys: CudaOpsOptions.
  Status initialise(int64_t expected_weights, int64_t one_kernel_keys);

  std::string device() const override { return fmt::format("cuda:{}", device_->index()); }
  const OpsOptions& options() const override { return options_; }
  Memory& memory() override { return memory_; }

  Result<LinearRef> load_linear(const std::string& name, std::span<const LinearPart> parts) override;
  Result<StackRef> load_stack(const std::string& name, std::span<const std::vector<LinearPart>> items,
                              int active) override;
  Result<EmbeddingRef> load_embedding(const quant::MatrixPtr& table) override;
  Result<VectorRef> load_vector(std::span<const float> values) override;
  Result<RopeRef> load_rope(const RopeSpec& rope) override;
  Status finish_load() override { return loading_ ? finish_loading() : Status{}; }
  LoadCosts load_costs() const override {
    const UploadWaits& waits = uploader_.waits();
    return {.upload_ms = uploader_.seconds() * 1e3,
            .upload_bytes = uploader_.bytes(),
            .memory_ms = waits.memory * 1e3,
            .reading_ms = waits.reading * 1e3,
            .link_ms = waits.link * 1e3,
            .graph_ms = graph_ms_};
  }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t step_bytes() const override { return step_bytes_; }

  void begin_step(const Batch& batch, State& state) override;
  Status finish_step() override;
  bool only_looked() const override { return looked_; }
  void begin_layer(int layer) override;

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
  std::vector<GraphInfo> graphs() const override;

 private:
  struct Rope {
    RopeSpec spec;
    cuda::DeviceBuffer inv_freq;
    float* table = nullptr;  // this step's
    bool fresh = false;
  };
  /// residual += post_norm(add + bias), not done yet: it joins the next norm of the residual.
  struct Pending {
    Act add;
    const float* bias = nullptr;
    std::optional<Norm> post_norm;
    int64_t stride = 0;  ///< of what it is added to, which may be columns of something wider
  };
  struct DecodeGraph {
    bool warm = false;  // its size has run eagerly: every kernel is loaded, every block of the arenas taken
    std::optional<cuda::GraphExec> exec;
    GraphInfo info;
  };
  /// A decode step of one row as one kernel: what of the step's calls is written down as phases instead of launched.
  /// The first such step is only looked at: whether all calls inside layers can be phases decides, for good, so that no
  /// step takes another arm than the rest.
  struct OneKernel {
    kernels::StepProgram program;              // not launched yet
    std::vector<kernels::StepPhase> launched;  // in this step, or the graph that is being captured
    const char* refusal = nullptr;             // of a call inside a layer
    bool decided = false, on = false;
    int64_t most_keys = INT64_MAX;  // a step of more is a launch an operation
    std::vector<bool> taken;        // of the captured calls that were asked; a replay asks again
    size_t asked = 0;
    cuda::DeviceBuffer phases, counters, scratch;  // counters: of attention
    std::optional<kernels::QkvArgs> qkv;           // from attention_inputs() to attention()
  };
  /// A split of keys that some layers share; its place in device memory is the same in every decode step.
  struct Schedule {
    kernels::AttentionCudaShape shape;
    int window = 0;
    const int* device = nullptr;  // this step's
    int segments = 0;
  };
  /// This step's tiles of rows, shared by the layers whose kernel takes tiles of `rows` and that have this window.
  struct Tiles {
    int rows = 0, window = 0;
    const kernels::AttentionTileRows* device = nullptr;
    int count = 0;
  };

  template <typename Launch>
  void run(const Launch& launch) {
    if (mode_ == StepMode::kReplay || mode_ == StepMode::kLook || !step_status_) return;
    launch_phases();
    if (!step_status_) return;
    if (Status done = launch(); !done) step_status_ = std::move(done);
  }
  void fail_step(tl::unexpected<Error> error) {
    if (step_status_) step_status_ = std::move(error);
  }
  void refuse(const char* what);

  void* take(DeviceArena& arena, size_t bytes);
  Act make(int64_t rows, int64_t cols, kernels::StoreType type);
  kernels::StoreType type_of(const Act& act) const;
  /// Columns of x. Made here alone: an address that is not entered with its type may still have the type of what an
  /// earlier layer kept there.
  Act columns_of(const Act& x, int64_t first, int64_t count);
  const float* weights(VectorRef ref) const {
    return ref ? vectors_[static_cast<size_t>(ref.id)].as<float>() : nullptr;
  }
  kernels::NormWeights norm_weights(const Norm& n) const { return {weights(n.weight), n.eps, n.plus_one}; }
  const CudaLinear& linear_of(LinearRef ref) const { return linears_[static_cast<size_t>(ref.id)]; }

  /// norm(x) in `type` (x itself, rounded, without a norm), after what is pending for x.
  Act normed(const Act& x, const std::optional<Norm>& norm, kernels::StoreType type);
  void flush();
  Act logit_rows(const Act& x, const std::optional<Norm>& norm);
  /// The type in which activations wait for their product: what is counted must not be rounded yet.
  kernels::StoreType entering() const { return options_.count_activations ? kernels::StoreType::kF32 : act_type_; }
  /// Adds what of x the run's arithmetic cannot hold to the layer's counters.
  void count(const Act& x);
  Status collect_counts();
  /// x · Wᵀ, f32, without the bias: its consumer adds it.
  Act multiply(const Act& x, LinearRef w);
  /// gate'(x · Wᵀ) by the product alone; false where it takes the product and the gate.
  bool multiply_gated(const Act& x, const CudaLinear& linear, const GatedActivation& activation, Act& y);
  /// residual += x · Wᵀ by the product alone; false where the next norm adds it.
  bool multiply_onto(const Act& x, const CudaLinear& linear, Act& residual);
  /// The matrix that a product could finish by itself: one packed segment without a bias, and nothing to count.
  const kernels::CudaMatrix* alone(const CudaLinear& linear) const;
  Status multiply_dense(const CudaSegment& segment, int64_t cols, const Act& x, float* out, int64_t out_stride);
  Act gate(const Act& gate, const float* gate_bias, const Act& up, const float* up_bias, kernels::Gate kind,
           const GatedActivation& activation);

  // One kernel for a step (cuda_ops_step.cpp).
  Status prepare_one_kernel();
  bool stepping() const { return one_kernel_ && decode_ && rows_ == 1 && !long_; }
  /// Whether the call became a phase; `append` gives null or why it cannot. In a step that is only looked at never.
  template <typename Append>
  bool step_takes(const Append& append);
  /// y = W · norm(x) as a phase.
  bool step_product(const Act& x, const std::optional<Norm>& norm, LinearRef w, kernels::StepProduct product);
  bool step_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, const Act& residual);
  bool step_gated(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up, kernels::Gate kind,
                  const GatedActivation& activation, Act& out);
  /// Of a call that is never a phase.
  void step_cannot(const char* reason);
  bool step_qkv(const Act& x, const std::optional<Norm>& norm, const AttentionLayer& layer, const Act& qkv);
  kernels::StepAttention step_attention(const AttentionLayer& layer, Act& out);
  /// Before anything else is launched, and at the end: launches what has been written down.
  void launch_phases();
  void drop_phases();
  void begin_one_kernel();
  Status end_one_kernel();
  Status upload_phases();

  Status finish_loading();
  Status begin_tables(const Batch& batch, State& state);
  Status decode_tables(const Batch& batch);
  DecodeGraph& decode_graph();  ///< of this step
  /// Brings the decode tables up: now, or as the first node of the graph being captured; a graph that is there is
  /// launched, which does both.
  Status start_decode(const Batch& batch);
  /// Launches the graph of this step's size.
  Status replay();
  Status eager_tables(const Batch& batch);
  void drop_graphs_unless(const State& state);
  /// The split for rows at these positions (all of a decode step's), filled once a step.
  Result<Schedule*> schedule(const kernels::AttentionCudaShape& shape, int window, std::span<const int> positions);
  Status fill_schedule(Schedule& entry, size_t index, std::span<const int> positions);
  Result<Tiles> tiles_of(const AttentionLayer& layer, const kernels::AttentionCudaChoice& choice);
  Status attend(const Act& q, const AttentionLayer& layer, Act& out);
  Status attend_rows(const kernels::AttentionCudaShape& shape, const AttentionLayer& layer,
                     kernels::AttentionRowsArgs args, std::span<const int> positions);
  Status attend_tiles(const kernels::AttentionCudaShape& shape, const AttentionLayer& layer,
                      const kernels::AttentionRowsArgs& rows, const kernels::AttentionCudaChoice& choice);
  const float* rope_table(RopeRef ref);
  kernels::QkvArgs qkv_args(const Act& qkv, const Act& q, const AttentionLayer& layer);
  void whole_norms(const Act& qkv, const AttentionLayer& layer, kernels::QkvArgs& args);
  kernels::PagedKv pages(const AttentionLayer& layer) const;

  OpsOptions options_;
  std::shared_ptr<cuda::CudaDevice> device_;
  cuda::Stream stream_;
  CudaMemory memory_;
  kernels::StoreType act_type_;
  GpuChoice choice_;

  // Weights.
  Uploader uploader_;
  std::vector<CudaLinear> linears_;
  std::vector<CudaTable> tables_;
  std::vector<cuda::DeviceBuffer> vectors_;
  std::vector<Rope> ropes_;
  int64_t weight_bytes_ = 0, step_bytes_ = 0;
  bool loading_ = true;
  std::unique_ptr<kernels::QmatmulCuda> qmatmul_;
  std::unique_ptr<cuda::Blas> blas_;  // of dense weights
  cuda::DeviceBuffer blas_workspace_;

  // The step.
  const Batch* batch_ = nullptr;
  State* state_ = nullptr;
  Status step_status_;
  StepMode mode_ = StepMode::kEager;
  bool decode_ = false;
  bool replayed_ = false;  // this step's graph has been launched
  bool long_ = false;      // one row of more keys than one kernel should take
  int64_t rows_ = 0;       // of every activation: those of the batch, or the graph's size
  int layer_ = -1;
  DeviceArena step_arena_, layer_arenas_[2];
  DeviceArena* arena_ = &step_arena_;
  std::unordered_map<const void*, kernels::StoreType> types_;
  Pending pending_;
  float* pending_for_ = nullptr;
  UploadBlock decode_block_, block_;
  BlockMirror mirror_;
  const int* tokens_ = nullptr;
  const int* positions_ = nullptr;
  const int* sequence_ = nullptr;
  const int* logit_rows_ = nullptr;
  std::vector<int> row_positions_, row_sequences_;   // of rows_, −1 where a graph has no row
  std::vector<int> single_rows_, single_positions_;  // rows of short chunks, which no tile takes
  const int* single_rows_device_ = nullptr;
  std::vector<Schedule> schedules_;
  std::vector<Tiles> tiles_;

  std::array<DecodeGraph, 8> graphs_;  // 1, 2, 4, …, 64 rows, and one row where long_
  std::vector<const void*> graph_pages_;
  std::chrono::steady_clock::time_point capture_start_;
  double graph_ms_ = 0;  // from the start of captures until they could be replayed

  std::optional<OneKernel> one_kernel_;
  int64_t one_kernel_keys_ = -1;
  bool looked_ = false;

  kernels::CudaSampler sampler_;
  std::vector<std::vector<float>> taps_;
  std::vector<ActivationCounters> counters_;
  cuda::DeviceBuffer device_counters_;  // [kMostCounted][non-finite, saturated]
  std::vector<std::vector<uint64_t>> expert_counts_;
};

template <typename Append>
bool CudaOps::step_takes(const Append& append) {
  OneKernel& one = *one_kernel_;
  if (!step_status_) return false;
  if (mode_ == StepMode::kLook) {
    const char* reason = append(one.program);
    if (layer_ >= 0 && one.refusal == nullptr) one.refusal = reason;
    return false;
  }
  if (!one.on) return false;
  if (mode_ == StepMode::kReplay) return one.asked < one.taken.size() && one.taken[one.asked++];
  const char* reason = pending_for_ != nullptr ? "an addition that waits for a norm" : append(one.program);
  one.taken.push_back(reason == nullptr);
  return reason == nullptr;
}

inline float* floats(const Act& act) { return static_cast<float*>(act.data); }

}  // namespace galvani::exec
