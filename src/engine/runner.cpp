#include "engine/runner.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/error.h"
#include "core/file_map.h"
#include "core/log.h"
#include "core/parallel.h"
#include "cuda/choose_device.h"
#include "engine/gpu_check.h"
#include "exec/cpu_ops.h"
#include "exec/cuda_ops.h"

namespace galvani::engine {
namespace {

using kernels::Arithmetic;

class Stopwatch {
 public:
  double lap_ms() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

Result<Arithmetic> parse_act(const std::string& name) {
  if (name == "auto") return exec::cpu_default_arithmetic();
  if (name == "f32") return Arithmetic::kF32;
  if (name == "f16") return Arithmetic::kF16;
  if (name == "bf16") return Arithmetic::kBF16;
  return fail(ErrorCode::kInvalidArgument, "--act {}: there is no such arithmetic; allowed: auto, f32, f16, bf16",
              name);
}

// Keys and values follow the arithmetic: what products round to anyway need not be stored wider.
Result<DType> parse_kv(const std::string& name, Arithmetic arithmetic) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  if (name != "auto")
    return fail(ErrorCode::kInvalidArgument, "--kv {}: there is no such type; allowed: auto, f32, f16, bf16", name);
  return arithmetic == Arithmetic::kF32 ? DType::kF32 : arithmetic == Arithmetic::kF16 ? DType::kF16 : DType::kBF16;
}

Status check_options(const LoadOptions& options) {
  if (options.context < 0 || options.context > (int64_t{1} << 31) - 1)
    return fail(ErrorCode::kInvalidArgument,
                "a context of {} tokens cannot be; give 1 to 2147483647, or 0 for the model's own", options.context);
  if (options.max_sequences < 1 || options.max_sequences > 4096)
    return fail(ErrorCode::kInvalidArgument, "{} sequences at once cannot be; give 1 to 4096", options.max_sequences);
  if (options.expand_mib < 0 || options.expand_mib > 1 << 20)
    return fail(ErrorCode::kInvalidArgument, "expand_mib is {}; it must be 0 (no expand arm) to 1048576",
                options.expand_mib);
  if (options.max_batch_tokens < 1 || options.max_batch_tokens > 1 << 20)
    return fail(ErrorCode::kInvalidArgument, "a batch of {} tokens cannot be; give 1 to 1048576",
                options.max_batch_tokens);
  if (options.threads < 0 || options.threads > 1024)
    return fail(ErrorCode::kInvalidArgument, "{} threads cannot be; give 1 to 1024, or 0 for the physical cores",
                options.threads);
  // Only one of the two would run, and nothing would say which.
  for (size_t i = 1; i < options.arms.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (const auto& [op, arm] = options.arms[i]; options.arms[j].first == op)
        return fail(ErrorCode::kInvalidArgument, "--arm {}={}: {} has an arm already, {}; give one", op, arm, op,
                    options.arms[j].second);
  return {};
}

// An id outside the vocabulary cannot be drawn anyway, and must not make every request fail.
std::vector<int32_t> suppressed_tokens(const quant::Checkpoint& checkpoint, int64_t vocab) {
  std::vector<int32_t> ids;
  const auto found = checkpoint.generation_config().find("suppress_tokens");
  if (found == checkpoint.generation_config().end() || !found->is_array()) return ids;
  for (const auto& id : *found) {
    if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX)) continue;
    if (const auto value = id.get<int64_t>(); value >= 0 && value < vocab) ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

// Only numbers inside the allowed ranges are taken over; a model file must not be able to make every request fail.
SamplingParams default_sampling(const nlohmann::json& config) {
  SamplingParams params;
  const auto number = [&](const char* key, double low, double high, double fallback) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_number()) return fallback;
    const double value = found->get<double>();
    return value >= low && value <= high ? value : fallback;
  };
  const auto sample = config.find("do_sample");
  if (sample == config.end() || !sample->is_boolean() || !sample->get<bool>()) return params;
  params.temperature = static_cast<float>(number("temperature", 0, 10, 1.0));
  params.top_k = static_cast<int>(number("top_k", 0, 1e6, 0));
  params.top_p = static_cast<float>(number("top_p", 1e-6, 1, 1));
  params.min_p = static_cast<float>(number("min_p", 0, 1, 0));
  params.repetition_penalty = static_cast<float>(number("repetition_penalty", 0.1, 10, 1));
  return params;
}

exec::OpsOptions ops_options(const LoadOptions& options, Arithmetic arithmetic) {
  return {.arithmetic = arithmetic,
          .batch_invariant = options.batch_invariant,
          .count_activations = options.count_activations,
          .poison = options.poison,
          .expand_mib = options.expand_mib,
          .arms = options.arms};
}

/// The backend, once it is known to run the model; gpu < 0: the CPU.
Result<std::unique_ptr<exec::Ops>> make_ops(const LoadOptions& options, Arithmetic arithmetic, int gpu,
                                            int64_t weight_bytes = 0) {
  if (gpu < 0) return exec::create_cpu_ops(ops_options(options, arithmetic));
  return exec::create_cuda_ops(ops_options(options, arithmetic), {.device = gpu,
                                                                  .trace_plan = options.trace_plan,
                                                                  .sync_every_launch = options.cuda_sync,
                                                                  .weight_bytes = weight_bytes,
                                                                  .one_kernel_keys = options.one_kernel_keys});
}

}  // namespace

