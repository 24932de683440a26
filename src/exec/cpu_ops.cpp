#include "exec/cpu_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/arena.h"
#include "core/error.h"
#include "device/cpu_caps.h"
#include "exec/activation_counter.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/norm/norm.h"
#include "kernels/qmatmul/qmatmul.h"
#include "kernels/rope/rope.h"

namespace galvani::exec {
namespace {

using kernels::QmatmulArm;

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const OpsOptions& options) : options_(options) {}
  Status parse_arms();

  std::string device() const override { return "cpu"; }
  const OpsOptions& options() const override { return options_; }
  Memory& memory() override { return host_memory(); }

  Result<LinearRef> load_linear(const std::string& name, std::span<const LinearPart> parts) override;
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
  Act attention_inputs(const Act& x, const std::optional<Norm>& norm, const AttentionLayer& layer) override;
  Act attention(const Act& q, const AttentionLayer& layer) override;
  Act gated_mlp(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up, Activation activation) override;
  void linear_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, Act& residual) override;
  Act logits(const Act& x, const std::optional<Norm>& norm, LinearRef head, float softcap) override;
  void tap(const Act& x) override;

  Result<std::vector<kernels::SampledToken>> sample(const Act& logits,
                                                    std::span<const kernels::RowSampling> rows) override;
  Status read(const Act& act, float* out) override;
  const std::vector<std::vector<float>>& taps() const override { return taps_; }
  const std::vector<ActivationCounters>& activation_counters() const override { return counters_; }
  std::vector<std::pair<std::string, uint64_t>> kernels_run() const override;

 private:
  struct Linear {
    std::string name;
    std::vector<std::unique_ptr<kernels::CpuMatrix>> parts;
    std::vector<const kernels::CpuMatrix*> segments;  // the same, as qmatmul_multi takes them
    std::vector<float> bias;                          // one a row, or empty
    int64_t rows = 0, cols = 0;
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
  Act multiply(const Act& x, LinearRef w);
  const kernels::RopeTable& rope_table(RopeRef ref);
  std::vector<kernels::AttentionChunk> chunks(int group) const;
  void count(const Act& x);

  OpsOptions options_;
  QmatmulArm matmul_arm_ = QmatmulArm::kAuto;
  kernels::AttentionArm attention_arm_ = kernels::AttentionArm::kAuto;
  Arena arena_;
  Arena::Mark layers_begin_;
  const Batch* batch_ = nullptr;
  State* state_ = nullptr;
  Status status_;
  int layer_ = -1;

  std::vector<Linear> linears_;
  std::vector<quant::MatrixPtr> tables_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Rope> ropes_;
  int64_t weight_bytes_ = 0, step_bytes_ = 0;
  std::vector<std::vector<float>> taps_;
  std::vector<ActivationCounters> counters_;
  kernels::CpuInput input_;
  std::array<uint64_t, kernels::kQmatmulVariants> matmul_runs_{};
  uint64_t attention_runs_ = 0;
};

std::optional<kernels::AttentionArm> attention_arm_from_name(const std::string& name) {
  using kernels::AttentionArm;
  if (name == "auto") return AttentionArm::kAuto;
  if (name == "ref") return AttentionArm::kRef;
  if (name == "tiles") return AttentionArm::kTiles;
  if (name == "split") return AttentionArm::kSplit;
  return std::nullopt;
}

float* floats(const Act& act) { return static_cast<float*>(act.data); }

Status CpuOps::parse_arms() {
  // Under batch invariance one arm serves every number of rows; the few-token arm is the one that exists everywhere.
  if (options_.batch_invariant) matmul_arm_ = QmatmulArm::kRows;
  for (const auto& [op, arm] : options_.arms) {
    if (op == "qmatmul") {
      const auto found = kernels::qmatmul_arm_from_name(arm);
      if (!found)
        return fail(ErrorCode::kInvalidArgument,
                    "--arm qmatmul={}: there is no such arm; known: auto, ref, rows, panel", arm);
      matmul_arm_ = *found;
    } else if (op == "attention") {
      const auto found = attention_arm_from_name(arm);
      if (!found)
        return fail(ErrorCode::kInvalidArgument,
                    "--arm attention={}: there is no such arm; known: auto, ref, tiles, split", arm);
      attention_arm_ = *found;
    } else {
      return fail(ErrorCode::kInvalidArgument, "--arm {}={}: there is no such operation; known: qmatmul, attention", op,
                  arm);
    }
  }
  return {};
}

