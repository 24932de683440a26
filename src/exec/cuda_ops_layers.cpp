// Products, norms, activations and the ends of a model on CudaOps.
#include "exec/activation_counter.h"
#include "exec/cuda_ops_impl.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/linear/linear_dense_cuda.h"
#include "kernels/norm/norm_cuda.h"

namespace galvani::exec {

using kernels::StoreType;

namespace {
kernels::Gate gate_of(Activation kind) {
  switch (kind) {
    case Activation::kSilu: return kernels::Gate::kSilu;
    case Activation::kGeluTanh: return kernels::Gate::kGeluTanh;
    case Activation::kSwigluClamped: return kernels::Gate::kSwigluClamped;
  }
  return kernels::Gate::kSilu;
}
}  // namespace

void CudaOps::flush() {
  if (pending_for_ == nullptr) return;
  kernels::NormArgs args{.x = pending_for_,
                         .x_stride = pending_.stride,
                         .rows = static_cast<int>(pending_.add.rows),
                         .dim = static_cast<int>(pending_.add.cols),
                         .add = floats(pending_.add),
                         .add_stride = pending_.add.stride,
                         .bias = pending_.bias};
  if (pending_.post_norm) args.post = true, args.post_norm = norm_weights(*pending_.post_norm);
  pending_for_ = nullptr;
  run([&] { return kernels::rms_norm_cuda(stream_, args); });
}

Act CudaOps::normed(const Act& x, const std::optional<Norm>& norm, StoreType type) {
  const bool joins =
      pending_for_ != nullptr && pending_for_ == x.data && x.cols == pending_.add.cols && x.stride == pending_.stride;
  if (!joins) flush();
  if (!norm && !joins && type_of(x) == type) return x;
  if (type_of(x) != StoreType::kF32) {  // a half-width activation that a norm or another type is asked of
    refuse("the norm of an activation that is not f32");
    return x;
  }
  Act y = make(x.rows, x.cols, type);
  kernels::NormArgs args{.x = floats(x),
                         .x_stride = x.stride,
                         .rows = static_cast<int>(x.rows),
                         .dim = static_cast<int>(x.cols),
                         .normalise = norm.has_value(),
                         .out = y.data,
                         .out_stride = y.stride,
                         .out_type = type};
  if (norm) args.norm = norm_weights(*norm);
  if (joins) {
    args.add = floats(pending_.add);
    args.add_stride = pending_.add.stride;
    args.bias = pending_.bias;
    if (pending_.post_norm) args.post = true, args.post_norm = norm_weights(*pending_.post_norm);
    pending_for_ = nullptr;
  }
  run([&] { return kernels::rms_norm_cuda(stream_, args); });
  return y;
}

void CudaOps::count(const Act& x) {
  if (type_of(x) != StoreType::kF32) return refuse("counting activations that are not f32");
  const auto index = static_cast<size_t>(layer_ + 1);
  if (index >= kMostCounted) return refuse("counting activations beyond layer 1023");
  if (counters_.size() <= index) counters_.resize(index + 1);
  counters_[index].values += static_cast<uint64_t>(x.rows * x.cols);
  if (x.rows == 0) return;
  run([&] {
    return kernels::count_values_cuda(stream_, {.x = floats(x),
                                                .stride = x.stride,
                                                .rows = static_cast<int>(x.rows),
                                                .dim = static_cast<int>(x.cols),
                                                .largest = largest_finite(options_.arithmetic),
                                                .counters = device_counters_.as<unsigned long long>() + 2 * index});
  });
}

Act CudaOps::multiply(const Act& x, LinearRef ref) {
  if (options_.count_activations) count(x);
  const CudaLinear& linear = linear_of(ref);
  GALVANI_CHECK(x.cols == linear.cols, "{}: input has {} columns, the matrix {}", linear.name, x.cols, linear.cols);
  const Act in = normed(x, std::nullopt, act_type_);
  Act y = make(x.rows, linear.rows, StoreType::kF32);
  if (x.rows == 0) return y;
  for (const CudaSegment& segment : linear.segments) {
    float* out = floats(y) + segment.first_row;
    run([&]() -> Status {
      if (segment.packed)
        return qmatmul_->run(stream_, *segment.packed, {in.data, x.rows, in.stride}, options_.arithmetic,
                             {.data = out, .stride = y.stride});
      return multiply_dense(segment, linear.cols, in, out, y.stride);
    });
  }
  return y;
}

const kernels::CudaMatrix* CudaOps::alone(const CudaLinear& linear) const {
  const bool one = linear.segments.size() == 1 && linear.segments[0].packed;
  return one && !options_.count_activations && linear.bias_data() == nullptr ? &*linear.segments[0].packed : nullptr;
}

bool CudaOps::multiply_gated(const Act& x, const CudaLinear& linear, const GatedActivation& activation, Act& y) {
  const kernels::CudaMatrix* const w = alone(linear);
  if (w == nullptr || x.rows == 0 || x.cols != linear.cols) return false;
  const kernels::CudaActivations in{x.data, x.rows, x.stride};
  kernels::CudaResult out{.stride = linear.rows / 2,
                          .as_x = true,
                          .gate = {1, gate_of(activation.kind), activation.alpha, activation.limit}};
  if (!qmatmul_->plan(*w, in, options_.arithmetic, out).ok) return false;
  y = make(x.rows, linear.rows / 2, act_type_);
  out.data = y.data;
  run([&] { return qmatmul_->run(stream_, *w, in, options_.arithmetic, out); });
  return true;
}

bool CudaOps::multiply_onto(const Act& x, const CudaLinear& linear, Act& residual) {
  const kernels::CudaMatrix* const w = alone(linear);
  if (w == nullptr || x.rows == 0 || x.cols != linear.cols || type_of(residual) != StoreType::kF32) return false;
  const Act in = normed(x, std::nullopt, act_type_);
  const kernels::CudaActivations from{in.data, in.rows, in.stride};
  const kernels::CudaResult out{.data = residual.data, .stride = residual.stride, .add = true};
  const kernels::QmatmulCudaPlan plan = qmatmul_->plan(*w, from, options_.arithmetic, out);
  if (!plan.ok || !plan.adds_cheaply()) return false;
  flush();
  run([&] { return qmatmul_->run(stream_, *w, from, options_.arithmetic, out); });
  return true;
}

/// cuBLASLt where the weights have the activations' type, else the plain product: also under batch invariance, since
/// cuBLASLt chooses its algorithm by the number of rows.
Status CudaOps::multiply_dense(const CudaSegment& segment, int64_t cols, const Act& x, float* out, int64_t out_stride) {
  const bool blas = segment.type == act_type_ && cols % 8 == 0 && !options_.batch_invariant;
  device_->trace_plan([&] {
    constexpr const char* kTypes[] = {"f32", "f16", "bf16"};
    return fmt::format("dense product {} tokens x [{}, {}], {} by {}: {}", x.rows, segment.rows, cols,
                       kTypes[static_cast<int>(act_type_)], kTypes[static_cast<int>(segment.type)],
                       blas                       ? "cuBLASLt"
                       : options_.batch_invariant ? "kernel=linear_dense_sm70 (batch invariance)"
                       : cols % 8 > 0             ? "kernel=linear_dense_sm70 (cuBLASLt: columns are no multiple of 8)"
                                      : "kernel=linear_dense_sm70 (cuBLASLt: both sides must have one type)");
  });
  if (blas) {
    const DType type = act_type_ == StoreType::kBF16 ? DType::kBF16 : DType::kF16;
    return blas_->multiply(stream_,
                           {.m = x.rows,
                            .n = segment.rows,
                            .k = cols,
                            .x = x.data,
                            .x_stride = x.stride,
                            .w = segment.dense.data(),
                            .w_stride = cols,
                            .y = out,
                            .y_stride = out_stride,
                            .in = type,
                            .out = DType::kF32},
                           blas_workspace_.data());
  }
  return kernels::linear_dense_cuda(stream_, {.x = x.data,
                                              .x_type = act_type_,
                                              .x_stride = x.stride,
                                              .w = segment.dense.data(),
                                              .w_type = segment.type,
                                              .y = out,
                                              .y_stride = out_stride,
                                              .rows = static_cast<int>(x.rows),
                                              .n = static_cast<int>(segment.rows),
                                              .k = static_cast<int>(cols)});
}

Act CudaOps::embed(EmbeddingRef ref, float scale) {
  const CudaTable& table = tables_[static_cast<size_t>(ref.id)];
  Act x = make(rows_, ref.cols, StoreType::kF32);
  for (const int32_t token : batch_->tokens) {
    if (token < 0 || token >= ref.rows)
      fail_step(fail(ErrorCode::kOutOfRange, "token id {} is outside the vocabulary of {} entries", token, ref.rows));
  }
  run([&] {
    return kernels::embed_cuda(stream_, {.tokens = tokens_,
                                         .rows = static_cast<int>(rows_),
                                         .dim = static_cast<int>(ref.cols),
                                         .table = table.codes.data(),
                                         .type = table.type,
                                         .bits = table.bits,
                                         .group = table.group,
                                         .scales = table.scales.data(),
                                         .biases = table.biases.data(),
                                         .scale = scale,
                                         .out = floats(x)});
  });
  return x;
}

Act CudaOps::linear(const Act& x, const std::optional<Norm>& norm, LinearRef w) {
  step_cannot("a product of its own");
  Act y = multiply(normed(x, norm, entering()), w);
  if (const float* bias = linear_of(w).bias_data(); bias != nullptr && y.rows > 0)
    run([&] {
      return kernels::finish_rows_cuda(stream_, {.x = floats(y),
                                                 .stride = y.stride,
                                                 .rows = static_cast<int>(y.rows),
                                                 .dim = static_cast<int>(y.cols),
                                                 .bias = bias});
    });
  return y;
}

Act CudaOps::gate(const Act& gate, const float* gate_bias, const Act& up, const float* up_bias, kernels::Gate kind,
                  const GatedActivation& activation) {
  Act out = make(gate.rows, gate.cols, entering());
  if (gate.rows == 0) return out;
  run([&] {
    return kernels::gated_cuda(stream_, {.gate = floats(gate),
                                         .up = up.data,
                                         .up_type = type_of(up),
                                         .gate_stride = gate.stride,
                                         .up_stride = up.stride,
                                         .gate_bias = gate_bias,
                                         .up_bias = up_bias,
                                         .rows = static_cast<int>(gate.rows),
                                         .dim = static_cast<int>(gate.cols),
                                         .kind = kind,
                                         .alpha = activation.alpha,
                                         .limit = activation.limit,
                                         .out = out.data,
                                         .out_stride = out.stride,
                                         .out_type = entering()});
  });
  return out;
}

Act CudaOps::activate(const Act& gate_act, const Act& up, const GatedActivation& activation) {
  step_cannot("an activation of its own");
  GALVANI_CHECK(gate_act.rows == up.rows && gate_act.cols == up.cols, "gate is [{}, {}], up [{}, {}]", gate_act.rows,
                gate_act.cols, up.rows, up.cols);
  if (type_of(gate_act) != StoreType::kF32) refuse("a gate that is not f32");
  return gate(gate_act, nullptr, up, nullptr, gate_of(activation.kind), activation);
}

Act CudaOps::gated_mlp(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up,
                       const GatedActivation& activation) {
  if (Act taken; step_gated(x, norm, gate_up, gate_of(activation.kind), activation, taken)) return taken;
  const Act in = normed(x, norm, entering());
  if (Act y; multiply_gated(in, linear_of(gate_up), activation, y)) return y;
  const Act both = multiply(in, gate_up);
  const int64_t inner = both.cols / 2;
  const float* bias = linear_of(gate_up).bias_data();
  const Act up = columns_of(both, inner, inner);
  return gate(columns_of(both, 0, inner), bias, up, bias == nullptr ? nullptr : bias + inner, gate_of(activation.kind),
              activation);
}

void CudaOps::linear_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, Act& residual) {
  if (step_add(y, w, post_norm, residual)) return;
  if (!post_norm && multiply_onto(y, linear_of(w), residual)) return;
  Act z = multiply(y, w);
  flush();
  pending_ = {z, linear_of(w).bias_data(), post_norm, residual.stride};
  pending_for_ = floats(residual);
}

