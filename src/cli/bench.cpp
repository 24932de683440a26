/// `galvani bench`: a whole model, or the GPU's matrix products, against ceilings measured in the same run.
#include "bench/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "bench/kernel_tune.h"
#include "bench/model_bench.h"
#include "cli/cli.h"
#include "core/error.h"
#include "cuda/device.h"
#include "formats/atomic_file.h"
#include "kernels/qmatmul/qmatmul_cuda.h"

namespace galvani::cli {
namespace {

constexpr const char* kNoCuda =
    "error: this program was built without its CUDA backend, so it holds no GPU kernel to time. To build one that does "
    "(CUDA toolkit 12.4 or newer):\n"
    "  cmake --preset cuda-release && cmake --build --preset cuda-release --target galvani_cli\n"
    "  build/cuda-release/galvani bench --kernels\n";

struct BenchFlags {
  bool kernels = false, tune = false, no_cublas = false, no_dependent_launch = false;
  std::vector<std::string> cases;
  ModelFlags model;
  CLI::Option* act_option = nullptr;
  bench::ModelBenchOptions sizes;
  std::string act = "bf16", json;
  std::vector<std::string> arms;
  int device = 0;
  int64_t expand_mib = 0;
  CLI::Option *json_option = nullptr, *expand_option = nullptr;
  std::vector<CLI::Option*> of_model, of_kernels, of_one_launch;  ///< the last: of --kernels without --tune
};

/// A flag that would be ignored is refused: its figures would be taken for what it asked.
Status refuse_given(const std::vector<CLI::Option*>& options, const char* reason) {
  for (const CLI::Option* option : options)
    if (option->count() > 0) return fail(ErrorCode::kInvalidArgument, "{} {}", option->get_name(), reason);
  return {};
}

/// The number that `text` begins with, and nothing else before it; cut off, with the separator behind it. Empty: there
/// is none of at most nine digits, or another separator.
std::optional<int64_t> cut_number(std::string_view& text, char separator) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + std::min<size_t>(text.size(), 9), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || number < 0) return std::nullopt;
  if (length < text.size() && text[length] == separator)
    text.remove_prefix(length + 1);
  else if (length == text.size() && separator == ',')
    text = {};
  else
    return std::nullopt;
  return number;
}

/// "28672x8192:4g64:1", tokens a list "1,8,64".
Status add_cases(const std::string& text, std::vector<bench::KernelCase>& cases) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument,
                "--case {}: {}; write it as NxK:BITSgGROUP:TOKENS, e.g. 28672x8192:4g64:1,8", text, what);
  };
  constexpr int64_t kMost = 1 << 24, kMostTokens = 1 << 20;
  std::string_view rest = text;
  const auto n = cut_number(rest, 'x'), k = n ? cut_number(rest, ':') : n, bits = k ? cut_number(rest, 'g') : k,
             group = bits ? cut_number(rest, ':') : bits;
  if (!group) return bad("it is not of that form");
  if (*n < 1 || *n > kMost || *k < 1 || *k > kMost) return bad("N and K are 1 to 2^24");
  const kernels::A16Format format{static_cast<int>(*bits), static_cast<int>(*group), kernels::A16Scale::kBF16};
  if (!kernels::a16_valid(format)) return bad("bits are 2, 3, 4, 5, 6 or 8, groups 16, 32, 64 or 128");
  if (*k % *group != 0) return bad(fmt::format("groups of {} do not divide K = {}", *group, *k));
  if (rest.empty() || rest.back() == ',') return bad("a token count is missing");
  do {
    const auto m = cut_number(rest, ',');
    if (!m || *m < 1 || *m > kMostTokens) return bad("token counts are numbers from 1 to 2^20, separated by commas");
    cases.push_back({*n, *k, *m, format});
  } while (!rest.empty());
  return {};
}

