#pragma once
/// The engine: loads a model and runs requests in steps. submit, cancel and poll may be called from any thread; step()
/// belongs to one thread at a time.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "galvani/error.h"
#include "galvani/graph_info.h"
#include "galvani/sampling.h"

namespace galvani {

struct LoadOptions {
  std::string model;             ///< folder with config.json and safetensors, a .gguf file, or synthetic:BITS:CONFIG
  std::string device = "auto";   ///< "auto", "cpu", "cuda" or "cuda:N"
  std::string act = "auto";      ///< arithmetic of matrix products: auto, f32, f16, bf16
  std::string kv = "auto";       ///< type of keys and values: auto, f32, f16, bf16
  int threads = 0;               ///< 0: physical cores
  int64_t context = 0;           ///< tokens a sequence may reach; 0: the model's, at most 4096
  int max_sequences = 1;         ///< running at once
  int max_batch_tokens = 512;    ///< tokens of one step, prefill chunks and decode rows together
  int64_t valid_vocab = 0;       ///< ids at or above it are padding and never sampled; 0: all are valid
  bool batch_invariant = false;  ///< same bits whatever else is in the batch
  bool count_activations = false;
  bool poison = false;      ///< fill every output with NaN before it is computed
  bool trace_plan = false;  ///< log which GPU kernel each operation takes, and why
  /// A GPU: MiB that a matrix may take in 16 bits where products of many tokens are fastest through cuBLASLt (the
  /// expand arm, on parts before 9.0); 0 forbids it.
  int64_t expand_mib = 512;
  /// A GPU: keys up to which a decode step of one token may be one kernel; beyond them it is a launch an operation,
  /// whose attention is faster there. Below 0: as planned, where a layer's keys and values pass 64 MiB.
  int64_t one_kernel_keys = -1;
  bool cuda_sync = false;                                 ///< wait after each GPU launch: an error names its kernel
  std::vector<std::pair<std::string, std::string>> arms;  ///< forced arms, e.g. {"qmatmul", "rows"}
  std::function<void(double)> progress;                   ///< share of the load done, 0…1
};

/// Where the time before the first step went, in milliseconds. On a GPU weights are read, packed and copied in one
/// stream, all of it `upload`; `pack` is then what loading took beside it. `upload` and `graph` are 0 on a CPU.
struct LoadTimes {
  double open = 0;           ///< headers, config
  double map = 0;            ///< mapping the files
  double pack = 0;           ///< reading weights and packing them for the arms
  double upload = 0;         ///< from the page cache until the weights are ready on the GPU
  int64_t upload_bytes = 0;  ///< as they lie there
  /// Of upload, what the thread that loads waited for: allocations, blocks to be read, copies and packing.
  double upload_memory = 0, upload_reading = 0, upload_link = 0;
  double graph = 0;  ///< capturing decode graphs: later than the first token, at each size's second step
};

/// What was loaded.
struct EngineInfo {
  std::string family, device, act, kv, quantization;
  bool synthetic = false;  ///< random weights: rates mean something, the output nothing
  int layers = 0, threads = 0;
  int64_t hidden = 0, vocab = 0, model_context = 0, context = 0;
  int64_t weight_bytes = 0, step_bytes = 0, state_bytes = 0;
  std::vector<int32_t> eos_ids;
  std::vector<std::pair<std::string, std::string>> arms;  ///< forced: LoadOptions::arms
  SamplingParams default_sampling;  ///< generation_config.json's, where it samples; greedy otherwise
  LoadTimes times;
};

using RequestId = uint64_t;

struct Request {
  std::vector<int32_t> prompt;  ///< at least one id, all inside the vocabulary
  SamplingParams sampling;
  int64_t max_tokens = 128;  ///< at least 1; prompt + max_tokens may pass the context: the run then ends there
  bool ignore_eos = false;
  std::vector<int32_t> stop_ids;  ///< end like EOS does
};

enum class FinishReason { kRunning, kStop, kLength, kContext, kCancelled, kError };
const char* finish_reason_name(FinishReason reason) noexcept;

/// Times of one request on a steady clock, in milliseconds since submit.
struct RequestTimes {
  double start = 0;        ///< its first step began
  double first_token = 0;  ///< its first token was known
  double last_token = 0;
};

/// News of a request since the last poll.
struct Update {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  ///< one a token: log-softmax of the raw logits
  std::vector<std::vector<std::pair<int32_t, float>>> top_logprobs;
  FinishReason finish = FinishReason::kRunning;
  Error error;  ///< when finish is kError
  int64_t prompt_tokens = 0, generated_tokens = 0;
  RequestTimes times;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> load(const LoadOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineInfo& info() const;

  /// Checks the request and queues it. kInvalidArgument and kOutOfRange name what is wrong.
  Result<RequestId> submit(Request request);
  /// Ends a request at the next step; false when there is no such request running.
  bool cancel(RequestId id);
  /// New tokens and state. A finished request is forgotten once its end has been polled; kNotFound after that.
  Result<Update> poll(RequestId id);

  /// Runs one step over everything that is running; false when there was nothing to do.
  Result<bool> step();
  /// Blocks until there is work, or the time is over; true when there is work.
  bool wait(std::chrono::milliseconds timeout);

  // The next three are as of the last end of a request, or of a step at most 0.1 s before the last one.
  /// info().times, with the graphs captured meanwhile.
  LoadTimes times() const;
  /// Decode steps captured so far, by size; none on a CPU.
  std::vector<GraphInfo> graphs() const;
  /// Arms that ran so far, with counts.
  std::vector<std::pair<std::string, uint64_t>> kernels_run() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace galvani
