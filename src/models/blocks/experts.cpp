#include "models/blocks/experts.h"

#include <fmt/format.h>

#include "core/error.h"
#include "quant/row_select.h"
#include "quant/transpose.h"

namespace galvani::models {
namespace {

using exec::LinearPart;
using Items = std::vector<std::vector<LinearPart>>;  // one an expert

/// Each expert's products, before they are handed to an Ops.
struct Parts {
  Items gate_up, down;
};

/// A stack's biases [E, rows], cut up; one empty vector an expert without `wanted`.
Result<std::vector<std::vector<float>>> biases(Loader& loader, const std::string& name, int count, int64_t rows,
                                               bool wanted) {
  std::vector<std::vector<float>> result(static_cast<size_t>(count));
  if (!wanted) return result;
  GALVANI_TRY(const std::vector<float> all, loader.checkpoint().vector(name, count * rows));
  for (size_t e = 0; e < result.size(); ++e)
    result[e].assign(all.begin() + static_cast<std::ptrdiff_t>(static_cast<int64_t>(e) * rows),
                     all.begin() + static_cast<std::ptrdiff_t>(static_cast<int64_t>(e + 1) * rows));
  return result;
}

/// A stack is three-dimensional with the experts in front (gpt-oss' blocks are four-dimensional).
Status check_stack(Loader& loader, const std::string& tensor, int count) {
  GALVANI_TRY(const Shape shape, loader.checkpoint().shape(tensor));
  if (shape.rank() < 3 || shape[0] != count)
    return fail(ErrorCode::kCorrupt, "{}: tensor {} is {}; expected a stack of {} experts, [{}, rows, columns]",
                loader.checkpoint().path().string(), tensor, shape.str(), count, count);
  return {};
}

/// "name.weight", "name" or "name_blocks", whichever the checkpoint has; empty when none.
std::string stack_tensor(Loader& loader, const std::string& module) {
  for (const char* ending : {".weight", "", "_blocks"})
    if (loader.checkpoint().has(module + ending)) return module + ending;
  return {};
}

/// One projection's stack [E, rows, cols], added to each expert's parts.
Status add_stack(Loader& loader, const ExpertsSpec& spec, const std::string& module, int64_t rows, int64_t cols,
                 Items& items) {
  GALVANI_TRY_VOID(check_stack(loader, module + ".weight", spec.count));
  GALVANI_TRY(const quant::MatrixPtr stack, loader.checkpoint().matrix(module, spec.count * rows, cols));
  GALVANI_TRY(auto bias, biases(loader, module + ".bias", spec.count, rows, spec.bias));
  for (size_t e = 0; e < items.size(); ++e) {
    LinearPart part{.bias = std::move(bias[e])};
    GALVANI_TRY(part.matrix, quant::select_rows(stack, {{static_cast<int64_t>(e) * rows, rows}}));
    items[e].push_back(std::move(part));
  }
  return {};
}

Status load_stacks(Loader& loader, const ExpertsSpec& spec, const std::string& where, Parts& parts) {
  GALVANI_TRY_VOID(add_stack(loader, spec, where + ".gate_proj", spec.inner, spec.hidden, parts.gate_up));
  GALVANI_TRY_VOID(add_stack(loader, spec, where + ".up_proj", spec.inner, spec.hidden, parts.gate_up));
  return add_stack(loader, spec, where + ".down_proj", spec.hidden, spec.inner, parts.down);
}

/// Expert e of a stack [E, rows, cols], or of [E, cols, rows] turned around.
Result<quant::MatrixPtr> expert_of(const quant::MatrixPtr& stack, size_t e, int64_t rows, int64_t cols, bool turned) {
  const auto at = static_cast<int64_t>(e);
  return turned ? quant::transpose_rows(stack, at * cols, cols) : quant::select_rows(stack, {{at * rows, rows}});
}

Result<quant::MatrixPtr> fused_stack(Loader& loader, const ExpertsSpec& spec, const std::string& module, int64_t rows,
                                     int64_t cols, bool turned) {
  GALVANI_TRY_VOID(check_stack(loader, stack_tensor(loader, module), spec.count));
  return turned ? loader.checkpoint().matrix(module, spec.count * cols, rows)
                : loader.checkpoint().matrix(module, spec.count * rows, cols);
}

Status load_fused(Loader& loader, const ExpertsSpec& spec, Parts& parts) {
  const std::string where = spec.prefix + ".experts";
  const int64_t inner = spec.inner, both = 2 * inner, hidden = spec.hidden;
  const bool turned = spec.input_major && !loader.checkpoint().has(where + ".gate_up_proj_blocks");
  GALVANI_TRY(const auto gate_up, fused_stack(loader, spec, where + ".gate_up_proj", both, hidden, turned));
  GALVANI_TRY(const auto down, fused_stack(loader, spec, where + ".down_proj", hidden, inner, turned));
  GALVANI_TRY(const auto gate_up_bias, biases(loader, where + ".gate_up_proj_bias", spec.count, both, spec.bias));
  GALVANI_TRY(auto down_bias, biases(loader, where + ".down_proj_bias", spec.count, hidden, spec.bias));
  for (size_t e = 0; e < parts.down.size(); ++e) {
    LinearPart gate_up_part{.bias = gate_up_bias[e]}, down_part{.bias = std::move(down_bias[e])};
    GALVANI_TRY(gate_up_part.matrix, expert_of(gate_up, e, both, hidden, turned));
    GALVANI_TRY(down_part.matrix, expert_of(down, e, hidden, inner, turned));
    if (spec.interleaved) {
      GALVANI_TRY(gate_up_part.matrix, quant::select_rows(gate_up_part.matrix, {{0, inner, 2}, {1, inner, 2}}));
      for (size_t i = 0; i < gate_up_part.bias.size(); ++i) {
        const size_t half = static_cast<size_t>(inner);
        gate_up_part.bias[i] = gate_up_bias[e][i < half ? 2 * i : 2 * (i - half) + 1];
      }
    }
    parts.gate_up[e].push_back(std::move(gate_up_part));
    parts.down[e].push_back(std::move(down_part));
  }
  return {};
}

Status load_each(Loader& loader, const ExpertsSpec& spec, Parts& parts) {
  const auto add = [&](const std::string& module, int64_t rows, int64_t cols, std::vector<LinearPart>& to) -> Status {
    LinearPart part;
    GALVANI_TRY(part.matrix, loader.checkpoint().matrix(module, rows, cols));
    if (spec.bias) {
      GALVANI_TRY(part.bias, loader.checkpoint().vector(module + ".bias", rows));
    }
    to.push_back(std::move(part));
    return {};
  };
  for (size_t e = 0; e < parts.down.size(); ++e) {
    const std::string expert = fmt::format("{}.experts.{}.", spec.prefix, e);
    GALVANI_TRY_VOID(add(expert + spec.gate, spec.inner, spec.hidden, parts.gate_up[e]));
    GALVANI_TRY_VOID(add(expert + spec.up, spec.inner, spec.hidden, parts.gate_up[e]));
    GALVANI_TRY_VOID(add(expert + spec.down, spec.hidden, spec.inner, parts.down[e]));
  }
  return {};
}

Status find_experts(Loader& loader, const ExpertsSpec& spec, Parts& parts) {
  for (const char* where : {".switch_mlp", ".experts.switch_glu", ".experts"})
    if (loader.checkpoint().has(spec.prefix + where + ".gate_proj.weight"))
      return load_stacks(loader, spec, spec.prefix + where, parts);
  if (!stack_tensor(loader, spec.prefix + ".experts.gate_up_proj").empty()) return load_fused(loader, spec, parts);
  if (loader.checkpoint().has(fmt::format("{}.experts.0.{}.weight", spec.prefix, spec.gate)))
    return load_each(loader, spec, parts);
  return fail(ErrorCode::kNotFound,
              "{}: no experts under {}; looked for switch_mlp.gate_proj, experts.switch_glu.gate_proj, "
              "experts.gate_proj, experts.gate_up_proj (also as _blocks) and experts.0.{}",
              loader.checkpoint().path().string(), spec.prefix, spec.gate);
}

}  // namespace

Result<Experts> load_experts(Loader& loader, const ExpertsSpec& spec) {
  Parts parts;
  parts.gate_up.resize(static_cast<size_t>(spec.count));
  parts.down.resize(static_cast<size_t>(spec.count));
  GALVANI_TRY_VOID(find_experts(loader, spec, parts));
  Experts experts;
  GALVANI_TRY(experts.gate_up, loader.ops().load_stack(spec.prefix + ".experts.gate_up", parts.gate_up, spec.active));
  GALVANI_TRY(experts.down, loader.ops().load_stack(spec.prefix + ".experts.down", parts.down, spec.active));
  return experts;
}

}  // namespace galvani::models
