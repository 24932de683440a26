// CudaOps: creation, weights, steps and their graphs. Operations are in the other cuda_ops_*.cpp.
#include "exec/cuda_ops.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "core/log.h"
#include "exec/cuda_ops_impl.h"

namespace galvani::exec {
namespace {

using kernels::StoreType;

/// Index into graphs_ of the smallest size that holds `rows` rows.
size_t graph_index(int64_t rows) { return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows - 1))); }

}  // namespace

CudaOps::CudaOps(const OpsOptions& options, std::shared_ptr<cuda::CudaDevice> device, cuda::Stream stream)
    : options_(options),
      device_(std::move(device)),
      stream_(std::move(stream)),
      memory_(stream_),
      act_type_(options.arithmetic == kernels::Arithmetic::kBF16 ? StoreType::kBF16 : StoreType::kF16),
      step_arena_(*device_, "activations"),
      layer_arenas_{{*device_, "activations"}, {*device_, "activations"}} {}

CudaOps::~CudaOps() { (void)stream_.synchronize(); }

Status CudaOps::initialise(int64_t expected_weights, int64_t one_kernel_keys) {
  one_kernel_keys_ = one_kernel_keys;
  GALVANI_TRY(choice_, gpu_choice(device_->caps(), device_->name(), options_, DType::kBF16));
  if (options_.count_activations) {
    GALVANI_TRY(device_counters_,
                cuda::DeviceBuffer::allocate(*device_, kMostCounted * 2 * sizeof(uint64_t), "activation counters"));
    GALVANI_TRY_VOID(stream_.fill(device_counters_.data(), 0, device_counters_.size()));
  }
  GALVANI_TRY(uploader_, Uploader::create(stream_, expected_weights));
  GALVANI_TRY(sampler_, kernels::CudaSampler::create(*device_));
  GALVANI_TRY_VOID(prepare_one_kernel());
  constexpr size_t kFixed = 3 * table_bytes(kMaxGraphRows) + kMaxSchedules * table_bytes(kMaxGraphRows + 2);
  GALVANI_TRY_VOID(decode_block_.create(*device_, kFixed, "step tables"));
  return block_.create(*device_, size_t{1} << 20, "step tables");
}

Result<LinearRef> CudaOps::load_linear(const std::string& name, std::span<const LinearPart> parts) {
  GALVANI_TRY(CudaLinear linear, upload_linear(uploader_, name, parts));
  weight_bytes_ += linear.bytes;
  step_bytes_ += linear.bytes;
  linears_.push_back(std::move(linear));
  const CudaLinear& stored = linears_.back();
  return LinearRef{static_cast<int>(linears_.size()) - 1, stored.rows, stored.cols};
}

Result<StackRef> CudaOps::load_stack(const std::string& name, std::span<const std::vector<LinearPart>>, int) {
  return fail(ErrorCode::kUnsupported, "{}: mixture of experts is not on CUDA yet; run with --device cpu", name);
}

Result<EmbeddingRef> CudaOps::load_embedding(const quant::MatrixPtr& source) {
  GALVANI_TRY(CudaTable table, upload_table(uploader_, source));
  weight_bytes_ += table.bytes;
  step_bytes_ += table.bytes / std::max<int64_t>(table.rows, 1);
  tables_.push_back(std::move(table));
  return EmbeddingRef{static_cast<int>(tables_.size()) - 1, source->rows(), source->cols()};
}

Result<VectorRef> CudaOps::load_vector(std::span<const float> values) {
  GALVANI_TRY(auto buffer, uploader_.upload(std::as_bytes(values)));
  weight_bytes_ += static_cast<int64_t>(values.size_bytes());
  step_bytes_ += static_cast<int64_t>(values.size_bytes());
  vectors_.push_back(std::move(buffer));
  return VectorRef{static_cast<int>(vectors_.size()) - 1, static_cast<int64_t>(values.size())};
}

Result<RopeRef> CudaOps::load_rope(const RopeSpec& spec) {
  Rope rope{.spec = spec, .inv_freq = {}};
  GALVANI_TRY(rope.inv_freq, uploader_.upload(std::as_bytes(std::span(spec.inv_freq))));
  ropes_.push_back(std::move(rope));
  return RopeRef{static_cast<int>(ropes_.size()) - 1};
}

