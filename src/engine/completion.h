#pragma once
/// Runs one request to its end on the calling thread, as text: what `generate` and `chat` do.
#include <functional>
#include <string>
#include <vector>

#include "galvani/engine.h"
#include "text/tokenizer.h"

namespace galvani::engine {

struct CompletionOptions {
  std::vector<std::string> stop;  ///< the output ends before the first of these
  bool keep_special = false;      ///< show special tokens too
  /// Asked before each step; true ends the run as cancelled.
  std::function<bool()> cancelled;
};

struct CompletionResult {
  std::string text;
  std::vector<int32_t> tokens;
  bool stopped_by_string = false;
  FinishReason finish = FinishReason::kRunning;
  int64_t prompt_tokens = 0;
  RequestTimes times;

  /// Prompt tokens a second, from the request's first step to its first token.
  double prompt_tps() const;
  /// (N − 1) / (t_N − t_1): 0 when fewer than two tokens came.
  double generated_tps() const;
};

/// `show` gets text as soon as it is complete UTF-8 and cannot be the start of a stop string.
Result<CompletionResult> complete(Engine& engine, const text::Tokenizer::Pointer& tokenizer, Request request,
                                  const CompletionOptions& options,
                                  const std::function<void(const std::string&)>& show);

}  // namespace galvani::engine
