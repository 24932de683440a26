#pragma once
/// `galvani bench -m`: a whole model. Prefill of a prompt and greedy decode steps with their sampling, decode's bytes
/// beside the part's own read ceiling, measured in the same run.
///
/// Protocol: one untimed prefill (it loads kernels), one timed for each sequence, of which the last counts; then
/// `steps` decode steps of all sequences together, the first eight left out where there are more, their median and
/// spread. A record of synthetic weights says so in every form.
#include <string>
#include <vector>

#include "engine/expert_use.h"
#include "galvani/engine.h"

namespace galvani::bench {

struct ModelBenchOptions {
  LoadOptions load;  ///< context, sequences and tokens of a step are set from what follows
  int prompt = 512, steps = 256, sequences = 1;
  bool ceiling = true;  ///< measure the GPU's read ceiling
};

struct ModelRecord {
  std::string model;
  EngineInfo info;  ///< info.synthetic: random weights
  LoadTimes times;
  int prompt = 0, sequences = 0;
  double load_seconds = 0, prefill_seconds = 0;
  std::vector<double> step_seconds;  ///< ascending
  /// Weights, and keys and values half-way through. Of a mixture on the CPU the weights that its products walked over,
  /// else what one sequence's step reads.
  double step_bytes = 0;
  double read_ceiling_gbps = 0;  ///< 0: not measured
  std::vector<GraphInfo> graphs;
  /// Of a mixture of experts, over the steps that count: tokens by expert, and how many experts each step read over all
  /// layers. Empty for other models.
  engine::ExpertCounts experts;
  std::vector<int64_t> experts_read;

  double step() const { return step_seconds[step_seconds.size() / 2]; }
};

/// Errors: numbers below 1, whatever loading and running report.
Result<ModelRecord> bench_model(ModelBenchOptions options);

std::string model_record_text(const ModelRecord& record);
std::string model_record_json(const ModelRecord& record);

}  // namespace galvani::bench