void CudaOps::add(const Act& y, const std::optional<Norm>& post_norm, Act& residual) {
  step_cannot("an addition of its own");
  if (type_of(y) != StoreType::kF32) return refuse("adding an activation that is not f32");
  flush();
  pending_ = {y, nullptr, post_norm, residual.stride};
  pending_for_ = floats(residual);
}

Act CudaOps::norm(const Act& x, const Norm& norm) {
  step_cannot("a norm of its own");
  return normed(x, norm, StoreType::kF32);
}

Act CudaOps::columns(const Act& x, int64_t first, int64_t count) {
  step_cannot("columns of an activation");
  flush();
  return columns_of(x, first, count);
}

void CudaOps::scale(Act& x, float factor) {
  step_cannot("a factor");
  flush();
  if (type_of(x) != StoreType::kF32) return refuse("scaling an activation that is not f32");
  run([&] {
    return kernels::finish_rows_cuda(stream_, {.x = floats(x),
                                               .stride = x.stride,
                                               .rows = static_cast<int>(x.rows),
                                               .dim = static_cast<int>(x.cols),
                                               .scale = factor});
  });
}

/// norm(x) of the rows that logits are asked of.
Act CudaOps::logit_rows(const Act& x, const std::optional<Norm>& norm) {
  if (decode_) return normed(x, norm, entering());  // every row, in order
  flush();
  const auto wanted = static_cast<int64_t>(batch_->logit_rows.size());
  const Act picked = make(wanted, x.cols, entering());
  kernels::NormArgs args{.x = floats(x),
                         .x_stride = x.stride,
                         .rows = static_cast<int>(wanted),
                         .dim = static_cast<int>(x.cols),
                         .normalise = norm.has_value(),
                         .out = picked.data,
                         .out_stride = picked.stride,
                         .out_type = entering(),
                         .gather = logit_rows_};
  if (norm) args.norm = norm_weights(*norm);
  if (wanted > 0) run([&] { return kernels::rms_norm_cuda(stream_, args); });
  return picked;
}

