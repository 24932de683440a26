// Decode speed of whole models: bytes a step reads, per second, beside what the machine reads in the same run.
//
//   family_bench [--threads T] [--steps N] [--act A] [--json OUT] MODEL...
//
// For 1, 4 and 16 sequences: a prompt of 8 random tokens each, 3 steps that are not counted, then N steps of one random
// token a sequence (random, so that experts are chosen as they fall). Before every step a buffer beyond the caches is
// summed on all threads: the 90th percentile of its rate is the limit, and no step finds weights that the one before it
// left in a cache. Bytes of a step: dense weights once; of experts those that a token of the step has chosen
// (expert_counts before and after); keys and values of the sequences' past; recurrent state, read and written. All as
// packed in memory. Of mixtures: how many experts a step reads over all layers, and the busiest one's share of its
// layer.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "device/cpu_caps.h"
#include "engine/expert_use.h"
#include "engine/runner.h"
#include "exec/batch.h"
#include "kernels/common/large_pages.h"

namespace {
using namespace galvani;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename T>
T median(std::vector<T> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A buffer beyond the caches, on the large pages that weights lie on.
class ReadLimit {
 public:
  ReadLimit() : buffer_(kBytes) { std::fill_n(reinterpret_cast<uint64_t*>(buffer_.data()), kBytes / 8, 3); }
  /// GB/s of summing it once on all threads.
  double measure() {
    const double start = now();
    std::vector<uint64_t> sums(static_cast<size_t>(threads()) * 8);
    parallel_for(static_cast<int64_t>(kBytes), 4096, [&](int64_t begin, int64_t end, int t) {
      const auto* p = reinterpret_cast<const uint64_t*>(buffer_.data());
      uint64_t lanes[32] = {};
      for (int64_t i = begin / 8; i < end / 8; i += 32)
        for (int k = 0; k < 32; ++k) lanes[k] += p[i + k];
      for (uint64_t lane : lanes) sums[static_cast<size_t>(t) * 8] += lane;
    });
    for (uint64_t sum : sums) sink_ = sink_ + sum;
    return static_cast<double>(kBytes) / (now() - start) / 1e9;
  }

 private:
  static constexpr size_t kBytes = size_t{192} << 20;
  kernels::LargePageBuffer buffer_;
  volatile uint64_t sink_ = 0;
};

/// What a model's steps read, taken apart.
struct Bytes {
  double dense = 0;       ///< once a step
  double expert = 0;      ///< one expert of one layer
  double token_past = 0;  ///< keys and values of one position of one sequence, all layers that keep everything
  double state = 0;       ///< recurrent state of one sequence
  int experts = 0;        ///< a layer
  int expert_layers = 0;
};

/// step_bytes holds every layer's share of top_k / experts; with the total that gives the experts' bytes.
Bytes take_apart(engine::Runner& runner, int top_k) {
  Bytes bytes;
  const auto total = static_cast<double>(runner.ops().weight_bytes()),
             step = static_cast<double>(runner.ops().step_bytes());
  for (const auto& layer : runner.ops().expert_counts()) {
    if (layer.empty()) continue;
    bytes.experts = static_cast<int>(layer.size());
    ++bytes.expert_layers;
  }
  bytes.dense = step;
  if (bytes.expert_layers > 0) {
    const double share = static_cast<double>(top_k) / bytes.experts;
    const double stacks = share < 1 ? (total - step) / (1 - share) : 0;
    bytes.dense = step - stacks * share;
    bytes.expert = stacks / bytes.experts / bytes.expert_layers;
  }
  const auto spec = runner.model().state_spec();
  const double element = static_cast<double>(dtype_bytes(runner.state().options().kv_dtype));
  for (const auto& group : spec.groups)
    bytes.token_past += element * group.layers * group.kv_heads * (group.k_dim + group.v_dim);
  for (const auto& slot : spec.slots)
    bytes.state += static_cast<double>(slot.shape.elements().value_or(0) * dtype_bytes(slot.dtype));
  return bytes;
}

struct Options {
  int steps = 24;
  std::string act = "auto", json;
  std::vector<std::string> models;
};

constexpr int kPrompt = 8, kWarm = 3;

struct Step {
  double seconds = 0, bytes = 0, read = 0;
  int64_t experts = 0;  ///< whose weights it read, over all layers
};

struct Decoded {
  std::vector<Step> steps;
  double busiest = 0;  ///< over the steps that count, the busiest expert's share of its layer's tokens
};

/// One step of `tokens` more tokens for every sequence.
Status forward(engine::Runner& runner, const std::vector<exec::SeqId>& ids, int tokens, std::mt19937& random) {
  exec::Batch batch;
  for (const exec::SeqId id : ids) {
    std::vector<int32_t> next;
    for (int i = 0; i < tokens; ++i)
      next.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(runner.info().vocab)));
    batch.add(id, runner.state().length(id), next, exec::WantLogits::kLast);
  }
  auto done = runner.forward(batch);
  if (!done) return tl::unexpected(done.error());
  return {};
}

