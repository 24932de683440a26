#include "engine/completion.h"

#include "core/error.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace galvani::engine {

double CompletionResult::prompt_tps() const {
  const double ms = times.first_token - times.start;
  return ms > 0 ? 1e3 * static_cast<double>(prompt_tokens) / ms : 0;
}

double CompletionResult::generated_tps() const {
  const double ms = times.last_token - times.first_token;
  return tokens.size() > 1 && ms > 0 ? 1e3 * static_cast<double>(tokens.size() - 1) / ms : 0;
}

Result<CompletionResult> complete(Engine& engine, const text::Tokenizer::Pointer& tokenizer, Request request,
                                  const CompletionOptions& options,
                                  const std::function<void(const std::string&)>& show) {
  GALVANI_TRY(text::StopStrings stops, text::StopStrings::create(options.stop));
  text::Detokenizer detokenizer(tokenizer, !options.keep_special);
  CompletionResult result;
  // What a piece of text lets be shown now.
  const auto emit = [&](const std::string& piece, bool last) {
    std::string shown;
    stops.push(piece, shown);
    if (last) stops.finish(shown);
    if (shown.empty()) return;
    result.text += shown;
    show(shown);
  };
  GALVANI_TRY(const RequestId id, engine.submit(std::move(request)));
  while (true) {
    if (options.cancelled && options.cancelled()) engine.cancel(id);
    GALVANI_TRY(const bool worked, engine.step());
    GALVANI_TRY(const Update update, engine.poll(id));
    result.prompt_tokens = update.prompt_tokens;
    if (result.stopped_by_string) {  // the cancelled request has now ended
      result.finish = FinishReason::kStop;
      return result;
    }
    result.times = update.times;
    for (int32_t token : update.tokens) {
      result.tokens.push_back(token);
      emit(detokenizer.push(token), false);
      if (stops.stopped()) break;
    }
    if (update.finish == FinishReason::kError) return tl::unexpected<Error>(update.error);
    if (stops.stopped()) {
      result.stopped_by_string = true;
      if (update.finish != FinishReason::kRunning || !engine.cancel(id)) {
        result.finish = FinishReason::kStop;
        return result;
      }
      continue;
    }
    if (update.finish != FinishReason::kRunning) {
      emit(detokenizer.finish(), true);
      result.stopped_by_string = stops.stopped();
      result.finish = stops.stopped() ? FinishReason::kStop : update.finish;
      return result;
    }
    GALVANI_CHECK(worked, "the engine is idle while request {} runs", id);
  }
}

}  // namespace galvani::engine
