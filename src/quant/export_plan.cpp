#include "quant/export_plan.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "formats/quoted.h"
#include "quant/mlx_quantization.h"

namespace galvani::quant {
namespace {

using formats::quote;

struct Family {
  const char* model_type;
  bool wrapped = false;    ///< names stand under language_model.
  bool delta_net = false;  ///< norms and convolution are stored differently
};
constexpr Family kFamilies[] = {
    {"llama"},
    {"qwen2"},
    {"qwen3"},
    {"qwen3_moe"},
    {"olmoe"},
    {"mixtral"},
    {"gemma3"},
    {"gemma3_text"},
    {"gemma4"},
    {"gemma4_text"},
    {"gemma4_unified"},
    {"gemma4_unified_text"},
    {"deepseek_v3"},
    {"qwen3_next", false, true},
    {"qwen3_5", true, true},
    {"qwen3_5_text", true, true},
    {"qwen3_5_moe", true, true},
    {"qwen3_5_moe_text", true, true},
};

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

ModuleRole role_of(const std::string& module, bool tied) {
  if (ends_with_any(module, {".mlp.gate", ".shared_expert_gate", ".block_sparse_moe.gate", ".router", ".router.proj"}))
    return ModuleRole::kRouter;
  if (module.ends_with("lm_head") || (tied && module.ends_with("embed_tokens"))) return ModuleRole::kHead;
  if (module.find(".self_attn.") != module.npos || module.find(".linear_attn.") != module.npos)
    return ModuleRole::kAttention;
  return ModuleRole::kOther;
}

/// "P.experts.12.w1" → {"P", 12, "gate_proj"}.
struct ExpertName {
  std::string prefix;
  int64_t index = 0;
  std::string projection;
};
std::optional<ExpertName> expert_name(const std::string& module) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = module.find(kExperts);
  if (at == module.npos) return std::nullopt;
  const size_t number = at + kExperts.size(), dot = module.find('.', number);
  if (dot == module.npos || dot == number || dot - number > 6) return std::nullopt;
  ExpertName name{module.substr(0, at), 0, module.substr(dot + 1)};
  for (size_t i = number; i < dot; ++i) {
    if (module[i] < '0' || module[i] > '9') return std::nullopt;
    name.index = 10 * name.index + (module[i] - '0');
  }
  if (name.projection == "w1") name.projection = "gate_proj";
  if (name.projection == "w2") name.projection = "down_proj";
  if (name.projection == "w3") name.projection = "up_proj";
  return name;
}

class Planner {
 public:
  Planner(Checkpoint& checkpoint, const Recipe& recipe) : checkpoint_(checkpoint), recipe_(recipe) {}

  Result<ExportPlan> run() {
    GALVANI_TRY_VOID(begin());
    GALVANI_TRY(auto book, RecipeBook::create(recipe_, plan_.dtype));
    book_.emplace(std::move(book));
    for (const std::string& name : checkpoint_.unused()) GALVANI_TRY_VOID(place(name));
    for (auto& [module, experts] : experts_) GALVANI_TRY_VOID(stack(module, experts));
    GALVANI_TRY_VOID(book_->check_overrides());
    if (plan_.matrices.empty())
      return fail(ErrorCode::kNotFound, "{} holds no weight matrix", checkpoint_.path().string());
    const auto by_name = [](const auto& a, const auto& b) { return a.module < b.module; };
    std::sort(plan_.matrices.begin(), plan_.matrices.end(), by_name);
    GALVANI_TRY(plan_.config, export_config(checkpoint_.config(), tied_));
    add_quantization();
    return std::move(plan_);
  }