Result<Decoded> decode(engine::Runner& runner, ReadLimit& limit, int sequences, const Options& options, int top_k) {
  std::mt19937 random(17);
  std::vector<exec::SeqId> ids;
  for (int i = 0; i < sequences; ++i) {
    auto id = runner.state().create_sequence();
    if (!id) return tl::unexpected(id.error());
    ids.push_back(*id);
  }
  if (auto done = forward(runner, ids, kPrompt, random); !done) return tl::unexpected(done.error());
  const Bytes bytes = take_apart(runner, top_k);
  Decoded decoded;
  engine::ExpertCounts first;
  for (int i = 0; i < kWarm + options.steps; ++i) {
    Step step{.read = limit.measure()};
    const engine::ExpertCounts before = runner.ops().expert_counts();
    if (i == kWarm) first = before;
    const double start = now();
    if (auto done = forward(runner, ids, 1, random); !done) return tl::unexpected(done.error());
    step.seconds = now() - start;
    step.experts = engine::experts_read(engine::counted_since(before, runner.ops().expert_counts()));
    step.bytes = bytes.dense + bytes.expert * static_cast<double>(step.experts) +
                 sequences * (bytes.token_past * (kPrompt + i + 1) + 2 * bytes.state);
    if (i >= kWarm) decoded.steps.push_back(step);
  }
  decoded.busiest = engine::busiest_share(engine::counted_since(first, runner.ops().expert_counts()));
  for (const exec::SeqId id : ids) runner.state().release(id);
  return decoded;
}

int experts_per_token(const nlohmann::json& config) {
  for (const char* key : {"num_experts_per_tok", "top_k_experts", "experts_per_token"})
    if (const auto found = config.find(key); found != config.end() && found->is_number()) return found->get<int>();
  return 0;
}

/// Runs one model; false after an error, which was printed.
bool run(const std::string& path, ReadLimit& limit, const Options& options, nlohmann::json& rows) {
  LoadOptions load;
  load.model = path;
  load.act = options.act;
  load.context = kPrompt + kWarm + options.steps + 2;
  load.max_sequences = 16;
  load.threads = threads();
  auto runner = engine::Runner::load(load);
  if (!runner) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), runner.error().message.c_str());
    return false;
  }
  const int top_k = experts_per_token((*runner)->checkpoint().config());
  for (const int sequences : {1, 4, 16}) {
    auto decoded = decode(**runner, limit, sequences, options, top_k);
    if (!decoded) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), decoded.error().message.c_str());
      return false;
    }
    std::vector<double> ms, rates, reads, megabytes;
    nlohmann::json repetitions = nlohmann::json::array();
    std::vector<int64_t> experts;
    for (const Step& step : decoded->steps) {
      experts.push_back(step.experts);
      ms.push_back(step.seconds * 1e3), rates.push_back(step.bytes / step.seconds / 1e9);
      reads.push_back(step.read), megabytes.push_back(step.bytes / 1e6);
      repetitions.push_back(
          {{"ms", ms.back()}, {"mb", megabytes.back()}, {"read_gbs", step.read}, {"experts", step.experts}});
    }
    const double best = *std::ranges::max_element(rates);
    // Neighbours on the memory bus slow some of the sums down: near the best of them is what the machine can do.
    std::ranges::sort(reads);
    const double limit_gbs = reads[reads.size() * 9 / 10];
    fmt::print("{:<14} {:>3} {:>6} {:>8.1f} {:>9.2f} {:>7.1f} {:>7.1f} {:>7.1f} {:>6.0f} % {:>8} {:>6.1f} %\n",
               (*runner)->info().family, sequences, (*runner)->info().weight_bytes / 1000000, median(megabytes),
               median(ms), median(rates), best, limit_gbs, 100 * median(rates) / limit_gbs, median(experts),
               100 * decoded->busiest);
    std::fflush(stdout);
    rows.push_back({{"family", (*runner)->info().family},
                    {"sequences", sequences},
                    {"act", (*runner)->info().act},
                    {"weight_bytes", (*runner)->info().weight_bytes},
                    {"busiest_expert", decoded->busiest},
                    {"steps", repetitions}});
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int thread_count = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--threads" && more)
      thread_count = std::atoi(argv[++i]);
    else if (arg == "--steps" && more)
      options.steps = std::max(1, std::atoi(argv[++i]));
    else if (arg == "--act" && more)
      options.act = argv[++i];
    else if (arg == "--json" && more)
      options.json = argv[++i];
    else if (arg.starts_with("-"))
      return std::fprintf(stderr, "usage: family_bench [--threads T] [--steps N] [--act A] [--json OUT] MODEL...\n"), 2;
    else
      options.models.push_back(arg);
  }
  set_threads(thread_count);
  ReadLimit limit;
  std::vector<double> reads;
  for (int i = 0; i < 9; ++i) reads.push_back(limit.measure());
  fmt::print("{}; {} threads; reads {:.1f} GB/s\n", cpu_caps_str(cpu_caps()), threads(), median(reads));
  fmt::print("{:<14} {:>3} {:>6} {:>8} {:>9} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8}\n", "family", "seq", "MB", "MB/step",
             "ms/step", "GB/s", "best", "read", "share", "experts", "busiest");
  nlohmann::json rows = nlohmann::json::array();
  bool good = true;
  for (const std::string& model : options.models) good = run(model, limit, options, rows) && good;
  if (!options.json.empty()) std::ofstream(options.json) << rows.dump(1) << "\n";
  return good ? 0 : 1;
}