// --- the step -------------------------------------------------------------------------------------------------------

void* CudaOps::take(DeviceArena& arena, size_t bytes) {
  auto memory = arena.allocate(bytes, mode_ == StepMode::kCapture || mode_ == StepMode::kReplay);
  if (memory) return *memory;
  fail_step(tl::unexpected<Error>(std::move(memory).error()));
  return nullptr;
}

Act CudaOps::make(int64_t rows, int64_t cols, StoreType type) {
  const size_t bytes = static_cast<size_t>(rows * cols) * static_cast<size_t>(store_bytes(type));
  Act act{take(*arena_, bytes), rows, cols, cols};
  types_[act.data] = type;
  if (options_.poison && act.data != nullptr && bytes > 0) run([&] { return stream_.fill(act.data, 0xff, bytes); });
  return act;
}

Act CudaOps::columns_of(const Act& x, int64_t first, int64_t count) {
  const StoreType type = type_of(x);
  Act view{static_cast<std::byte*>(x.data) + first * store_bytes(type), x.rows, count, x.stride};
  types_[view.data] = type;
  return view;
}

StoreType CudaOps::type_of(const Act& act) const {
  const auto found = types_.find(act.data);
  return found == types_.end() ? StoreType::kF32 : found->second;  // a column inside an f32 product
}

void CudaOps::refuse(const char* what) {
  fail_step(fail(ErrorCode::kUnsupported, "{} on CUDA is not there yet; run with --device cpu", what));
}

void CudaOps::drop_graphs_unless(const State& state) {
  std::vector<const void*> pages;
  for (size_t g = 0; g < state.spec().groups.size(); ++g) {
    pages.push_back(state.kv_layer(static_cast<int>(g), 0).k);
    pages.push_back(mirror_.tables(static_cast<int>(g)).blocks);
  }
  if (pages == graph_pages_) return;
  graph_pages_ = std::move(pages);
  schedules_.clear();
  for (DecodeGraph& graph : graphs_) graph = {};
}

// The first step: all weights are known, so the workspaces can be sized.
Status CudaOps::finish_loading() {
  loading_ = false;
  GALVANI_TRY_VOID(uploader_.finish());
  int64_t largest = 0, plain = 0;
  bool dense = false;
  for (const CudaLinear& linear : linears_)
    for (const CudaSegment& segment : linear.segments) {
      dense |= !segment.packed && segment.type == act_type_ && !options_.batch_invariant;
      if (!segment.packed) {
        if (segment.type != act_type_ && segment.type != StoreType::kF32 && !options_.batch_invariant)
          plain += segment.rows * linear.cols * 2;
        continue;
      }
      kernels::QmatmulCudaProblem problem;
      problem.n = segment.rows, problem.k = linear.cols, problem.format = segment.packed->format;
      problem.kind = kernels::weight_kind_of(problem.format);
      problem.arithmetic = options_.arithmetic;
      problem.exact_weights = segment.packed->exact(options_.arithmetic);
      problem.x_aligned = linear.cols % 8 == 0;
      problem.forced = choice_.forced_matmul, problem.workspace_bytes = choice_.expand_bytes;
      largest = std::max(largest, kernels::qmatmul_cuda_expands(device_->caps(), problem));
    }
  if (plain > 0) {
    const bool bf16 = act_type_ == StoreType::kBF16;
    const char* const cure = bf16                                  ? "--act f16 is faster"
                             : device_->caps().has(Feature::kBf16) ? "--act bf16 is faster"
                                                                   : "f16 weights are faster on this part";
    log_warn(
        "{:.1f} MB of unquantized weights are {} and activations {}: their products take a plain kernel, which is "
        "slow; {}",
        static_cast<double>(plain) / 1e6, bf16 ? "f16" : "bf16", bf16 ? "bf16" : "f16", cure);
  }
  GALVANI_TRY(qmatmul_, kernels::QmatmulCuda::create(
                            device_, {.forced = choice_.forced_matmul, .expand_bytes = largest, .crossovers = {}}));
  if (dense) {
    GALVANI_TRY(blas_, cuda::Blas::create(*device_));
    GALVANI_TRY(blas_workspace_,
                cuda::DeviceBuffer::allocate(*device_, cuda::Blas::kWorkspaceBytes, "matmul workspace"));
  }
  const UploadWaits& waits = uploader_.waits();
  log_info(
      "uploaded {:.1f} MB to {} in {:.1f} ms ({:.2f} GB/s from the files to ready; waited {:.1f} ms for memory, {:.1f} "
      "for reading, {:.1f} for the link); matmul workspace {:.1f} MB",
      static_cast<double>(uploader_.bytes()) / 1e6, device(), uploader_.seconds() * 1e3,
      static_cast<double>(uploader_.bytes()) / 1e9 / std::max(uploader_.seconds(), 1e-9), waits.memory * 1e3,
      waits.reading * 1e3, waits.link * 1e3, static_cast<double>(qmatmul_->workspace_bytes()) / 1e6);
  return {};
}

