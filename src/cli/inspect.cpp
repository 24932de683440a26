// galvani inspect: what a checkpoint holds and what running it would take, without reading its weights.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "cli/cli.h"
#include "cli/inspect_device.h"
#include "core/error.h"
#include "engine/runner.h"
#include "exec/recording_ops.h"
#include "models/model.h"
#include "quant/synthetic_checkpoint.h"

namespace galvani::cli {
namespace {

struct InspectFlags {
  ModelFlags model;
  bool all = false;
  int sequences = 1;
  std::string device;  ///< a part's name, or cuda[:N]
  CLI::Option* device_option = nullptr;
};

struct Row {
  std::string name, shape, format;
  int64_t bits_times_weights = 0, weights = 0, bytes = 0;
  int count = 0;
};

// "model.layers.7.mlp.up_proj" and its siblings of other layers are one row.
std::string folded_name(const std::string& name) {
  std::string folded;
  for (size_t i = 0; i < name.size();) {
    const bool number = std::isdigit(static_cast<unsigned char>(name[i])) && i > 0 && name[i - 1] == '.';
    size_t end = i;
    while (number && end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    if (number && (end == name.size() || name[end] == '.')) {
      folded += '*';
      i = end;
    } else {
      folded += name[i++];
    }
  }
  return folded;
}

std::vector<Row> rows_of(const exec::RecordingOps& ops, bool all) {
  std::vector<Row> rows;
  for (const auto& matrix : ops.matrices()) {
    const quant::MatrixSource& source = *matrix.source;
    Row row{.name = all ? source.name() : folded_name(source.name()),
            .shape = fmt::format("{} x {}", source.rows(), source.cols()),
            .format = source.format()};
    if (matrix.embedding) row.format += matrix.multiplied ? " (tied)" : " (look-up)";
    auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& r) {
      return r.name == row.name && r.shape == row.shape && r.format == row.format;
    });
    if (found == rows.end()) {
      rows.push_back(row);
      found = rows.end() - 1;
    }
    ++found->count;
    found->bytes += source.file_bytes();
    found->weights += source.rows() * source.cols();
  }
  return rows;
}

// Unlike fmt::print it does not throw when nobody reads any more; the end of the program reports that.
template <typename... Args>
void put(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
}

std::string megabytes(int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

void print_table(const std::vector<Row>& rows) {
  size_t name_width = 6;
  for (const Row& row : rows) name_width = std::max(name_width, row.name.size());
  put("\n{:<{}}  {:>5}  {:>16}  {:<28} {:>9}  {:>11}\n", "matrix", name_width, "count", "rows x cols", "format",
      "bits/wt", "bytes");
  for (const Row& row : rows)
    put("{:<{}}  {:>5}  {:>16}  {:<28} {:>9.3f}  {:>11}\n", row.name, name_width, row.count, row.shape, row.format,
        8.0 * static_cast<double>(row.bytes) / static_cast<double>(row.weights), megabytes(row.bytes));
}

// "layer 7 convolution" and its siblings of other layers are one line.
void print_slots(const std::vector<exec::SlotSpec>& slots) {
  std::vector<std::pair<std::string, int>> lines;
  for (const exec::SlotSpec& slot : slots) {
    std::string kind = slot.name;
    const size_t digits = std::string("layer ").size();
    if (kind.starts_with("layer ")) kind = kind.substr(std::min(kind.find(' ', digits), kind.size() - 1) + 1);
    const std::string line = fmt::format("{} {} of {}", kind, slot.shape.str(), dtype_name(slot.dtype));
    const auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == line; });
    if (known == lines.end())
      lines.emplace_back(line, 1);
    else
      ++known->second;
  }
  for (const auto& [line, count] : lines) put("  slots    {} x {} a sequence\n", count, line);
}

void print_state(const exec::StateSpec& spec, const exec::StateOptions& options) {
  const exec::StatePlan plan = exec::plan_state(spec, options);
  put("\nmemory for {} sequence(s) of {} tokens, {} keys and values\n", options.max_sequences, options.context,
      dtype_name(options.kv_dtype));
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    const exec::KvGroupSpec& group = spec.groups[g];
    const int64_t per_token =
        int64_t{group.layers} * group.kv_heads * (group.k_dim + group.v_dim) * dtype_bytes(options.kv_dtype);
    put("  {:<8} {} layers, {} kv heads x {}{}: {} bytes a token, {} pages of 64 = {}\n", group.name, group.layers,
        group.kv_heads, group.k_dim, group.window > 0 ? fmt::format(", window {}", group.window) : "", per_token,
        plan.group_pages[g], megabytes(plan.group_bytes[g]));
  }
  print_slots(spec.slots);
  if (plan.slot_bytes > 0) put("  recurrent state: {}\n", megabytes(plan.slot_bytes));
}