Result<LinearRef> CpuOps::load_linear(const std::string& name, std::span<const LinearPart> parts) {
  Linear linear{.name = name};
  bool any_bias = false;
  for (const LinearPart& part : parts) any_bias |= !part.bias.empty();
  for (const LinearPart& part : parts) {
    if (linear.cols == 0) linear.cols = part.matrix->cols();
    GALVANI_CHECK(part.matrix->cols() == linear.cols, "{}: parts of one product must read the same input", name);
    GALVANI_CHECK(part.bias.empty() || static_cast<int64_t>(part.bias.size()) == part.matrix->rows(), "{}: bias", name);
    GALVANI_TRY(auto packed, kernels::qmatmul_pack(*part.matrix, 0, part.matrix->rows()));
    weight_bytes_ += packed->packed_bytes;
    step_bytes_ += packed->packed_bytes;
    linear.rows += packed->rows;
    linear.segments.push_back(packed.get());
    linear.parts.push_back(std::move(packed));
    if (any_bias) {
      if (part.bias.empty())
        linear.bias.resize(static_cast<size_t>(linear.rows), 0.0f);
      else
        linear.bias.insert(linear.bias.end(), part.bias.begin(), part.bias.end());
    }
  }
  linears_.push_back(std::move(linear));
  const Linear& stored = linears_.back();
  return LinearRef{static_cast<int>(linears_.size()) - 1, stored.rows, stored.cols};
}

Result<EmbeddingRef> CpuOps::load_embedding(const quant::MatrixPtr& table) {
  tables_.push_back(table);
  return EmbeddingRef{static_cast<int>(tables_.size()) - 1, table->rows(), table->cols()};
}

Result<VectorRef> CpuOps::load_vector(std::span<const float> values) {
  vectors_.emplace_back(values.begin(), values.end());
  step_bytes_ += static_cast<int64_t>(values.size_bytes());
  weight_bytes_ += static_cast<int64_t>(values.size_bytes());
  return VectorRef{static_cast<int>(vectors_.size()) - 1, static_cast<int64_t>(values.size())};
}

Result<RopeRef> CpuOps::load_rope(const RopeSpec& rope) {
  ropes_.push_back(Rope{.spec = rope});
  return RopeRef{static_cast<int>(ropes_.size()) - 1};
}

void CpuOps::begin_step(const Batch& batch, State& state) {
  arena_.reset();
  batch_ = &batch;
  state_ = &state;
  status_ = {};
  layer_ = -1;
  for (Rope& rope : ropes_) rope.fresh = false;
  taps_.clear();
}

Act CpuOps::make(int64_t rows, int64_t cols) {
  Act act{arena_.allocate(static_cast<size_t>(rows * cols) * sizeof(float)), rows, cols, cols};
  if (options_.poison) std::fill_n(floats(act), rows * cols, std::numeric_limits<float>::quiet_NaN());
  return act;
}

Act CpuOps::normed(const Act& x, const std::optional<Norm>& norm) {
  if (!norm) return x;
  Act y = make(x.rows, x.cols);
  kernels::rms_norm(floats(x), x.rows, x.cols, x.stride, weights(norm->weight), params(*norm), floats(y), y.stride);
  return y;
}

void CpuOps::count(const Act& x) {
  const auto index = static_cast<size_t>(layer_ + 1);
  if (counters_.size() <= index) counters_.resize(index + 1);
  count_activation(floats(x), x.rows, x.cols, x.stride, options_.arithmetic, counters_[index]);
}