Result<bench::KernelBenchOptions> options_of(const BenchFlags& flags) {
  bench::KernelBenchOptions options;
  options.device = flags.device;
  options.cublas = !flags.no_cublas;
  options.dependent_launch = !flags.no_dependent_launch;
  options.expand_bytes = flags.expand_mib << 20;
  if (flags.act == "f16")
    options.arithmetic = kernels::Arithmetic::kF16;
  else if (flags.act != "bf16")
    return fail(ErrorCode::kInvalidArgument, "--act {}: the GPU's products are bf16 or f16", flags.act);
  if (flags.arms.size() > 1)
    return fail(ErrorCode::kInvalidArgument, "--arm {}: one arm has been chosen already, {}; give one", flags.arms[1],
                flags.arms[0]);
  if (!flags.arms.empty()) {
    const auto arm = kernels::qmatmul_cuda_arm_from_name(flags.arms[0]);
    if (!arm) {
      std::string names;
      for (int i = 0; i < kernels::kQmatmulCudaArms; ++i)
        names += fmt::format("{}{}", i > 0 ? ", " : "",
                             kernels::qmatmul_cuda_arm_name(static_cast<kernels::QmatmulCudaArm>(i)));
      return fail(ErrorCode::kInvalidArgument, "--arm {}: the arms are {}", flags.arms[0], names);
    }
    options.forced = static_cast<int>(*arm);
  }
  for (const std::string& text : flags.cases) {
    if (text != "attention" && text != "small") {
      GALVANI_TRY_VOID(add_cases(text, options.cases));
      continue;
    }
    if (!flags.tune) return fail(ErrorCode::kInvalidArgument, "--case {} is of --tune; add it", text);
    if (options.arithmetic != kernels::Arithmetic::kBF16)
      return fail(ErrorCode::kInvalidArgument, "--case {} is timed in bf16; leave --act out", text);
    (text == "small" ? options.small : options.attention) = true;
  }
  return options;
}

Status run_model(const BenchFlags& flags) {
  bench::ModelBenchOptions options = flags.sizes;
  ModelFlags model = flags.model;
  if (flags.act_option->count() > 0) model.act = flags.act;
  model.arms = flags.arms;
  if (flags.expand_option->count() > 0) model.expand_mib = flags.expand_mib;
  GALVANI_TRY(options.load, model.load_options());
  const bool json = flags.json_option->count() > 0;
  if (json) GALVANI_TRY_VOID(check_output("--json", flags.json, {options.load.model}));
  GALVANI_TRY(const bench::ModelRecord record, bench::bench_model(options));
  GALVANI_TRY_VOID(print(bench::model_record_text(record)));
  if (json) return write_text_file(flags.json, bench::model_record_json(record));
  return {};
}

int run_tune(const BenchFlags& flags, const bench::KernelBenchOptions& options) {
  const auto record = bench::tune_kernels(options);
  if (!record) {
    report(record.error());
    return kCannotAnswer;
  }
  if (const Status status = print(bench::tune_record_markdown(*record)); !status) return report(status.error());
  if (flags.json_option->count() > 0)
    if (const Status status = write_text_file(flags.json, bench::tune_record_json(*record)); !status)
      return report(status.error());
  for (const bench::TuneCase& c : record->cases)
    for (const bench::TuneRow& row : c.rows)
      if (!row.failure.empty()) return kNo;
  for (const bench::AttentionTuneCase& c : record->attention)
    for (const bench::AttentionTuneRow& row : c.rows)
      if (!row.failure.empty()) return kNo;
  for (const bench::AttentionPrefillCase& c : record->prefill)
    if (!c.failure.empty()) return kNo;
  for (const bench::SmallCase& c : record->small)
    if (!c.failure.empty()) return kNo;
  return kYes;
}

int run_kernels(const BenchFlags& flags) {
  auto options = options_of(flags);
  if (!options) return report(options.error());
  if (cuda::driver_state().kind == cuda::DriverState::Kind::kNoCudaInBuild) {
    std::fputs(kNoCuda, stderr);
    return kCannotAnswer;
  }
  const bool json = flags.json_option->count() > 0;
  if (json)
    if (const Status status = formats::check_writable(flags.json); !status) return report(status.error());
  if (flags.tune) return run_tune(flags, *options);
  const auto record = bench::bench_kernels(*options);
  if (!record) {
    report(record.error());
    return kCannotAnswer;
  }
  if (const Status status = print(bench::kernel_record_markdown(*record)); !status) return report(status.error());
  if (json)
    if (const Status status = write_text_file(flags.json, bench::kernel_record_json(*record)); !status)
      return report(status.error());
  for (const bench::KernelRow& row : record->rows)
    if (!row.failure.empty()) return kNo;
  return kYes;
}