// Parts of a checkpoint that its family knows and does not run.
void print_left_out(const quant::Checkpoint& checkpoint) {
  constexpr std::pair<const char*, const char*> kParts[] = {{"mtp.", "multi-token prediction head"},
                                                            {"model.mtp.", "multi-token prediction head"},
                                                            {"model.visual.", "vision tower"},
                                                            {"visual.", "vision tower"},
                                                            {"vision_tower.", "vision tower"}};
  const std::vector<std::string> names = checkpoint.names();
  for (const auto& [prefix, what] : kParts) {
    const auto count =
        std::count_if(names.begin(), names.end(), [&](const std::string& name) { return name.rfind(prefix, 0) == 0; });
    if (count > 0) put("  {}: {} tensors ({}*), recognised and not run\n", what, count, prefix);
  }
}

Status inspect(const InspectFlags& flags) {
  GALVANI_TRY(const std::string path, flags.model.path());
  std::optional<DeviceTarget> target;  // found first: a name that is not known need not wait for the model
  if (flags.device_option->count() > 0) {
    GALVANI_TRY(target, find_device_target(flags.device));
  }
  GALVANI_TRY(const auto checkpoint, quant::Checkpoint::open(path));
  exec::RecordingOps ops;
  GALVANI_TRY(const auto model, models::load_model(*checkpoint, ops));
  const models::ModelInfo& info = model->info();
  const nlohmann::json& config = checkpoint->config();
  const auto number = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && found->is_number() ? found->dump() : std::string("-");
  };
  constexpr const char* kFormats[] = {"Hugging Face safetensors", "MLX safetensors", "GGUF"};
  put("{}\n", path);
  if (checkpoint->synthetic()) put("  SYNTHETIC WEIGHTS: random; its rates mean something, its output nothing\n");
  put("  family {}, {}\n", info.family,
      quant::synthetic_folder(path) ? "no files" : kFormats[static_cast<int>(checkpoint->format())]);
  put("  layers {}, hidden {}, intermediate {}, heads {}, kv heads {}, vocabulary {}, context {}\n", info.layers,
      info.hidden, number("intermediate_size"), number("num_attention_heads"), number("num_key_value_heads"),
      info.vocab, info.context);
  print_left_out(*checkpoint);
  print_table(rows_of(ops, flags.all));
  put("\nweights {} in the file; a decode step of one sequence reads {} of them\n", megabytes(ops.weight_bytes()),
      megabytes(ops.step_bytes()));
  exec::StateOptions state{
      .context = flags.model.context > 0 ? flags.model.context : std::min<int64_t>(info.context, 4096),
      .max_sequences = flags.sequences};
  GALVANI_TRY(state.kv_dtype, engine::kv_type(flags.model.kv, "auto"));
  // What `auto` takes there, which need not be what it takes here.
  if (target && flags.model.kv == "auto")
    state.kv_dtype = target->caps.has(Feature::kBf16) ? DType::kBF16 : DType::kF16;
  print_state(model->state_spec(), state);
  if (target) print_device_plans(*target, *model, ops, state);
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* verb = app.add_subcommand("inspect", "tensors, bits, bytes a decode step reads, memory plan");
  flags->model.add_synthetic(*verb);
  flags->model.add_to(*verb, false);
  verb->add_option("-c,--ctx-size", flags->model.context,
                   "context to plan memory for (default: the model's, at most 4096)")
      ->check(CLI::Range(int64_t{1}, (int64_t{1} << 31) - 1));
  verb->add_option(
          "--kv", flags->model.kv,
          "type of keys and values to plan for: auto, f32, f16, bf16 (default auto, as a run without --act takes them)")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}));
  verb->add_option("--sequences", flags->sequences, "sequences to plan memory for (default 1)")
      ->check(CLI::Range(1, 4096));
  flags->device_option = verb->add_option(
      "--device", flags->device,
      "also say whether it would run on a GPU, and which kernel each call takes: a part's name (v100, h200, "
      "\"RTX 5090\", ...), which need not be here, or cuda[:N]");
  verb->add_flag("--all", flags->all, "one row a tensor instead of folding layers");
  verb->callback([flags, &action] {
    action = [flags] {
      const Status done = inspect(*flags);
      return done ? kYes : report(done.error());
    };
  });
}

}  // namespace galvani::cli
