// galvani quantize: a checkpoint in another format, for Galvani and mlx-lm.
#include "quant/quantize.h"

#include <cstdio>
#include <filesystem>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "core/error.h"
#include "core/log.h"
#include "core/parallel.h"
#include "exec/recording_ops.h"
#include "models/model.h"
#include "quant/checkpoint.h"

namespace galvani::cli {
namespace {

struct QuantizeFlags {
  ModelFlags model;
  std::string out, mode = "affine", dtype = "auto", tokenizer;
  int bits = 0, group = 0, attention_bits = 0, head_bits = 0, router_bits = 8, threads = 0;
  int64_t shard_megabytes = 2048;
  bool exact_norms = false, force = false;
  std::vector<std::string> overrides;
};

Result<quant::Recipe> recipe_of(const QuantizeFlags& flags) {
  quant::Recipe recipe;
  struct Mode {
    const char* name;
    quant::MatrixKind kind;
    int bits, group;
  };
  static constexpr Mode kModes[] = {{"affine", quant::MatrixKind::kAffine, 4, 64},
                                    {"mxfp4", quant::MatrixKind::kMxfp4, 4, 32},
                                    {"mxfp8", quant::MatrixKind::kMxfp8, 8, 32},
                                    {"nvfp4", quant::MatrixKind::kNvfp4, 4, 16}};
  for (const Mode& mode : kModes)
    if (flags.mode == mode.name)
      recipe.base = {.kind = mode.kind,
                     .bits = flags.bits != 0 ? flags.bits : mode.bits,
                     .group = flags.group != 0 ? flags.group : mode.group};
  if (flags.dtype == "bf16") recipe.dtype = DType::kBF16;
  if (flags.dtype == "f16") recipe.dtype = DType::kF16;
  if (flags.dtype == "f32") recipe.dtype = DType::kF32;
  recipe.exact_norms = flags.exact_norms;
  recipe.attention_bits = flags.attention_bits;
  recipe.head_bits = flags.head_bits;
  recipe.router_bits = flags.router_bits;
  for (const std::string& text : flags.overrides) {
    GALVANI_TRY(auto one, quant::parse_override(text));
    recipe.overrides.push_back(std::move(one));
  }
  GALVANI_TRY_VOID(recipe.check());
  return recipe;
}

/// A load that reads shapes and no weights: what would stop the model from running.
Status check_model(quant::Checkpoint& checkpoint) {
  exec::RecordingOps ops;
  GALVANI_TRY_VOID(models::load_model(checkpoint, ops));
  return {};
}

/// Whoever wants the tensors of half a model has to say so.
Status check_input(const QuantizeFlags& flags, const std::string& in) {
  GALVANI_TRY(const auto checkpoint, quant::Checkpoint::open(in));
  const Status runs = check_model(*checkpoint);
  if (runs) return {};
  if (!flags.force)
    return fail(runs.error().code,
                "{}\nThis model does not run, and neither would what is made of it; --force writes it all the same",
                runs.error().message);
  log_warn("this model does not run, and neither will the result: {}", runs.error().message);
  return {};
}

Status quantize(const QuantizeFlags& flags) {
  quant::QuantizeOptions options;
  GALVANI_TRY(options.in, flags.model.path());
  options.out = flags.out;
  GALVANI_TRY(options.recipe, recipe_of(flags));
  if (!flags.tokenizer.empty() && !std::filesystem::is_directory(flags.tokenizer))
    return fail(ErrorCode::kNotFound, "--tokenizer {}: there is no such folder", flags.tokenizer);
  GALVANI_TRY_VOID(check_input(flags, options.in));
  options.shard_bytes = flags.shard_megabytes * 1'000'000;
  options.tokenizer = flags.tokenizer;
  options.progress = [bar = ProgressBar("quantizing")](double share) mutable { bar(share); };
  options.stop = interrupted;
  set_threads(flags.threads);
  catch_interrupts();
  GALVANI_TRY(const quant::QuantizeReport report, quant::quantize_checkpoint(options));
  GALVANI_TRY(const auto written, quant::Checkpoint::open(options.out));
  if (const Status runs = check_model(*written); !runs && !flags.force)
    log_warn("what was written does not run: {}", runs.error().message);
  std::string text;
  for (const auto& [format, count] : report.matrices) text += fmt::format("  {:>6} matrices {}\n", count, format);
  text += fmt::format("{}: {:.1f} MB in {} file(s), {:.3f} bits a weight\n", flags.out,
                      static_cast<double>(report.bytes) / 1e6, report.shards,
                      8.0 * static_cast<double>(report.bytes) / static_cast<double>(report.weights));
  if (report.shards_kept > 0) text += fmt::format("{} of them were finished by an earlier run\n", report.shards_kept);
  if (!report.left_out.empty()) {
    text += fmt::format("left out, as the head is tied to the embedding: {}\n", fmt::join(report.left_out, ", "));
  }
  bool tokenizer = false;
  for (const std::string& name : report.copied) tokenizer = tokenizer || name.starts_with("tokenizer");
  if (!tokenizer)
    text += "no tokenizer was copied; give --tokenizer FOLDER, or put tokenizer.json there, to run text through it\n";
  return print(text);
}

}  // namespace

void add_quantize(CLI::App& app, Action& action) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* verb = app.add_subcommand("quantize", "writes an MLX-layout checkpoint with fewer bits a weight");
  flags->model.add_to(*verb, false);
  const CLI::IsMember width({0, 2, 3, 4, 5, 6, 8, 16});
  verb->add_option("-o,--out", flags->out, "folder to write; must not exist yet")->required();
  verb->add_option("--mode", flags->mode, "affine, mxfp4, mxfp8 or nvfp4 (default affine)")
      ->check(CLI::IsMember({"affine", "mxfp4", "mxfp8", "nvfp4"}));
  verb->add_option("--bits", flags->bits, "bits a weight: affine 2, 3, 4, 5, 6 or 8 (default 4)");
  verb->add_option("--group", flags->group, "weights that share a scale: affine 32, 64 or 128 (default 64)");
  verb->add_option("--attn-bits", flags->attention_bits, "bits of attention and delta-net projections; 16: leave them")
      ->check(width);
  verb->add_option("--head-bits", flags->head_bits, "bits of the head (the embedding, where tied); 16: leave it")
      ->check(width);
  verb->add_option("--router-bits", flags->router_bits,
                   "bits of expert routers, in groups of 64 (default 8; 0: like the rest; 16: leave them)")
      ->check(width);
  verb->add_option("--override", flags->overrides,
                   "REGEX=bits[:group] for modules whose path the pattern is found in; may repeat, the last that "
                   "matches counts; 16 bits: not quantized")
      ->allow_extra_args(false);
  verb->add_option(
          "--dtype", flags->dtype,
          "type of norms, scales and whatever is not quantized; weights are rounded to it first (default: what "
          "config.json says, bf16 for GGUF)")
      ->check(CLI::IsMember({"auto", "bf16", "f16", "f32"}));
  verb->add_flag("--exact-norms", flags->exact_norms,
                 "keep the folded 1 + w norms of delta-net families in f32 instead of rounding them as mlx-lm does");
  verb->add_flag("--force", flags->force, "write it even where the result could not be run");
  verb->add_option("--tokenizer", flags->tokenizer, "folder to copy tokenizer files from (default: the model's)");
  verb->add_option("--shard-size", flags->shard_megabytes,
                   "megabytes a file may reach; a finished one is kept over an interruption (default 2048)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  verb->add_option("-t,--threads", flags->threads, "threads (0: physical cores)")->check(CLI::Range(0, 1024));
  verb->callback([flags, &action] {
    action = [flags] {
      const Status done = quantize(*flags);
      return done ? kYes : report(done.error());
    };
  });
}

}  // namespace galvani::cli
