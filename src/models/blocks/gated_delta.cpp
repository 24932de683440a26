#include "models/blocks/gated_delta.h"

#include <cmath>

#include "core/error.h"
#include "quant/row_select.h"

namespace galvani::models {
namespace {

using quant::RowRun;

/// Rows of a product grouped by key head, `sizes` rows a part in each group, put into the order of whole parts.
std::vector<RowRun> ungroup(int groups, const std::vector<int64_t>& sizes) {
  int64_t group_rows = 0;
  for (const int64_t size : sizes) group_rows += size;
  std::vector<RowRun> runs;
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    for (int g = 0; g < groups; ++g) runs.push_back({.first = g * group_rows + offset, .count = size});
    offset += size;
  }
  return runs;
}

Result<exec::LinearRef> load_inputs(Loader& loader, const std::string& prefix, const GatedDeltaSpec& spec) {
  const int64_t values = int64_t{spec.value_heads} * spec.v_dim, channels = spec.channels(), hidden = spec.hidden;
  const int group = spec.value_heads / spec.key_heads;
  quant::Checkpoint& checkpoint = loader.checkpoint();
  std::vector<exec::LinearPart> parts;
  const auto add = [&](const char* name, int64_t rows) -> Status {
    exec::LinearPart part;
    GALVANI_TRY(part.matrix, checkpoint.matrix(prefix + name, rows, hidden));
    parts.push_back(std::move(part));
    return {};
  };
  const auto add_grouped = [&](const char* name, int64_t rows, const std::vector<int64_t>& sizes) -> Status {
    GALVANI_TRY_VOID(add(name, rows));
    GALVANI_TRY(parts.back().matrix, quant::select_rows(parts.back().matrix, ungroup(spec.key_heads, sizes)));
    return {};
  };
  if (checkpoint.has(prefix + ".in_proj_qkvz.weight")) {
    const int64_t v = int64_t{group} * spec.v_dim;
    GALVANI_TRY_VOID(add_grouped(".in_proj_qkvz", channels + values, {spec.k_dim, spec.k_dim, v, v}));
  } else {
    GALVANI_TRY_VOID(add(".in_proj_qkv", channels));
    GALVANI_TRY_VOID(add(".in_proj_z", values));
  }
  if (checkpoint.has(prefix + ".in_proj_ba.weight")) {
    GALVANI_TRY_VOID(add_grouped(".in_proj_ba", 2 * int64_t{spec.value_heads}, {group, group}));
  } else {
    GALVANI_TRY_VOID(add(".in_proj_b", spec.value_heads));
    GALVANI_TRY_VOID(add(".in_proj_a", spec.value_heads));
  }
  return loader.ops().load_linear(prefix + ".in_proj", parts);
}

/// A vector whose values must be finite: one that is not would turn every later token of a sequence into NaN.
Result<std::vector<float>> finite_vector(Loader& loader, const std::string& name, int64_t size) {
  GALVANI_TRY(std::vector<float> values, loader.checkpoint().vector(name, size));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      return fail(ErrorCode::kCorrupt, "{}: {}[{}] is {}; the file is damaged", loader.checkpoint().path().string(),
                  name, i, values[i]);
  }
  return values;
}

Result<exec::VectorRef> load_finite(Loader& loader, const std::string& name, int64_t size) {
  GALVANI_TRY(const std::vector<float> values, finite_vector(loader, name, size));
  return loader.ops().load_vector(values);
}

/// [channels, kernel] of every layout as [kernel, channels].
Result<exec::VectorRef> load_conv(Loader& loader, const std::string& prefix, const GatedDeltaSpec& spec) {
  const std::string name = prefix + ".conv1d.weight";
  const int64_t channels = spec.channels(), kernel = spec.kernel;
  GALVANI_TRY(const Shape shape, loader.checkpoint().shape(name));
  if (shape != Shape({channels, 1, kernel}) && shape != Shape({channels, kernel, 1}) &&
      shape != Shape({channels, kernel}))
    return fail(ErrorCode::kCorrupt, "{}: tensor {} is {}; expected [{}, 1, {}], or [{}, {}, 1] in MLX files",
                loader.checkpoint().path().string(), name, shape.str(), channels, kernel, channels, kernel);
  GALVANI_TRY(const std::vector<float> rows, finite_vector(loader, name, channels * kernel));
  std::vector<float> taps(rows.size());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < kernel; ++j)
      taps[static_cast<size_t>(j * channels + c)] = rows[static_cast<size_t>(c * kernel + j)];
  }
  return loader.ops().load_vector(taps);
}

}  // namespace

Result<GatedDelta> GatedDelta::load(Loader& loader, const std::string& prefix, const GatedDeltaSpec& spec) {
  GatedDelta block;
  exec::GatedDeltaLayer& layer = block.layer_;
  GALVANI_TRY(layer.in, load_inputs(loader, prefix, spec));
  GALVANI_TRY(layer.conv, load_conv(loader, prefix, spec));
  GALVANI_TRY(layer.a_log, load_finite(loader, prefix + ".A_log", spec.value_heads));
  GALVANI_TRY(layer.dt_bias, load_finite(loader, prefix + ".dt_bias", spec.value_heads));
  // The one norm of these families that multiplies by w and not by 1 + w; it is never folded.
  GALVANI_TRY(layer.out_norm.weight, load_finite(loader, prefix + ".norm.weight", spec.v_dim));
  layer.out_norm.eps = spec.eps;
  GALVANI_TRY(block.out_, loader.linear({{prefix + ".out_proj", spec.hidden}}, int64_t{spec.value_heads} * spec.v_dim));
  layer.key_heads = spec.key_heads;
  layer.value_heads = spec.value_heads;
  layer.k_dim = spec.k_dim;
  layer.v_dim = spec.v_dim;
  layer.kernel = spec.kernel;
  layer.sigmoid_gate = spec.sigmoid_gate;
  layer.tiled_heads = spec.tiled_heads;
  layer.conv_slot = spec.conv_slot;
  layer.state_slot = spec.state_slot;
  return block;
}

void GatedDelta::forward(exec::Ops& ops, const std::optional<exec::Norm>& norm,
                         const std::optional<exec::Norm>& post_norm, exec::Act& residual) const {
  const exec::Act mixed = ops.gated_delta(residual, norm, layer_);
  ops.linear_add(mixed, out_, post_norm, residual);
}

}  // namespace galvani::models