void CudaOps::begin_step(const Batch& batch, State& state) {
  if (stream_.capturing()) (void)stream_.end_capture();  // a step that was given up in the middle
  step_status_ = device_->alive();
  if (step_status_) step_status_ = device_->make_current();
  if (step_status_) step_status_ = memory_.status();
  if (loading_ && step_status_) step_status_ = finish_loading();
  batch_ = &batch;
  state_ = &state;
  layer_ = -1;
  mode_ = StepMode::kEager;
  replayed_ = false;
  step_arena_.reset();
  layer_arenas_[0].reset();
  layer_arenas_[1].reset();
  arena_ = &step_arena_;
  types_.clear();
  taps_.clear();
  pending_for_ = nullptr;
  drop_phases();
  const int64_t n = batch.rows();
  decode_ = n >= 1 && n <= kMaxGraphRows && static_cast<int64_t>(batch.chunks.size()) == n &&
            static_cast<int64_t>(batch.logit_rows.size()) == n && !batch.tap_hidden &&
            !options_.count_activations;  // rows that a graph pads would be counted
  rows_ = decode_ ? int64_t{1} << graph_index(n) : n;
  long_ = decode_ && n == 1 && one_kernel_ && one_kernel_->on && batch.positions[0] >= one_kernel_->most_keys;
  if (step_status_) {
    if (Status done = begin_tables(batch, state); !done) step_status_ = std::move(done);
  }
  for (Rope& rope : ropes_) {
    rope.table = static_cast<float*>(take(step_arena_, static_cast<size_t>(rows_) * rope.spec.inv_freq.size() * 8));
    rope.fresh = false;
  }
  if (!decode_ || !step_status_) return;
  if (Status started = start_decode(batch); !started) step_status_ = std::move(started);
  begin_one_kernel();
}

CudaOps::DecodeGraph& CudaOps::decode_graph() { return long_ ? graphs_.back() : graphs_[graph_index(rows_)]; }

Status CudaOps::start_decode(const Batch& batch) {
  if (stepping() && !one_kernel_->decided) {
    mode_ = StepMode::kLook;
    return {};
  }
  const DecodeGraph& graph = decode_graph();
  if (graph.exec) {
    mode_ = StepMode::kReplay;
    // What the model still has to say of this step takes the host as long as some kernels: it does so while they run.
    // A token that a table may not have is embed()'s to refuse, before anything runs.
    const auto known = [&](const int32_t token) {
      return token >= 0 && std::all_of(tables_.begin(), tables_.end(), [&](const auto& t) { return token < t.rows; });
    };
    return std::all_of(batch.tokens.begin(), batch.tokens.end(), known) ? replay() : Status{};
  }
  if (!graph.warm) {
    GALVANI_TRY_VOID(decode_block_.upload(stream_));
    return decode_block_.end(stream_);
  }
  capture_start_ = std::chrono::steady_clock::now();
  GALVANI_TRY_VOID(stream_.begin_capture());
  mode_ = StepMode::kCapture;
  return decode_block_.upload(stream_);
}

Status CudaOps::replay() {
  DecodeGraph& graph = decode_graph();
  replayed_ = true;
  ++graph.info.replays;
  GALVANI_TRY_VOID(graph.exec->launch(stream_));
  return decode_block_.end(stream_);
}