Act CpuOps::multiply(const Act& x, LinearRef ref) {
  const Linear& linear = linears_[static_cast<size_t>(ref.id)];
  GALVANI_CHECK(x.cols == linear.cols, "{}: input has {} columns, the matrix {}", linear.name, x.cols, linear.cols);
  if (options_.count_activations) count(x);
  Act y = make(x.rows, linear.rows);
  input_.prepare(floats(x), x.rows, x.cols, x.stride, options_.arithmetic);
  kernels::qmatmul_multi(linear.segments, input_, floats(y), y.stride, matmul_arm_);
  if (!linear.bias.empty()) kernels::add_bias(floats(y), y.rows, y.cols, y.stride, linear.bias.data());
  const auto plan = kernels::qmatmul_plan_for(*linear.segments.front(), x.rows, options_.arithmetic, matmul_arm_);
  ++matmul_runs_[static_cast<size_t>(plan.variant)];
  return y;
}

Act CpuOps::embed(EmbeddingRef ref, float scale) {
  const quant::MatrixSource& table = *tables_[static_cast<size_t>(ref.id)];
  Act x = make(batch_->rows(), ref.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const int32_t token = batch_->tokens[static_cast<size_t>(r)];
    if (token < 0 || token >= ref.rows) {
      status_ = fail(ErrorCode::kOutOfRange, "token id {} is outside the vocabulary of {} entries", token, ref.rows);
      std::fill_n(floats(x), x.rows * x.cols, 0.0f);
      return x;
    }
    if (auto done = table.dequant_rows(token, token + 1, floats(x) + r * x.stride); !done) {
      status_ = done;
      std::fill_n(floats(x), x.rows * x.cols, 0.0f);
      return x;
    }
  }
  if (scale != 1.0f) kernels::scale(floats(x), x.rows * x.cols, scale);
  return x;
}

Act CpuOps::linear(const Act& x, const std::optional<Norm>& norm, LinearRef w) { return multiply(normed(x, norm), w); }

const kernels::RopeTable& CpuOps::rope_table(RopeRef ref) {
  Rope& rope = ropes_[static_cast<size_t>(ref.id)];
  if (!rope.fresh) {
    kernels::rope_build(rope.table, batch_->positions.data(), batch_->rows(), rope.spec.inv_freq.data(),
                        2 * static_cast<int64_t>(rope.spec.inv_freq.size()), rope.spec.attention_scale);
    rope.fresh = true;
  }
  return rope.table;
}

std::vector<kernels::AttentionChunk> CpuOps::chunks(int group) const {
  std::vector<kernels::AttentionChunk> result;
  result.reserve(batch_->chunks.size());
  for (const Chunk& chunk : batch_->chunks)
    result.push_back({.row = chunk.row,
                      .count = chunk.count,
                      .first_position = chunk.first_position,
                      .blocks = state_->blocks(chunk.sequence, group).data()});
  return result;
}

Act CpuOps::attention_inputs(const Act& x, const std::optional<Norm>& norm, const AttentionLayer& layer) {
  Act qkv = linear(x, norm, layer.qkv);
  const int64_t q_width = int64_t{layer.heads} * layer.k_dim, k_width = int64_t{layer.kv_heads} * layer.k_dim;
  float* q = floats(qkv);
  float* k = q + q_width;
  float* v = k + k_width;
  const auto head_norm = [&](float* heads, int count, const std::optional<Norm>& head) {
    if (!head) return;
    for (int h = 0; h < count; ++h) {
      float* first = heads + int64_t{h} * layer.k_dim;
      kernels::rms_norm(first, qkv.rows, layer.k_dim, qkv.stride, weights(head->weight), params(*head), first,
                        qkv.stride);
    }
  };
  head_norm(q, layer.heads, layer.q_norm);
  head_norm(k, layer.kv_heads, layer.k_norm);
  if (layer.rope) {
    const kernels::RopeTable& table = rope_table(layer.rope);
    const auto pairing = ropes_[static_cast<size_t>(layer.rope.id)].spec.interleaved
                             ? kernels::RopePairing::kInterleaved
                             : kernels::RopePairing::kHalfSplit;
    kernels::rope_apply(table, pairing, q, 0, qkv.rows, layer.heads, layer.k_dim, qkv.stride);
    kernels::rope_apply(table, pairing, k, 0, qkv.rows, layer.kv_heads, layer.k_dim, qkv.stride);
  }
  kernels::kv_append(state_->kv_layer(layer.kv_group, layer.kv_index), chunks(layer.kv_group), k, qkv.stride, v,
                     qkv.stride);
  return Act{q, qkv.rows, q_width, qkv.stride};
}