int run(const BenchFlags& flags) {
  const bool model = !flags.model.model.empty() || !flags.model.hf.empty() || !flags.model.synthetic.empty();
  if (flags.kernels == model) {
    std::fprintf(stderr, "error: say what to time: either --kernels, or a model (-m, -hf, --synthetic)\n");
    return kCannotAnswer;
  }
  const Status sense =
      flags.kernels ? refuse_given(flags.of_model, "is of a model (-m, -hf, --synthetic); leave it out of --kernels")
                    : refuse_given(flags.of_kernels, "is of --kernels; leave it out where a model is timed");
  if (!sense) return report(sense.error());
  if (flags.tune)
    if (const Status one = refuse_given(flags.of_one_launch, "is not for --tune, which times every launch there is");
        !one)
      return report(one.error());
  if (flags.kernels) return run_kernels(flags);
  const Status done = run_model(flags);
  return done ? kYes : report(done.error());
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* verb = app.add_subcommand("bench", "time this machine against its own ceilings");
  flags->model.add_synthetic(*verb);
  flags->model.add_to(*verb, false);
  flags->of_model = {
      verb->add_option("--device", flags->model.device, "of a model: auto, cpu, cuda or cuda:N"),
      verb->add_option("--kv", flags->model.kv, "of a model: type of keys and values: auto, f32, f16, bf16"),
      verb->add_option("-t,--threads", flags->model.threads, "of a model: threads (0: physical cores)")
          ->check(CLI::Range(0, 1024)),
      verb->add_option("--prompt-tokens", flags->sizes.prompt, "of a model: tokens of each prompt (default 512)")
          ->check(CLI::Range(1, 1 << 20)),
      verb->add_option("--steps", flags->sizes.steps, "of a model: decode steps (default 256)")
          ->check(CLI::Range(1, 1 << 20)),
      verb->add_option("--sequences", flags->sizes.sequences, "of a model: sequences that decode together (default 1)")
          ->check(CLI::Range(1, 4095))};
  verb->add_flag("--kernels", flags->kernels, "the GPU's quantized matrix products");
  flags->expand_option = verb->add_option("--expand-mib", flags->expand_mib,
                                          "MiB that the expand arm may hold (0: forbidden); default: of --kernels 0, "
                                          "of a model 512")
                             ->check(CLI::Range(0, 1 << 20));
  flags->of_kernels = {
      verb->add_flag("--tune", flags->tune,
                     "of --kernels: every launch that could run each case, checked and timed (minutes)"),
      verb->add_option("--case", flags->cases,
                       "of --kernels: NxK:BITSgGROUP:TOKENS, e.g. 28672x8192:4g64:1,8; with --tune also attention and "
                       "small, what lies between products (may repeat)")
          ->allow_extra_args(false),
      verb->add_option("--gpu", flags->device, "of --kernels: which GPU")->check(CLI::Range(0, 63)),
      verb->add_flag("--no-cublas", flags->no_cublas, "of --kernels: leave cuBLAS out"),
      verb->add_flag("--no-dependent-launch", flags->no_dependent_launch,
                     "of --kernels: each launch waits for the end of the one before")};
  flags->act_option =
      verb->add_option("--act", flags->act, "type of the activations: bf16 or f16; of a model also auto and f32");
  CLI::Option* const arm =
      verb->add_option("--arm", flags->arms,
                       "force an arm, e.g. wgmma; of a model op=name, e.g. qmatmul=wgmma (may repeat)")
          ->allow_extra_args(false);
  flags->of_one_launch = {arm, flags->expand_option};
  flags->json_option = verb->add_option("--json", flags->json, "also write every sample to this file");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace galvani::cli
