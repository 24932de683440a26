// Grouped-query attention of CudaOps: product, then one kernel for norms, clip, rope and append; then rows or tiles.
#include <algorithm>

#include "exec/cuda_ops_impl.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/rope/rope_cuda.h"

namespace galvani::exec {
namespace {

using kernels::AttentionCudaArm;
using kernels::StoreType;

bool same(const kernels::AttentionCudaShape& a, const kernels::AttentionCudaShape& b) {
  return a.heads == b.heads && a.kv_heads == b.kv_heads && a.k_dim == b.k_dim && a.v_dim == b.v_dim && a.kv == b.kv;
}

}  // namespace

const float* CudaOps::rope_table(RopeRef ref) {
  Rope& rope = ropes_[static_cast<size_t>(ref.id)];
  if (!rope.fresh) {
    rope.fresh = true;
    run([&] {
      return kernels::rope_table_cuda(stream_, {.positions = positions_,
                                                .inv_freq = rope.inv_freq.as<float>(),
                                                .rows = static_cast<int>(rows_),
                                                .pairs = static_cast<int>(rope.spec.inv_freq.size()),
                                                .attention_scale = rope.spec.attention_scale,
                                                .table = rope.table});
    });
  }
  return rope.table;
}

kernels::PagedKv CudaOps::pages(const AttentionLayer& layer) const {
  const kernels::KvLayer kv = state_->kv_layer(layer.kv_group, layer.kv_index);
  return {reinterpret_cast<const char*>(kv.k),
          reinterpret_cast<const char*>(kv.v),
          kv.k_page_stride,
          kv.v_page_stride,
          kv.kv_heads,
          kv.k_dim,
          kv.v_dim};
}

kernels::QkvArgs CudaOps::qkv_args(const Act& qkv, const Act& q, const AttentionLayer& layer) {
  const int64_t q_width = int64_t{layer.heads} * layer.k_dim;
  const int64_t k_width = layer.reuse_kv ? 0 : int64_t{layer.kv_heads} * layer.k_dim;
  kernels::QkvArgs args{.x = floats(qkv),
                        .x_stride = qkv.stride,
                        .k_column = static_cast<int>(q_width),
                        .v_column = static_cast<int>(layer.v_from_k ? q_width : q_width + k_width),
                        .bias = linear_of(layer.qkv).bias_data(),
                        .rows = static_cast<int>(qkv.rows),
                        .heads = layer.heads,
                        .append = !layer.reuse_kv,
                        .q_normed = layer.q_norm.has_value(),
                        .k_normed = layer.k_norm.has_value(),
                        .v_normed = layer.v_norm.has_value(),
                        .clip = layer.clip,
                        .q = q.data,
                        .q_stride = q.stride,
                        .kv = pages(layer),
                        .type = store_type(state_->options().kv_dtype),
                        .tables = mirror_.tables(layer.kv_group),
                        .positions = positions_,
                        .sequence = sequence_};
  if (layer.q_norm) args.q_norm = norm_weights(*layer.q_norm);
  if (layer.k_norm) args.k_norm = norm_weights(*layer.k_norm);
  if (layer.v_norm) args.v_norm = norm_weights(*layer.v_norm);
  if (layer.rope) {
    const RopeSpec& spec = ropes_[static_cast<size_t>(layer.rope.id)].spec;
    args.rope = rope_table(layer.rope);
    args.rope_pairs = static_cast<int>(spec.inv_freq.size());
    args.interleaved = spec.interleaved;
  }
  return args;
}

AttentionInputs CudaOps::attention_inputs(const Act& x, const std::optional<Norm>& norm, const AttentionLayer& layer) {
  if (stepping()) {
    const Act qkv = make(x.rows, linear_of(layer.qkv).rows, StoreType::kF32);
    if (step_qkv(x, norm, layer, qkv)) return {.q = qkv, .gate = {}};
  }
  const Act qkv = multiply(normed(x, norm, entering()), layer.qkv);
  const int64_t q_width = int64_t{layer.heads} * layer.k_dim;
  const int64_t k_width = layer.reuse_kv ? 0 : int64_t{layer.kv_heads} * layer.k_dim;
  const int64_t v_width = layer.reuse_kv || layer.v_from_k ? 0 : int64_t{layer.kv_heads} * layer.v_dim;
  const int64_t gate_width = layer.output_gate ? int64_t{layer.heads} * layer.v_dim : 0;
  const int64_t gate_column = q_width + k_width + v_width;
  GALVANI_CHECK(qkv.cols == gate_column + gate_width, "attention: the product has {} rows, its layer needs {}",
                qkv.cols, gate_column + gate_width);
  const Act q = make(qkv.rows, q_width, store_type(state_->options().kv_dtype));
  kernels::QkvArgs args = qkv_args(qkv, q, layer);
  if (layer.norm_whole) whole_norms(qkv, layer, args);
  run([&] { return kernels::qkv_finish_cuda(stream_, args); });
  AttentionInputs inputs{.q = q, .gate = {}};
  if (layer.output_gate) inputs.gate = columns_of(qkv, gate_column, gate_width);
  return inputs;
}

/// Norms over all heads at once, before qkv_finish, which norms a head: bias and norms in place. The gate's columns
/// keep theirs for attention().
void CudaOps::whole_norms(const Act& qkv, const AttentionLayer& layer, kernels::QkvArgs& args) {
  if (layer.v_from_k) return refuse("v from k's projection beside a norm over all heads");
  const int q_width = layer.heads * layer.k_dim, k_width = layer.kv_heads * layer.k_dim;
  if (args.bias != nullptr) {
    const int width = q_width + (layer.reuse_kv ? 0 : k_width + layer.kv_heads * layer.v_dim);
    run([&] {
      return kernels::finish_rows_cuda(stream_, {.x = floats(qkv),
                                                 .stride = qkv.stride,
                                                 .rows = static_cast<int>(qkv.rows),
                                                 .dim = width,
                                                 .bias = args.bias});
    });
    args.bias = nullptr;
  }
  const auto norm_columns = [&](const std::optional<Norm>& n, int column, int width) {
    if (!n) return;
    float* at = floats(qkv) + column;
    run([&] {
      return kernels::rms_norm_cuda(stream_, {.x = at,
                                              .x_stride = qkv.stride,
                                              .rows = static_cast<int>(qkv.rows),
                                              .dim = width,
                                              .norm = norm_weights(*n),
                                              .out = at,
                                              .out_stride = qkv.stride});
    });
  };
  norm_columns(layer.q_norm, 0, q_width);
  if (!layer.reuse_kv) norm_columns(layer.k_norm, args.k_column, k_width);
  args.q_normed = args.k_normed = false;
}

Act CudaOps::attention(const AttentionInputs& inputs, const AttentionLayer& layer) {
  Act out = make(inputs.q.rows, int64_t{layer.heads} * layer.v_dim, entering());
  if (one_kernel_ && one_kernel_->qkv) {
    const kernels::StepAttention phase = step_attention(layer, out);
    if (!step_takes([&](kernels::StepProgram& program) { return program.attention(phase); }))
      fail_step(
          fail(ErrorCode::kInternal, "attention of a step in one kernel was refused after its product was taken"));
    return out;
  }
  if (Status done = attend(inputs.q, layer, out); !done) fail_step(tl::unexpected<Error>(std::move(done).error()));
  if (!layer.output_gate) return out;
  const float* bias = linear_of(layer.qkv).bias_data();
  if (bias != nullptr) bias += layer.qkv.rows - inputs.gate.cols;
  return gate(inputs.gate, bias, out, nullptr, kernels::Gate::kSigmoid, {});
}

Status CudaOps::attend(const Act& q, const AttentionLayer& layer, Act& out) {
  const kernels::AttentionCudaShape shape{layer.heads, layer.kv_heads, layer.k_dim, layer.v_dim,
                                          state_->options().kv_dtype};
  const kernels::AttentionRowsArgs args{.kv = pages(layer),
                                        .tables = mirror_.tables(layer.kv_group),
                                        .score = {layer.scale, layer.softcap, layer.window},
                                        .rows = static_cast<int>(rows_),
                                        .heads = layer.heads,
                                        .q = q.data,
                                        .q_stride = q.stride,
                                        .positions = positions_,
                                        .sequence = sequence_,
                                        .settled = decode_,
                                        .sinks = weights(layer.sinks),
                                        .out = out.data,
                                        .out_stride = out.stride,
                                        .out_type = entering()};
  if (decode_) return attend_rows(shape, layer, args, row_positions_);
  int longest = 0;
  for (const Chunk& chunk : batch_->chunks) longest = std::max(longest, chunk.count);
  const auto tiles = kernels::plan_attention_tiles(device_->caps(), shape, longest);
  const bool tiled = !choice_.rows_only && tiles.kernel != nullptr;
  if (choice_.attention == AttentionCudaArm::kTiles && tiles.kernel == nullptr && longest >= kernels::kTileMinRows)
    return fail(ErrorCode::kUnsupported, "--arm attention=tiles cannot run here: {}", tiles.refusal);
  if (!tiled) return attend_rows(shape, layer, args, row_positions_);
  GALVANI_TRY_VOID(attend_tiles(shape, layer, args, tiles));
  if (single_rows_.empty()) return {};
  kernels::AttentionRowsArgs single = args;
  single.at = single_rows_device_;
  single.rows = static_cast<int>(single_rows_.size());
  return attend_rows(shape, layer, single, single_positions_);
}

Status CudaOps::fill_schedule(Schedule& entry, size_t index, std::span<const int> positions) {
  const auto rows = static_cast<int>(positions.size());
  const int segment = kernels::plan_attention_segment(device_->caps(), entry.shape, positions.data(), rows,
                                                      entry.window, options_.batch_invariant);
  const int most = kernels::attention_most_segments(
      device_->caps(), entry.shape, rows, static_cast<int>(state_->options().context), options_.batch_invariant);
  std::vector<int> table(positions.size() + 2);
  entry.segments = kernels::attention_schedule(positions, entry.window, segment, table.data());
  GALVANI_CHECK(!decode_ || entry.segments <= most, "{} segments, room for {}", entry.segments, most);
  if (!decode_) {
    GALVANI_TRY(entry.device, block_.put(stream_, std::span<const int>(table)));
    return {};
  }
  const size_t at = 3 * table_bytes(rows_) + index * table_bytes(rows_ + 2);
  entry.segments = most;  // what a graph must have room for
  GALVANI_TRY(entry.device, decode_block_.place(std::span<const int>(table), at));
  return {};
}

Result<CudaOps::Schedule*> CudaOps::schedule(const kernels::AttentionCudaShape& shape, int window,
                                             std::span<const int> positions) {
  size_t index = 0;
  while (index < schedules_.size() && (schedules_[index].window != window || !same(schedules_[index].shape, shape)))
    ++index;
  if (index == schedules_.size()) {
    if (index == kMaxSchedules)
      return fail(ErrorCode::kUnsupported, "more than {} kinds of attention layers in one model", kMaxSchedules);
    schedules_.push_back({.shape = shape, .window = window});
  }
  Schedule& entry = schedules_[index];
  if (entry.device != nullptr) return &entry;
  // A kind of layer that no step before this one had.
  GALVANI_TRY_VOID(fill_schedule(entry, index, positions));
  if (decode_) GALVANI_TRY_VOID(decode_block_.upload(stream_));
  if (mode_ == StepMode::kEager || mode_ == StepMode::kLook)
    GALVANI_TRY_VOID((decode_ ? decode_block_ : block_).end(stream_));
  return &entry;
}

Result<CudaOps::Tiles> CudaOps::tiles_of(const AttentionLayer& layer, const kernels::AttentionCudaChoice& choice) {
  for (const Tiles& known : tiles_)
    if (known.rows == choice.rows && known.window == layer.window) return known;
  std::vector<kernels::AttentionTileRows> tiles;
  for (const Chunk& chunk : batch_->chunks) {
    if (chunk.count < kernels::kTileMinRows) continue;
    kernels::attention_tiles(static_cast<int>(chunk.row), chunk.count, chunk.first_position, chunk.sequence,
                             choice.rows, tiles);
  }
  kernels::sort_attention_tiles(tiles, layer.window);
  Tiles made{.rows = choice.rows, .window = layer.window, .count = static_cast<int>(tiles.size())};
  GALVANI_TRY(made.device, block_.put(stream_, std::span<const kernels::AttentionTileRows>(tiles)));
  GALVANI_TRY_VOID(block_.end(stream_));
  tiles_.push_back(made);
  return made;
}

Status CudaOps::attend_rows(const kernels::AttentionCudaShape& shape, const AttentionLayer& layer,
                            kernels::AttentionRowsArgs args, std::span<const int> positions) {
  const auto decode = kernels::plan_attention_decode(device_->caps(), shape);
  if (choice_.attention == AttentionCudaArm::kDecode && decode.kernel == nullptr)
    return fail(ErrorCode::kUnsupported, "--arm attention=decode cannot run here: {}", decode.refusal);
  if (decode.kernel == nullptr || choice_.attention == AttentionCudaArm::kSimt) {
    const auto simt = kernels::plan_attention_simt(device_->caps(), shape);
    if (simt.kernel == nullptr)
      return fail(ErrorCode::kUnsupported, "attention with {} heads of {} and {}: {}; {}", layer.heads, layer.k_dim,
                  layer.v_dim, decode.refusal, simt.refusal);
    run([&] { return kernels::attention_simt_cuda(stream_, simt, args); });
    return {};
  }
  GALVANI_TRY(const Schedule* entry, schedule(shape, layer.window, positions));
  args.schedule = entry->device;
  const size_t parts = static_cast<size_t>(entry->segments) * static_cast<size_t>(layer.heads);
  args.part_out = static_cast<float*>(take(*arena_, parts * static_cast<size_t>(layer.v_dim) * 4));
  args.part_stat = static_cast<float*>(take(*arena_, parts * 8));
  run([&] { return kernels::attention_decode_cuda(stream_, decode, args); });
  return {};
}

Status CudaOps::attend_tiles(const kernels::AttentionCudaShape&, const AttentionLayer& layer,
                             const kernels::AttentionRowsArgs& rows, const kernels::AttentionCudaChoice& choice) {
  GALVANI_TRY(const Tiles tiles, tiles_of(layer, choice));
  const kernels::AttentionTilesArgs args{.kv = rows.kv,
                                         .tables = rows.tables,
                                         .score = rows.score,
                                         .heads = rows.heads,
                                         .q = rows.q,
                                         .q_stride = rows.q_stride,
                                         .tiles = tiles.device,
                                         .sinks = rows.sinks,
                                         .out = rows.out,
                                         .out_stride = rows.out_stride,
                                         .out_type = rows.out_type};
  run([&] { return kernels::attention_tiles_cuda(stream_, choice, args, tiles.count); });
  return {};
}

}  // namespace galvani::exec
