#include "cli/inspect_device.h"

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "cuda/choose_device.h"
#include "cuda/device.h"
#include "device/parts.h"
#include "exec/call_plans.h"
#include "exec/cuda_weights.h"

namespace galvani::cli {
namespace {

using Call = exec::RecordingOps::Call;

/// Rows of a step that are shown: one token, a batch that decodes, and chunks of a prompt.
constexpr int64_t kRows[] = {1, 8, 64, 512};

template <typename... Args>
void put(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
}

/// A call as shown: layers of equal shape, format and plans share a line.
struct Line {
  std::string name, shape, format;
  std::vector<std::string> plans;  ///< of each of kRows
  std::vector<bool> runs;          ///< likewise
  int first = 0, last = 0, count = 0;

  bool same(const Line& other) const {
    return name == other.name && shape == other.shape && format == other.format && plans == other.plans;
  }
  /// The plan of the first number of rows that is refused; null: none is.
  const std::string* refusal() const {
    const auto refused = std::find(runs.begin(), runs.end(), false);
    return refused == runs.end() ? nullptr : &plans[static_cast<size_t>(refused - runs.begin())];
  }
  std::string str() const {
    return fmt::format("{}  {}{}{}", name, shape, format.empty() ? "" : ", " + format,
                       count > 1 ? fmt::format("; {} of them, layers {} to {}", count, first, last) : "");
  }
};

/// "model.layers.7.self_attn.q_proj" → "self_attn.q_proj".
std::string short_name(const std::string& name) {
  const size_t at = name.find(".layers.");
  if (at == std::string::npos) return name;
  const size_t dot = name.find('.', at + 8);
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

Line line_of(const Call& call) {
  Line line{.name = short_name(call.name), .first = call.layer, .last = call.layer, .count = 1};
  if (call.kind == Call::Kind::kGatedDelta) {
    line.shape = fmt::format("{} value and {} key heads, {} x {}", call.heads, call.kv_heads, call.k_dim, call.v_dim);
    return line;
  }
  if (call.kind == Call::Kind::kAttention || call.kind == Call::Kind::kLatentAttention) {
    line.shape = fmt::format("{} heads, {} kv x {}{}{}", call.heads, call.kv_heads, call.k_dim,
                             call.v_dim != call.k_dim ? fmt::format("/{}", call.v_dim) : "",
                             call.window > 0 ? fmt::format(", window {}", call.window) : "");
    return line;
  }
  line.shape =
      fmt::format("{} x {}{}", call.out, call.in, call.experts > 0 ? fmt::format(", one of {}", call.experts) : "");
  for (const quant::MatrixPtr& part : call.parts)
    if (line.format.find(part->format()) == std::string::npos)
      line.format += (line.format.empty() ? "" : " + ") + part->format();
  return line;
}

/// step: how a decode step of one token runs.
std::vector<Line> lines_of(const DeviceCaps& caps, const models::Model& model, exec::RecordingOps& ops, DType kv,
                           std::string& step) {
  const exec::GpuChoice choice{.arithmetic = exec::gpu_arithmetic(caps), .kv = kv};
  std::vector<Line> calls;  // of the first pass, one a call; the others add their plans
  for (const int64_t rows : kRows) {
    const exec::Batch batch = ops.begin_recording(rows);
    model.forward(batch, ops);
    const std::vector<Call>& recorded = ops.calls();
    if (rows == 1) step = exec::cuda_step_plan(caps, ops, choice);
    if (calls.empty())
      for (const Call& call : recorded) calls.push_back(line_of(call));
    for (size_t i = 0; i < recorded.size() && i < calls.size(); ++i) {
      calls[i].plans.push_back(exec::cuda_call_plan(caps, recorded[i], choice));
      calls[i].runs.push_back(exec::cuda_call_refusal(caps, recorded[i], choice).empty());
    }
  }
  std::vector<Line> lines;
  for (Line& call : calls) {
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.same(call); });
    if (found == lines.end()) {
      lines.push_back(std::move(call));
    } else {
      found->last = std::max(found->last, call.first);
      ++found->count;
    }
  }
  return lines;
}

/// "  1..64 tokens  kernel=…", equal neighbours as one.
std::string plans_text(const std::vector<std::string>& plans) {
  std::string text;
  for (size_t i = 0; i < plans.size();) {
    size_t end = i + 1;
    while (end < plans.size() && plans[end] == plans[i]) ++end;
    const std::string rows =
        end - i > 1 ? fmt::format("{}..{}", kRows[i], kRows[end - 1]) : fmt::format("{}", kRows[i]);
    text += fmt::format("  {:>8} tokens  {}\n", rows, plans[i]);
    i = end;
  }
  return text;
}

/// Whether a run would find a kernel for everything, and if not, which calls are in the way and what would happen
/// instead.
bool print_verdict(const std::vector<Line>& lines) {
  int calls = 0, refused = 0;
  std::vector<std::pair<std::string, std::string>> reasons;  // why, and for what
  for (const Line& line : lines) {
    calls += line.count;
    const std::string* const refusal = line.refusal();
    if (refusal == nullptr) continue;
    refused += line.count;
    const std::string& why = *refusal;
    const std::string what = line.count > 1 ? fmt::format("{} ({})", line.name, line.count) : line.name;
    const auto known = std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == why; });
    if (known == reasons.end())
      reasons.emplace_back(why, what);
    else if ((", " + known->second + ",").find(", " + what + ",") == std::string::npos)
      known->second += ", " + what;
  }
  if (refused == 0) {
    put("  verdict: RUNS THERE by plan: each of a step's {} calls has a CUDA kernel for {} to {} tokens\n", calls,
        kRows[0], kRows[std::size(kRows) - 1]);
    return true;
  }
  put("  verdict: DOES NOT RUN THERE: {} of a step's {} calls have no CUDA kernel\n", refused, calls);
  for (const auto& [why, what] : reasons) put("    {}: {}\n", what, why);
  put("  Instead: --device auto takes the CPU for the whole model; --device cuda refuses to load it\n");
  return false;
}