Result<DType> kv_type(const std::string& kv, const std::string& act) {
  GALVANI_TRY(const Arithmetic arithmetic, parse_act(act));
  return parse_kv(kv, arithmetic);
}

Result<std::unique_ptr<Runner>> Runner::load(const LoadOptions& options) {
  GALVANI_TRY_VOID(check_options(options));
  GALVANI_TRY(const cuda::DeviceRequest request, cuda::parse_device(options.device));
  GALVANI_TRY(const cuda::DeviceChoice choice, cuda::choose_device(request));
  if (choice.unusable)
    log_warn("running on the CPU: {}", choice.note);
  else if (!choice.note.empty())
    log_info("{}", choice.note);
  if (!choice.gpu) return load_on(options, -1);
  auto loaded = load_on(options, choice.index);
  const bool fall_back =
      request.kind == cuda::DeviceRequest::Kind::kAuto && !loaded && loaded.error().code == ErrorCode::kUnsupported;
  if (!fall_back) return loaded;
  log_warn("running on the CPU: {}", loaded.error().message);
  return load_on(options, -1);
}

Result<std::unique_ptr<Runner>> Runner::load_on(const LoadOptions& options, int gpu) {
  GALVANI_TRY(Arithmetic arithmetic, parse_act(options.act));
  exec::GpuIdentity identity;
  if (gpu >= 0) {
    GALVANI_TRY(identity, exec::gpu_identity(gpu));
    if (options.act == "auto") arithmetic = exec::gpu_arithmetic(identity.caps);
  }
  GALVANI_TRY(const DType kv, parse_kv(options.kv, arithmetic));
  set_threads(options.threads);

  std::unique_ptr<Runner> runner(new Runner);
  EngineInfo& info = runner->info_;
  Stopwatch watch;
  // What options ask for comes before the model: it knows which arms there are.
  exec::GpuChoice choice;
  if (gpu >= 0) {
    GALVANI_TRY(choice, exec::gpu_choice(identity.caps, identity.name, ops_options(options, arithmetic), kv));
  } else {
    GALVANI_TRY(runner->ops_, make_ops(options, arithmetic, gpu));
  }
  const double ops_ms = watch.lap_ms(), mapped_before = FileMap::total_open_ms();
  GALVANI_TRY(runner->checkpoint_, quant::Checkpoint::open(options.model));
  info.times.map = FileMap::total_open_ms() - mapped_before;
  info.times.open = watch.lap_ms() - info.times.map;
  if (gpu >= 0) {
    GALVANI_TRY(const int64_t weight_bytes,
                check_gpu_model(*runner->checkpoint_, identity.caps, choice, options.max_batch_tokens));
    GALVANI_TRY(runner->ops_, make_ops(options, arithmetic, gpu, weight_bytes));
  }
  GALVANI_TRY(runner->model_, models::load_model(*runner->checkpoint_, *runner->ops_, options.progress));
  GALVANI_TRY_VOID(runner->ops_->finish_load());
  info.times.pack = ops_ms + watch.lap_ms() - runner->ops_->load_costs().upload_ms;
  info.times = runner->load_times();

  const models::ModelInfo& model = runner->model_->info();
  info.context = options.context > 0 ? options.context : std::min<int64_t>(model.context, 4096);
  if (info.context > model.context)
    log_warn("a context of {} tokens is longer than the {} this model was made for; expect worse text beyond them",
             info.context, model.context);
  const exec::StateOptions state{.kv_dtype = kv,
                                 .context = info.context,
                                 .max_sequences = options.max_sequences,
                                 .max_chunk = options.max_batch_tokens};
  const exec::StateSpec spec = runner->model_->state_spec();
  const exec::StatePlan plan = exec::plan_state(spec, state);
  GALVANI_TRY(runner->state_, exec::State::create(spec, state, runner->ops_->memory()));

  info.act = kernels::arithmetic_name(arithmetic);
  info.kv = dtype_name(kv);
  info.arms = options.arms;
  info.state_bytes = plan.kv_bytes + plan.slot_bytes;
  runner->fill_info();
  if (info.synthetic)
    log_warn("SYNTHETIC WEIGHTS: {} is random; its rates mean something, its output nothing", options.model);
  return runner;
}

