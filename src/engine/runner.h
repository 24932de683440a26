#pragma once
/// A model with its backend and state, ready for forward passes: what Engine schedules onto and eval drives directly.
#include <functional>
#include <memory>
#include <span>

#include "exec/ops.h"
#include "galvani/engine.h"
#include "models/model.h"

namespace galvani::engine {

/// Type of keys and values that Runner::load takes for these options ("auto" follows the arithmetic).
Result<DType> kv_type(const std::string& kv, const std::string& act);

class Runner {
 public:
  static Result<std::unique_ptr<Runner>> load(const LoadOptions& options);

  const EngineInfo& info() const { return info_; }
  /// info().times with what the backend has done since: graphs are captured while steps run.
  LoadTimes load_times() const;
  const models::Model& model() const { return *model_; }
  exec::Ops& ops() { return *ops_; }
  exec::State& state() { return *state_; }
  const quant::Checkpoint& checkpoint() const { return *checkpoint_; }
  /// Token ids never to be sampled (generation_config's suppress_tokens).
  const std::vector<int32_t>& suppressed() const { return suppressed_; }

  /// One forward pass: reserves pages, runs, commits. The returned logits live until the next call. On an error the
  /// sequences keep the lengths they had; those with recurrent state can then only be released.
  Result<exec::Act> forward(const exec::Batch& batch);

  /// Receives [count, vocab] f32 rows of the positions from `first` on.
  using LogitSink = std::function<Status(int64_t first, int64_t count, const float* logits)>;
  /// Logits of every position of `ids`, run as one sequence in chunks of at most `chunk` tokens.
  Status all_logits(std::span<const int32_t> ids, int64_t chunk, const LogitSink& sink);

 private:
  Runner() = default;
  /// On GPU `gpu`, or the CPU (−1).
  static Result<std::unique_ptr<Runner>> load_on(const LoadOptions& options, int gpu);
  /// What model, backend and checkpoint say of themselves.
  void fill_info();
  std::shared_ptr<quant::Checkpoint> checkpoint_;
  std::unique_ptr<exec::Ops> ops_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<exec::State> state_;
  std::vector<int32_t> suppressed_;
  EngineInfo info_;
};

}  // namespace galvani::engine