/// Weights as they lie on a GPU, keys and values, workspaces of products. Activations, some MiB, are not known here.
void print_memory(const DeviceCaps& caps, const models::Model& model, const exec::RecordingOps& ops,
                  const exec::StateOptions& state) {
  if (caps.memory_bytes <= 0) return;
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  const int64_t weights = exec::gpu_weight_bytes(ops);
  const exec::StatePlan plan = exec::plan_state(model.state_spec(), state);
  const int64_t workspaces =
      exec::gpu_workspace_bytes(caps, ops.calls(), {.arithmetic = exec::gpu_arithmetic(caps), .kv = state.kv_dtype});
  const int64_t sequences = plan.kv_bytes + plan.slot_bytes, total = weights + sequences + workspaces;
  put("  memory: {:.2f} of its {:.0f} GiB, and some for activations: weights {:.2f}, {} sequence{} of {} tokens "
      "{:.2f}, "
      "workspaces of products {:.2f}{}\n",
      gib(total), gib(caps.memory_bytes), gib(weights), state.max_sequences, state.max_sequences == 1 ? "" : "s",
      state.context, gib(sequences), gib(workspaces),
      total < caps.memory_bytes ? "" : "; DOES NOT FIT: lower -c or --sequences, or take fewer bits");
}

}  // namespace

Result<DeviceTarget> find_device_target(const std::string& device) {
  if (const Part* part = find_part(device))
    return DeviceTarget{fmt::format("{} ({}; peaks: {}), in a build for {}", part->key, part->name, part->source,
                                    cuda_images_str(part->caps.images)),
                        part->caps};
  const auto request = cuda::parse_device(device);
  if (!request || request->kind != cuda::DeviceRequest::Kind::kCuda) {
    const std::string like = part_keys_like(device);
    return fail(
        ErrorCode::kInvalidArgument,
        "--device {}: no part of that name{}; known are {}, and cuda or cuda:N here; without --device inspect is about "
        "the CPU",
        device, like.empty() ? "" : " (like it: " + like + ")", known_part_keys());
  }
  const auto gpu_here = cuda::CudaDevice::open(request->index);
  if (!gpu_here) {
    // Its advice, --device cpu, is for runs.
    std::string why = gpu_here.error().message;
    for (const std::string advice : {"; use --device cpu", ", or use --device cpu"})
      if (const size_t at = why.find(advice); at != std::string::npos) why.erase(at, advice.size());
    return fail(gpu_here.error().code,
                "{}. A part need not be here to be asked about: --device takes {}; without --device inspect is about "
                "the CPU",
                why, known_part_keys());
  }
  const auto& gpu = *gpu_here;
  return DeviceTarget{
      fmt::format("cuda:{} ({}), in this build for {}", gpu->index(), gpu->name(), cuda_images_str(gpu->caps().images)),
      gpu->caps()};
}

void print_device_plans(const DeviceTarget& target, const models::Model& model, exec::RecordingOps& ops,
                        const exec::StateOptions& state) {
  put("\nkernels on {}\n  {}\n", target.title, device_caps_str(target.caps));
  std::string step;
  const std::vector<Line> lines = lines_of(target.caps, model, ops, state.kv_dtype, step);
  if (print_verdict(lines)) {
    print_memory(target.caps, model, ops, state);
    put("  a decode step of one token: {}{}\n", step,
        step.starts_with("kernel=")
            ? " (what stands below for 1 token runs beyond these keys, and with --arm step=launches)"
            : "");
  }
  const double step_bytes = static_cast<double>(exec::gpu_step_bytes(ops));
  if (target.caps.peak_gbps > 0)
    put("  a step of one sequence reads {:.1f} MB of weights: at most {:.0f} tokens/s at the datasheet's {:.0f} GB/s "
        "(a limit, not a prediction)\n",
        step_bytes / 1e6, target.caps.peak_gbps * 1e9 / step_bytes, target.caps.peak_gbps);
  // Calls with the same plans stand above them together.
  std::vector<bool> shown(lines.size(), false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (shown[i]) continue;
    put("\n");
    for (size_t j = i; j < lines.size(); ++j) {
      if (shown[j] || lines[j].plans != lines[i].plans) continue;
      shown[j] = true;
      put("{}\n", lines[j].str());
    }
    put("{}", plans_text(lines[i].plans));
  }
}

}  // namespace galvani::cli