Act CpuOps::attention(const Act& q, const AttentionLayer& layer) {
  Act out = make(q.rows, int64_t{layer.heads} * layer.v_dim);
  const kernels::AttentionParams attention_params{.heads = layer.heads,
                                                  .scale = layer.scale,
                                                  .window = layer.window,
                                                  .softcap = layer.softcap,
                                                  .sinks = weights(layer.sinks)};
  kernels::attention(state_->kv_layer(layer.kv_group, layer.kv_index), attention_params, chunks(layer.kv_group),
                     floats(q), q.stride, floats(out), out.stride, attention_arm_);
  ++attention_runs_;
  return out;
}

Act CpuOps::gated_mlp(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up, Activation activation) {
  const Act both = linear(x, norm, gate_up);
  const int64_t inner = both.cols / 2;
  Act out = make(both.rows, inner);
  if (activation == Activation::kSilu)
    kernels::swiglu(floats(both), floats(both) + inner, both.rows, inner, both.stride, both.stride, floats(out),
                    out.stride);
  else
    kernels::geglu_tanh(floats(both), floats(both) + inner, both.rows, inner, both.stride, both.stride, floats(out),
                        out.stride);
  return out;
}

void CpuOps::linear_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, Act& residual) {
  const Act z = multiply(y, w);
  if (post_norm)
    kernels::rms_norm_add(floats(z), z.rows, z.cols, z.stride, weights(post_norm->weight), params(*post_norm),
                          floats(residual), residual.stride);
  else
    kernels::add(floats(residual), floats(z), z.rows * z.cols);
}

Act CpuOps::logits(const Act& x, const std::optional<Norm>& norm, LinearRef head, float softcap) {
  const auto& rows = batch_->logit_rows;
  Act picked = make(static_cast<int64_t>(rows.size()), x.cols);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(floats(picked) + static_cast<int64_t>(i) * picked.stride, floats(x) + rows[i] * x.stride,
                static_cast<size_t>(x.cols) * sizeof(float));
  if (batch_->tap_hidden) tap(normed(x, norm));
  Act z = multiply(normed(picked, norm), head);
  if (softcap > 0) kernels::softcap(floats(z), z.rows * z.cols, softcap);
  return z;
}

void CpuOps::tap(const Act& x) {
  if (!batch_->tap_hidden) return;
  std::vector<float> copy(static_cast<size_t>(x.rows * x.cols));
  (void)read(x, copy.data());
  taps_.push_back(std::move(copy));
}

std::vector<std::pair<std::string, uint64_t>> CpuOps::kernels_run() const {
  std::vector<std::pair<std::string, uint64_t>> runs;
  for (size_t i = 0; i < matmul_runs_.size(); ++i) {
    if (matmul_runs_[i] > 0)
      runs.emplace_back(
          std::string("qmatmul.") + kernels::qmatmul_variant_name(static_cast<kernels::QmatmulVariant>(i)),
          matmul_runs_[i]);
  }
  if (attention_runs_ > 0) runs.emplace_back("attention", attention_runs_);
  return runs;
}

Result<std::vector<kernels::SampledToken>> CpuOps::sample(const Act& logits,
                                                          std::span<const kernels::RowSampling> rows) {
  return kernels::sample(floats(logits), logits.rows, logits.cols, logits.stride, rows);
}

Status CpuOps::read(const Act& act, float* out) {
  for (int64_t r = 0; r < act.rows; ++r)
    std::memcpy(out + r * act.cols, floats(act) + r * act.stride, static_cast<size_t>(act.cols) * sizeof(float));
  return {};
}

}  // namespace

kernels::Arithmetic cpu_default_arithmetic() {
  return cpu_caps().avx512_bf16 ? kernels::Arithmetic::kBF16 : kernels::Arithmetic::kF32;
}

Result<std::unique_ptr<Ops>> create_cpu_ops(const OpsOptions& options) {
  auto ops = std::make_unique<CpuOps>(options);
  GALVANI_TRY_VOID(ops->parse_arms());
  return std::unique_ptr<Ops>(std::move(ops));
}

}  // namespace galvani::exec