 private:
  Status begin() {
    const auto& config = checkpoint_.config();
    const auto said_type = config.find("model_type");
    const std::string type =
        said_type != config.end() && said_type->is_string() ? said_type->get<std::string>() : std::string();
    const auto* family =
        std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Family& f) { return type == f.model_type; });
    if (type == "gpt_oss")
      return fail(
          ErrorCode::kUnsupported,
          "{}: gpt_oss is not quantized: its gate and up rows alternate within one stack of experts, with biases, "
          "and there is no rule for splitting them into MLX's gate_proj and up_proj. The published files hold "
          "the experts, nearly all of the model, in 4.25 bits (MXFP4) already, and run as they are",
          checkpoint_.path().string());
    if (family == std::end(kFamilies)) {
      std::string known;
      for (const auto& name : exportable_families()) known += (known.empty() ? "" : ", ") + name;
      return fail(ErrorCode::kUnsupported,
                  "{}: model_type {} cannot be written as an MLX checkpoint; those that can: {}",
                  checkpoint_.path().string(), quote(type), known);
    }
    family_ = *family;
    gguf_ = checkpoint_.format() == CheckpointFormat::kGguf;
    if (gguf_ && (family_.delta_net || type.starts_with("gemma4") || type == "deepseek_v3"))
      return fail(ErrorCode::kUnsupported,
                  "{}: quantizing {} from GGUF is not supported; give the Hugging Face folder that it was made from",
                  checkpoint_.path().string(), type);
    plan_.dtype = DType::kBF16;
    for (const char* key : {"torch_dtype", "dtype"}) {
      const auto said = config.find(key);
      if (said == config.end() || !said->is_string()) continue;
      for (const auto& [name, type_] :
           {std::pair{"float32", DType::kF32}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16}})
        if (said->get<std::string>() == name) plan_.dtype = type_;
    }
    if (recipe_.dtype) plan_.dtype = *recipe_.dtype;
    GALVANI_TRY(quantization_, parse_mlx_quantization(config, (checkpoint_.path() / "config.json").string()));
    const auto tied = config.find("tie_word_embeddings");
    const bool head = checkpoint_.has("lm_head.weight");
    tied_ = tied != config.end() && tied->is_boolean() ? tied->get<bool>() : !head;
    if (!tied_ && !head)
      return fail(ErrorCode::kNotFound, "{} has no lm_head.weight, and config.json says that the head is not tied",
                  checkpoint_.path().string());
    const bool gemma3 = type == "gemma3" || type == "gemma3_text";
    const bool folded = checkpoint_.norms_folded();
    norm_add_ = family_.delta_net && !folded ? 1.0f : gemma3 && folded ? -1.0f : 0.0f;
    return {};
  }

  std::string out_name(const std::string& name) const { return family_.wrapped ? "language_model." + name : name; }

  /// Columns of the matrix `module`, which config.json and the packed shapes must agree on.
  Result<std::pair<int64_t, int64_t>> dims(const std::string& module, const std::string& name) const {
    GALVANI_TRY(const Shape shape, checkpoint_.shape(name));
    if (shape.rank() < 2)
      return fail(ErrorCode::kCorrupt, "{} is {}; a matrix has two dimensions", quote(name), shape.str());
    int64_t rows = 1, cols = shape[shape.rank() - 1];
    for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
    if (!checkpoint_.has(module + ".scales")) return std::pair{rows, cols};
    GALVANI_TRY(const Shape scales, checkpoint_.shape(module + ".scales"));
    const auto* said = quantization_.of(module);
    const int64_t groups = scales.rank() == 0 ? 0 : scales[scales.rank() - 1];
    if (said == nullptr || said->off || groups > (int64_t{1} << 40) || cols > (int64_t{1} << 40) ||
        cols * 32 != groups * said->group * said->bits)
      return fail(ErrorCode::kCorrupt,
                  "{}: config.json does not tell the width of {}, whose codes are {} and scales {}; add its bits and "
                  "group_size to quantization",
                  checkpoint_.path().string(), quote(module), shape.str(), scales.str());
    return std::pair{rows, groups * said->group};
  }

  bool kept_whole(const std::string& module) const {
    // mlx-lm's router of this family is no Linear, and it splits kv_b_proj while loading.
    return std::string_view(family_.model_type) == "deepseek_v3" && ends_with_any(module, {".mlp.gate", ".kv_b_proj"});
  }

  void add_matrix(const std::string& module, Shape shape, std::vector<ExportPart> parts) {
    ExportMatrix matrix{.module = out_name(module),
                        .shape = std::move(shape),
                        .parts = std::move(parts),
                        .format = {},
                        .dtype = plan_.dtype};
    if (!kept_whole(module))
      matrix.format = book_->format(module, role_of(module, tied_), matrix.shape[matrix.shape.rank() - 1]);
    plan_.matrices.push_back(std::move(matrix));
  }

  Status place(const std::string& name) {
    const bool weight = name.ends_with(".weight");
    const std::string module = weight ? name.substr(0, name.size() - 7) : name;
    for (const char* part : {".scales", ".biases"})
      if (name.ends_with(part) && checkpoint_.has(name.substr(0, name.size() - 7) + ".weight")) return {};
    if (name.ends_with(".weight_scale_inv")) return {};  // part of an fp8 matrix
    if (name == "rope_freqs.weight")
      return fail(ErrorCode::kUnsupported,
                  "{} holds Llama 3's rope factors as a tensor, which an MLX checkpoint cannot; quantize the Hugging "
                  "Face folder instead",
                  checkpoint_.path().string());
    if (tied_ && module == "lm_head") {
      plan_.left_out.push_back(name);
      return {};
    }
    GALVANI_TRY(const Shape shape, checkpoint_.shape(name));
    if (module.ends_with(".experts.gate_up_proj") || module.ends_with(".experts.down_proj")) return fused(module, name);
    if (weight && shape.rank() >= 2 && !module.ends_with("conv1d")) {
      GALVANI_TRY(const auto size, dims(module, name));
      const auto [rows, cols] = size;
      if (const auto expert = expert_name(module)) {
        experts_[expert->prefix + ".switch_mlp." + expert->projection][expert->index] = {module, rows, cols, 0, rows};
        return {};
      }
      std::vector<int64_t> out = shape.dims();
      out.back() = cols;
      // GGUF stacks experts by projection, as mlx-lm does, under Hugging Face's word for them.
      std::string target = module;
      if (const size_t at = module.rfind(".experts."); gguf_ && shape.rank() == 3 && at != std::string::npos)
        target.replace(at, std::string_view(".experts.").size(), ".switch_mlp.");
      add_matrix(target, Shape(std::move(out)), {{module, rows, cols, 0, rows}});
      return {};
    }
    return vector(name, shape);
  }

  Status vector(const std::string& name, const Shape& shape) {
    ExportVector out{.name = out_name(name), .source = name, .shape = shape, .add = 0, .dtype = plan_.dtype};
    if (name.ends_with("conv1d.weight") && shape.rank() == 3 && shape[1] == 1)
      out.shape = Shape({shape[0], shape[2], 1});
    // mlx-lm leaves these in the type they have, which may be wider than the rest's.
    if (ends_with_any(name, {"A_log", "e_score_correction_bias"})) {
      GALVANI_TRY(const int64_t count, shape.elements());
      GALVANI_TRY(const auto values, checkpoint_.vector(name, count));
      if (std::any_of(values.begin(), values.end(), [&](float v) { return round_to(plan_.dtype, v) != v; }))
        out.dtype = DType::kF32;
    }
    if (norm_add_ != 0 && shape.rank() == 1 && zero_centred_norm(name)) {
      out.add = norm_add_;
      if (recipe_.exact_norms) out.dtype = DType::kF32;
    }
    plan_.vectors.push_back(std::move(out));
    return {};
  }

  bool zero_centred_norm(const std::string& name) const {
    if (!family_.delta_net) return name.ends_with("norm.weight");  // gemma3: every one
    return name == "model.norm.weight" ||
           ends_with_any(name, {".input_layernorm.weight", ".post_attention_layernorm.weight", ".q_norm.weight",
                                ".k_norm.weight"});
  }

  Status fused(const std::string& module, const std::string& name) {
    GALVANI_TRY(const Shape shape, checkpoint_.shape(name));
    const bool pair = module.ends_with(".gate_up_proj");
    if (shape.rank() != 3 || (pair && shape[1] % 2 != 0) || checkpoint_.has(module + ".scales"))
      return fail(ErrorCode::kUnsupported, "{}: {} is {}; fused experts are [experts, rows, columns] of floats",
                  checkpoint_.path().string(), quote(name), shape.str());
    const std::string prefix = module.substr(0, module.rfind('.'));  // P.experts
    const bool gemma4 = std::string_view(family_.model_type).starts_with("gemma4");
    const std::string stack =
        gemma4 ? prefix + ".switch_glu."
               : prefix.substr(0, prefix.size() - std::string_view("experts").size()) + "switch_mlp.";
    const int64_t experts = shape[0], rows = shape[1], cols = shape[2], all = experts * rows;
    if (!pair) {
      add_matrix(stack + "down_proj", shape, {{module, all, cols, 0, all}});
      return {};
    }
    for (int half = 0; half < 2; ++half) {
      std::vector<ExportPart> parts;
      for (int64_t e = 0; e < experts; ++e)
        parts.push_back({module, all, cols, e * rows + half * rows / 2, e * rows + (half + 1) * rows / 2});
      add_matrix(stack + (half == 0 ? "gate_proj" : "up_proj"), Shape({experts, rows / 2, cols}), std::move(parts));
    }
    return {};
  }

  Status stack(const std::string& module, const std::map<int64_t, ExportPart>& experts) {
    std::vector<ExportPart> parts;
    for (const auto& [index, part] : experts) {
      if (index != static_cast<int64_t>(parts.size()))
        return fail(ErrorCode::kNotFound, "{}: expert {} of {} is missing", checkpoint_.path().string(), parts.size(),
                    quote(module));
      if (!parts.empty() && (part.rows != parts[0].rows || part.cols != parts[0].cols))
        return fail(ErrorCode::kCorrupt, "{}: {} is [{}, {}], expert 0 is [{}, {}]", checkpoint_.path().string(),
                    quote(part.module), part.rows, part.cols, parts[0].rows, parts[0].cols);
      parts.push_back(part);
    }
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
      const auto said = checkpoint_.config().find(key);
      if (said != checkpoint_.config().end() && said->is_number_integer() &&
          said->get<int64_t>() != static_cast<int64_t>(parts.size()))
        return fail(ErrorCode::kCorrupt, "{}: {} has {} experts, config.json says {} {}", checkpoint_.path().string(),
                    quote(module), parts.size(), key, said->get<int64_t>());
    }
    Shape shape({static_cast<int64_t>(parts.size()), parts[0].rows, parts[0].cols});
    add_matrix(module, std::move(shape), std::move(parts));
    return {};
  }

  void add_quantization() {
    const auto describe = [](const CodeFormat& format) {
      return nlohmann::ordered_json{
          {"group_size", format.group}, {"bits", format.bits}, {"mode", matrix_kind_name(format.kind)}};
    };
    nlohmann::ordered_json all = describe(recipe_.base);
    CodeFormat base = recipe_.base;
    base.dtype = plan_.dtype;
    bool any = false;
    for (const auto& matrix : plan_.matrices) {
      any = any || matrix.format.has_value();
      if (!matrix.format)
        all[matrix.module] = false;
      else if (*matrix.format != base)
        all[matrix.module] = describe(*matrix.format);
    }
    if (!any) return;
    plan_.config["quantization"] = all;
    plan_.config["quantization_config"] = std::move(all);
  }

  Checkpoint& checkpoint_;
  const Recipe& recipe_;
  Family family_{};
  std::optional<RecipeBook> book_;
  MlxQuantization quantization_;
  bool tied_ = false;
  float norm_add_ = 0;
  std::map<std::string, std::map<int64_t, ExportPart>> experts_;
  bool gguf_ = false;
  ExportPlan plan_;
};

}  // namespace

std::vector<std::string> exportable_families() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  std::sort(names.begin(), names.end());
  return names;
}

Result<ExportPlan> plan_export(Checkpoint& checkpoint, const Recipe& recipe) {
  GALVANI_TRY_VOID(recipe.check());
  return Planner(checkpoint, recipe).run();
}

}  // namespace galvani::quant
