#include "cli/cli.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "cli/environment.h"
#include "cli/hf_cache.h"
#include "cli/progress_bar.h"
#include "cli/synthetic_model.h"
#include "core/error.h"
#include "cuda/choose_device.h"
#include "engine/runner.h"
#include "formats/atomic_file.h"
#include "quant/synthetic_checkpoint.h"

namespace galvani::cli {
void ModelFlags::add_to(CLI::App& verb, bool run) {
  auto* model_flag = verb.add_option("-m,--model", model, "folder with config.json and safetensors, or a .gguf file");
  auto* hf_flag = verb.add_option("--hf", hf, "org/repo in the local Hugging Face cache (also spelled -hf)");
  model_flag->excludes(hf_flag);
  if (auto* synthetic_flag = verb.get_option_no_throw("--synthetic"); synthetic_flag != nullptr) {
    synthetic_flag->excludes(model_flag);
    synthetic_flag->excludes(hf_flag);
  }
  if (!run) return;
  verb.add_option("-c,--ctx-size", context, "tokens a sequence may reach (0: the model's, at most 4096)")
      ->check(CLI::Range(int64_t{0}, (int64_t{1} << 31) - 1));
  verb.add_option("-t,--threads", threads, "threads (0: physical cores)")->check(CLI::Range(0, 1024));
  verb.add_option("-b,--batch-size", batch, fmt::format("tokens of one step (default {})", batch))
      ->check(CLI::Range(1, 1 << 20));
  verb.add_option("--device", device, "auto, cpu, cuda or cuda:N");
  verb.add_option("--act", act, "arithmetic of matrix products: auto, f32, f16, bf16");
  verb.add_option("--kv", kv, "type of keys and values: auto, f32, f16, bf16");
  verb.add_option("--arm", arms,
                  "force an arm, op=name, e.g. qmatmul=rows on the CPU, qmatmul=wgmma on a GPU (may repeat)")
      ->allow_extra_args(false);
  verb.add_option("--expand-mib", expand_mib,
                  "of a GPU's memory, in MiB: for one matrix in 16 bits, where products of many tokens are fastest "
                  "that way (default 512; 0: never)")
      ->check(CLI::Range(0, 1 << 20));
  verb.add_flag("--batch-invariant", batch_invariant, "same bits whatever else is in the batch");
}

void ModelFlags::add_tokenizer_to(CLI::App& verb) {
  verb.add_option("--tokenizer", tokenizer,
                  "tokenizer and chat template from this folder or .gguf file (default: the model's own)");
}

void ModelFlags::add_synthetic(CLI::App& verb) {
  auto* synthetic_flag = verb.add_option("--synthetic", synthetic,
                                         "random weights in the shapes of this config.json (or its folder): for rates; "
                                         "what it writes means nothing");
  verb.add_option("--bits", bits, "bits of the synthetic weights (default 4), in groups of 64")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}))
      ->needs(synthetic_flag);
  save_option_ =
      verb.add_option("--save", save,
                      "write the synthetic model to this folder, which must not exist, and use it from there")
          ->needs(synthetic_flag);
}

Result<std::string> ModelFlags::path() const {
  if (!synthetic.empty()) {
    const std::string name = fmt::format("{}{}:{}", quant::kSyntheticPrefix, bits, synthetic);
    if (save_option_->empty()) return name;
    if (!saved_) GALVANI_TRY_VOID(save_synthetic_model(name, save));
    saved_ = true;
    return save;
  }
  if (!hf.empty()) return resolve_hf(hf);
  if (model.empty())
    return fail(ErrorCode::kInvalidArgument, "no model named; give -m FOLDER, -m FILE.gguf or -hf ORG/REPO");
  return model;
}

Result<LoadOptions> ModelFlags::load_options() const {
  LoadOptions options;
  GALVANI_TRY_VOID(cuda::parse_device(device));
  GALVANI_TRY_VOID(engine::kv_type(kv, act));
  GALVANI_TRY(options.model, path());
  options.device = device;
  options.act = act;
  options.kv = kv;
  options.threads = threads;
  options.context = context;
  options.max_batch_tokens = batch;
  options.expand_mib = expand_mib;
  options.batch_invariant = batch_invariant;
  for (const std::string& arm : arms) {
    const size_t equals = arm.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorCode::kInvalidArgument,
                  "--arm {}: write it as op=name, e.g. qmatmul=rows on the CPU, qmatmul=wgmma on a GPU", arm);
    options.arms.emplace_back(arm.substr(0, equals), arm.substr(equals + 1));
  }
  options.progress = ProgressBar("loading");
  GALVANI_TRY(const DebugSwitches switches, debug_switches());
  options.poison = switches.poison;
  options.trace_plan = switches.trace_plan;
  options.cuda_sync = switches.cuda_sync;
  return options;
}

int report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.message.c_str());
  return error.code == ErrorCode::kInvalidArgument ? kCannotAnswer : kNo;
}

Result<std::string> read_text_file(const std::string& path) {
  const bool standard_input = path == "-";
  std::FILE* file = standard_input ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr)
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read \"{}\": {}", path,
                std::strerror(errno));
  std::string text;
  char buffer[65536];
  size_t got;
  while ((got = std::fread(buffer, 1, sizeof(buffer), file)) > 0) text.append(buffer, got);
  const bool failed = std::ferror(file) != 0;
  const int reason = errno;
  if (!standard_input) std::fclose(file);
  if (failed)
    return fail(ErrorCode::kIo, "reading {} failed: {}", standard_input ? "standard input" : path,
                std::strerror(reason));
  return text;
}

Status check_output(std::string_view option, const std::string& output,
                    std::initializer_list<std::string_view> inputs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool replaces = fs::exists(output, ignored) && !fs::is_directory(output, ignored);
  const fs::path folder = fs::absolute(output, ignored).parent_path();
  for (const std::string_view input : inputs) {
    if (!replaces || input.empty() || !fs::exists(input, ignored)) continue;
    const bool is = fs::equivalent(output, input, ignored);
    if (!is && !(fs::is_directory(input, ignored) && fs::equivalent(folder, input, ignored))) continue;
    return fail(ErrorCode::kInvalidArgument, "{} {}: {} {}, which this run reads; give another name", option, output,
                is ? "that is" : "it is there already, in", input);
  }
  return formats::check_writable(output);
}

Status write_text_file(const std::string& path, std::string_view text) {
  GALVANI_TRY(auto file, formats::AtomicFile::create(path));
  GALVANI_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Status print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0 ||
      std::ferror(stdout) != 0)
    return fail(ErrorCode::kIo, "writing to standard output failed: {}", std::strerror(errno));
  return {};
}

}  // namespace galvani::cli