Act CudaOps::logits(const Act& x, const std::optional<Norm>& norm, LinearRef head, float softcap) {
  const auto wanted = static_cast<int64_t>(batch_->logit_rows.size());
  if (batch_->tap_hidden) tap(normed(x, norm, StoreType::kF32));
  Act z;
  bool taken = false;
  if (stepping()) {
    z = make(x.rows, linear_of(head).rows, StoreType::kF32);
    taken = step_product(x, norm, head, {.y = z.data, .output = kernels::StepOutput::kStore});
  }
  if (!taken) z = multiply(logit_rows(x, norm), head);
  const float* bias = linear_of(head).bias_data();
  if (z.rows > 0 && (softcap > 0 || bias != nullptr))
    run([&] {
      return kernels::finish_rows_cuda(stream_, {.x = floats(z),
                                                 .stride = z.stride,
                                                 .rows = static_cast<int>(z.rows),
                                                 .dim = static_cast<int>(z.cols),
                                                 .bias = bias,
                                                 .cap = softcap});
    });
  z.rows = wanted;  // a graph's other rows are nobody's
  return z;
}

void CudaOps::tap(const Act& x) {
  if (!batch_->tap_hidden) return;
  flush();
  std::vector<float> copy(static_cast<size_t>(x.rows * x.cols));
  run([&] { return read(x, copy.data()); });
  taps_.push_back(std::move(copy));
}

Act CudaOps::latent_attention(const Act& x, const std::optional<Norm>&, const LatentAttentionLayer& layer) {
  refuse("latent attention");
  return make(x.rows, int64_t{layer.heads} * layer.v_dim, act_type_);
}

Act CudaOps::gated_delta(const Act& x, const std::optional<Norm>&, const GatedDeltaLayer& layer) {
  refuse("the gated delta net");
  return make(x.rows, int64_t{layer.value_heads} * layer.v_dim, act_type_);
}

Act CudaOps::moe(const Act& x, const std::optional<Norm>&, const MoeLayer&) {
  refuse("a mixture of experts");
  return make(x.rows, x.cols, StoreType::kF32);
}

}  // namespace galvani::exec
