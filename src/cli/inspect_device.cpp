#include "cli/inspect_device.h"

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "cuda/choose_device.h"
#include "cuda/device.h"
#include "device/parts.h"
#include "exec/call_plans.h"

namespace galvani::cli {
namespace {

using Call = exec::RecordingOps::Call;

/// Rows of a step that are shown: one token, a batch that decodes, and chunks of a prompt.
constexpr int64_t kRows[] = {1, 8, 64, 512};

template <typename... Args>
void put(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
}

struct Target {
  std::string title;
  DeviceCaps caps;
};

Result<Target> find_target(const std::string& device) {
  if (const Part* part = find_part(device))
    return Target{fmt::format("{} ({}; peaks: {}), in a build for {}", part->key, part->name, part->source,
                              cuda_images_str(part->caps.images)),
                  part->caps};
  const auto request = cuda::parse_device(device);
  if (!request || request->kind == cuda::DeviceRequest::Kind::kAuto)
    return fail(ErrorCode::kInvalidArgument, "--device {}: no part of that name; known are {}, and cuda or cuda:N here",
                device, known_part_keys());
  GALVANI_TRY(const auto gpu, cuda::CudaDevice::open(request->index));
  return Target{
      fmt::format("cuda:{} ({}), in this build for {}", gpu->index(), gpu->name(), cuda_images_str(gpu->caps().images)),
      gpu->caps()};
}

/// A call as shown: layers of equal shape, format and plans share a line.
struct Line {
  std::string name, shape, format;
  std::vector<std::string> plans;
  int first = 0, last = 0, count = 0;

  bool same(const Line& other) const {
    return name == other.name && shape == other.shape && format == other.format && plans == other.plans;
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
  if (call.kind == Call::Kind::kAttention) {
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

std::vector<Line> lines_of(const DeviceCaps& caps, const models::Model& model, exec::RecordingOps& ops, DType kv) {
  std::vector<Line> calls;  // of the first pass, one a call; the others add their plans
  for (const int64_t rows : kRows) {
    const exec::Batch batch = ops.begin_recording(rows);
    model.forward(batch, ops);
    const std::vector<Call>& recorded = ops.calls();
    if (calls.empty())
      for (const Call& call : recorded) calls.push_back(line_of(call));
    for (size_t i = 0; i < recorded.size() && i < calls.size(); ++i)
      calls[i].plans.push_back(exec::cuda_call_plan(caps, recorded[i], kv));
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

}  // namespace

Status print_device_plans(const std::string& device, const models::Model& model, exec::RecordingOps& ops, DType kv) {
  GALVANI_TRY(const Target target, find_target(device));
  put("\nkernels on {}\n  {}\n", target.title, device_caps_str(target.caps));
  const double step_bytes = static_cast<double>(ops.step_bytes());
  if (target.caps.peak_gbps > 0)
    put("  a step of one sequence reads {:.1f} MB of weights: at most {:.0f} tokens/s at the datasheet's {:.0f} GB/s "
        "(a limit, not a prediction)\n",
        step_bytes / 1e6, target.caps.peak_gbps * 1e9 / step_bytes, target.caps.peak_gbps);
  for (const Line& line : lines_of(target.caps, model, ops, kv)) {
    put("\n{}  {}{}{}\n", line.name, line.shape, line.format.empty() ? "" : ", " + line.format,
        line.count > 1 ? fmt::format("; {} of them, layers {} to {}", line.count, line.first, line.last) : "");
    for (size_t i = 0; i < line.plans.size();) {
      size_t end = i + 1;
      while (end < line.plans.size() && line.plans[end] == line.plans[i]) ++end;
      const std::string rows =
          end - i > 1 ? fmt::format("{}..{}", kRows[i], kRows[end - 1]) : fmt::format("{}", kRows[i]);
      put("  {:>8} tokens  {}\n", rows, line.plans[i]);
      i = end;
    }
  }
  return {};
}

}  // namespace galvani::cli