void Runner::fill_info() {
  const models::ModelInfo& model = model_->info();
  suppressed_ = suppressed_tokens(*checkpoint_, model.vocab);
  info_.family = model.family;
  info_.synthetic = checkpoint_->synthetic();
  info_.device = ops_->device();
  info_.layers = model.layers;
  info_.threads = threads();
  info_.hidden = model.hidden;
  info_.vocab = model.vocab;
  info_.model_context = model.context;
  info_.weight_bytes = ops_->weight_bytes();
  info_.step_bytes = ops_->step_bytes();
  info_.eos_ids = model.eos_ids;
  info_.default_sampling = default_sampling(checkpoint_->generation_config());
}

LoadTimes Runner::load_times() const {
  LoadTimes times = info_.times;
  const exec::LoadCosts costs = ops_->load_costs();
  times.upload = costs.upload_ms;
  times.upload_bytes = costs.upload_bytes;
  times.upload_memory = costs.memory_ms, times.upload_reading = costs.reading_ms, times.upload_link = costs.link_ms;
  times.graph = costs.graph_ms;
  return times;
}

Result<exec::Act> Runner::forward(const exec::Batch& batch) {
  for (const exec::Chunk& chunk : batch.chunks) GALVANI_TRY_VOID(state_->reserve(chunk));
  exec::Act logits;
  Status done;
  do {
    ops_->begin_step(batch, *state_);
    logits = model_->forward(batch, *ops_);
    done = ops_->finish_step();
  } while (done && ops_->only_looked());
  if (!done) {
    for (const exec::Chunk& chunk : batch.chunks) state_->spoil(chunk.sequence);
    return tl::unexpected<Error>(std::move(done).error());
  }
  for (const exec::Chunk& chunk : batch.chunks) state_->commit(chunk);
  return logits;
}

Status Runner::all_logits(std::span<const int32_t> ids, int64_t chunk, const LogitSink& sink) {
  GALVANI_TRY(const exec::SeqId sequence, state_->create_sequence());
  struct Release {
    exec::State& state;
    exec::SeqId id;
    ~Release() { state.release(id); }
  } release{*state_, sequence};
  std::vector<float> rows;
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t first = 0; first < total; first += chunk) {
    const int64_t count = std::min(chunk, total - first);
    exec::Batch batch;
    batch.add(sequence, static_cast<int32_t>(first),
              ids.subspan(static_cast<size_t>(first), static_cast<size_t>(count)), exec::WantLogits::kAll);
    GALVANI_TRY(const exec::Act logits, forward(batch));
    rows.resize(static_cast<size_t>(logits.rows * logits.cols));
    GALVANI_TRY_VOID(ops_->read(logits, rows.data()));
    GALVANI_TRY_VOID(sink(first, count, rows.data()));
  }
  return {};
}

}  // namespace galvani::engine