Status CudaOps::begin_tables(const Batch& batch, State& state) {
  GALVANI_TRY_VOID(block_.begin(stream_));
  GALVANI_TRY_VOID(mirror_.attach(*device_, state));
  drop_graphs_unless(state);
  GALVANI_TRY_VOID(mirror_.update(stream_, block_, batch, state));
  row_positions_.assign(batch.positions.begin(), batch.positions.end());
  row_sequences_.clear();
  for (const Chunk& chunk : batch.chunks)
    row_sequences_.insert(row_sequences_.end(), static_cast<size_t>(chunk.count), chunk.sequence);
  row_positions_.resize(static_cast<size_t>(rows_), -1);
  row_sequences_.resize(static_cast<size_t>(rows_), 0);
  for (Schedule& entry : schedules_) entry.device = nullptr;
  tiles_.clear();
  GALVANI_TRY_VOID(decode_ ? decode_tables(batch) : eager_tables(batch));
  return block_.end(stream_);
}

// Everything at the place that it has for this number of rows, for the graph.
Status CudaOps::decode_tables(const Batch& batch) {
  GALVANI_TRY_VOID(decode_block_.begin(stream_));
  std::vector<int> tokens(batch.tokens.begin(), batch.tokens.end());
  tokens.resize(static_cast<size_t>(rows_), -1);
  const size_t column = table_bytes(rows_);
  GALVANI_TRY(tokens_, decode_block_.place(std::span<const int>(tokens), 0));
  GALVANI_TRY(positions_, decode_block_.place(std::span<const int>(row_positions_), column));
  GALVANI_TRY(sequence_, decode_block_.place(std::span<const int>(row_sequences_), 2 * column));
  logit_rows_ = nullptr;
  for (size_t i = 0; i < schedules_.size(); ++i) GALVANI_TRY_VOID(fill_schedule(schedules_[i], i, row_positions_));
  return {};
}

Status CudaOps::eager_tables(const Batch& batch) {
  GALVANI_TRY(tokens_, block_.put(stream_, std::span<const int>(batch.tokens)));
  GALVANI_TRY(positions_, block_.put(stream_, std::span<const int>(row_positions_)));
  GALVANI_TRY(sequence_, block_.put(stream_, std::span<const int>(row_sequences_)));
  GALVANI_TRY(logit_rows_, block_.put(stream_, std::span<const int>(batch.logit_rows)));
  single_rows_.clear();
  single_positions_.clear();
  for (const Chunk& chunk : batch.chunks) {
    if (chunk.count >= kernels::kTileMinRows) continue;
    for (int i = 0; i < chunk.count; ++i) {
      single_rows_.push_back(static_cast<int>(chunk.row) + i);
      single_positions_.push_back(chunk.first_position + i);
    }
  }
  GALVANI_TRY(single_rows_device_, block_.put(stream_, std::span<const int>(single_rows_)));
  return {};
}

void CudaOps::begin_layer(int layer) {
  layer_ = layer;
  // What a layer leaves behind for the next one's first kernel stands in its own arena until the one after that.
  arena_ = layer < 0 ? &step_arena_ : &layer_arenas_[layer & 1];
  if (layer >= 0) arena_->reset();
}

Status CudaOps::finish_step() {
  flush();
  launch_phases();
  if (mode_ == StepMode::kCapture) {
    auto captured = stream_.end_capture();
    mode_ = StepMode::kEager;
    if (!captured && step_status_) step_status_ = tl::unexpected<Error>(std::move(captured).error());
    if (step_status_) {
      GALVANI_TRY_VOID(upload_phases());
      DecodeGraph& graph = decode_graph();
      GALVANI_TRY(const size_t nodes, captured->node_count());
      GALVANI_TRY(cuda::GraphExec exec, captured->instantiate());
      graph.exec.emplace(std::move(exec));
      graph.info = {.rows = static_cast<int>(rows_), .nodes = static_cast<int64_t>(nodes)};
      for (const auto& [kernel, count] : captured->launches()) graph.info.kernels.emplace_back(kernel->name(), count);
      std::sort(graph.info.kernels.begin(), graph.info.kernels.end());
      graph_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - capture_start_).count();
      mode_ = StepMode::kReplay;
    }
  }
  if (!step_status_) return step_status_;
  if (mode_ == StepMode::kLook) {
    step_status_ = end_one_kernel();
  } else if (mode_ == StepMode::kReplay) {
    if (!replayed_) step_status_ = replay();
  } else if (decode_) {
    decode_graph().warm = true;
  }
  mode_ = StepMode::kEager;
  if (options_.count_activations && step_status_) step_status_ = collect_counts();
  // The results are waited for where they are read: sample() and read() report what went wrong on the device.
  return step_status_;
}

Status CudaOps::collect_counts() {
  std::vector<uint64_t> found(2 * counters_.size());
  GALVANI_TRY_VOID(stream_.to_host(found.data(), device_counters_.data(), found.size() * sizeof(uint64_t)));
  GALVANI_TRY_VOID(stream_.synchronize());
  for (size_t i = 0; i < counters_.size(); ++i)
    counters_[i].non_finite = found[2 * i], counters_[i].saturated = found[2 * i + 1];
  return {};
}

Status CudaOps::read(const Act& act, float* out) {
  const StoreType type = type_of(act);
  const auto bytes = static_cast<size_t>(store_bytes(type)), cols = static_cast<size_t>(act.cols);
  if (type == StoreType::kF32 && act.stride == act.cols) {
    GALVANI_TRY_VOID(stream_.to_host(out, act.data, static_cast<size_t>(act.rows) * cols * 4));
    return stream_.synchronize();
  }
  std::vector<std::byte> row(cols * bytes);
  for (int64_t r = 0; r < act.rows; ++r) {
    const auto* from = static_cast<const std::byte*>(act.data) + r * act.stride * static_cast<int64_t>(bytes);
    if (type == StoreType::kF32) {
      GALVANI_TRY_VOID(stream_.to_host(out + r * act.cols, from, cols * 4));
      continue;
    }
    GALVANI_TRY_VOID(stream_.to_host(row.data(), from, row.size()));
    GALVANI_TRY_VOID(stream_.synchronize());
    const auto* values = reinterpret_cast<const uint16_t*>(row.data());
    for (size_t i = 0; i < cols; ++i)
      out[static_cast<size_t>(r) * cols + i] = type == StoreType::kF16 ? f16_to_f32(values[i]) : bf16_to_f32(values[i]);
  }
  return stream_.synchronize();
}

Result<std::vector<kernels::SampledToken>> CudaOps::sample(const Act& logits,
                                                           std::span<const kernels::RowSampling> rows) {
  return sampler_.sample(stream_, floats(logits), logits.rows, logits.cols, logits.stride, rows);
}

std::vector<std::pair<std::string, uint64_t>> CudaOps::kernels_run() const {
  std::vector<std::pair<std::string, uint64_t>> runs;
  for (const cuda::Kernel* kernel : device_->kernels())
    if (kernel->launches() > 0) runs.emplace_back(kernel->name(), kernel->launches());
  return runs;
}

std::vector<GraphInfo> CudaOps::graphs() const {
  std::vector<GraphInfo> infos;
  for (const DecodeGraph& graph : graphs_)
    if (graph.exec) infos.push_back(graph.info);
  return infos;
}

Result<GpuIdentity> gpu_identity(int index) {
  GALVANI_TRY(const auto device, cuda::CudaDevice::open(index));
  return GpuIdentity{device->name(), device->caps()};
}

Result<std::unique_ptr<Ops>> create_cuda_ops(const OpsOptions& options, const CudaOpsOptions& gpu) {
  cuda::CudaOptions device_options;
  device_options.poison = options.poison;
  device_options.trace_plan = gpu.trace_plan;
  device_options.sync_every_launch = gpu.sync_every_launch;
  GALVANI_TRY(auto device, cuda::CudaDevice::open(gpu.device, device_options));
  GALVANI_TRY(auto stream, cuda::Stream::create(*device));
  auto ops = std::make_unique<CudaOps>(options, std::move(device), std::move(stream));
  GALVANI_TRY_VOID(ops->initialise(gpu.weight_bytes, gpu.one_kernel_keys));
  return std::unique_ptr<Ops>(std::move(ops));
}

}  // namespace galvani::exec
