// galvani chat: a conversation on the terminal, with the model's own chat template.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/sampling_flags.h"
#include "cli/text_input.h"
#include "core/error.h"
#include "engine/completion.h"
#include "engine/forced_arms.h"

namespace galvani::cli {
namespace {

using nlohmann::ordered_json;

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string system;
};

constexpr const char* kHelp =
    "  /clear    forget the conversation\n"
    "  /exit     leave (Ctrl-D too)\n"
    "  /help     this list\n"
    "Ctrl-C stops an answer, and leaves when there is none.\n";

class Conversation {
 public:
  Conversation(const ChatFlags& flags, ModelText text, std::unique_ptr<Engine> engine, SamplingParams sampling)
      : flags_(flags), text_(std::move(text)), engine_(std::move(engine)), sampling_(std::move(sampling)) {
    clear();
  }

  void clear() {
    messages_ = ordered_json::array();
    if (!flags_.system.empty()) messages_.push_back({{"role", "system"}, {"content", flags_.system}});
  }

  /// One turn. On an error the conversation is as it was before.
  Status answer(const std::string& line) {
    messages_.push_back({{"role", "user"}, {"content", line}});
    auto done = run();
    if (!done) {
      messages_.erase(messages_.size() - 1);
      return tl::unexpected<Error>(done.error());
    }
    messages_.push_back({{"role", "assistant"}, {"content", done->text}});
    if (isatty(STDERR_FILENO))
      std::fprintf(stderr, "[%zu tokens, %.1f tokens/s; prompt %lld tokens, %.1f tokens/s%s]\n", done->tokens.size(),
                   done->generated_tps(), static_cast<long long>(done->prompt_tokens), done->prompt_tps(),
                   done->finish == FinishReason::kStop
                       ? ""
                       : fmt::format("; ended: {}", finish_reason_name(done->finish)).c_str());
    return {};
  }

  /// Standard output can no longer be written.
  bool output_lost() const { return output_lost_; }

 private:
  Result<engine::CompletionResult> run() {
    Request request;
    GALVANI_TRY(request.prompt, text_.chat_ids(messages_, {}, {}));
    request.sampling = sampling_;
    request.max_tokens = flags_.sampling.max_tokens;
    request.ignore_eos = flags_.sampling.ignore_eos;
    if (text_.tokenizer->eot_id()) request.stop_ids.push_back(*text_.tokenizer->eot_id());
    Status shown;
    auto result = engine::complete(*engine_, text_.tokenizer, std::move(request),
                                   {.stop = flags_.sampling.stop, .cancelled = [&] { return interrupted() || !shown; }},
                                   [&](const std::string& piece) {
                                     if (shown) shown = print(piece);
                                   });
    if (shown && result) shown = print("\n");
    if (!shown) output_lost_ = true;
    GALVANI_TRY_VOID(shown);
    return result;
  }

  const ChatFlags& flags_;
  ModelText text_;
  std::unique_ptr<Engine> engine_;
  SamplingParams sampling_;
  ordered_json messages_;
  bool output_lost_ = false;
};

Status chat(const ChatFlags& flags) {
  GALVANI_TRY_VOID(flags.sampling.check());
  GALVANI_TRY(LoadOptions options, flags.model.load_options());
  GALVANI_TRY(ModelText text, ModelText::open(options.model, flags.model.tokenizer));
  if (!text.chat) return tl::unexpected<Error>(text.no_chat);
  options.valid_vocab = static_cast<int64_t>(text.tokenizer->vocab_size());
  GALVANI_TRY(auto engine, Engine::load(options));
  GALVANI_TRY(SamplingParams sampling, flags.sampling.params(engine->info()));
  const EngineInfo& info = engine->info();
  if (isatty(STDERR_FILENO))
    std::fprintf(stderr, "%s on %s, %d threads, act %s%s, context %lld, %s\n%s", info.family.c_str(),
                 info.device.c_str(), info.threads, info.act.c_str(), engine::forced_arms_text(info.arms).c_str(),
                 static_cast<long long>(info.context), describe(sampling).c_str(), kHelp);
  catch_interrupts();
  Conversation conversation(flags, std::move(text), std::move(engine), std::move(sampling));
  std::string line;
  bool failed = false;
  while (!conversation.output_lost()) {
    if (isatty(STDIN_FILENO)) std::fputs("> ", stderr);
    interrupt_leaves(true);
    const bool got = static_cast<bool>(std::getline(std::cin, line));
    interrupt_leaves(false);
    reset_interrupt();
    if (!got) break;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (line == "/exit") break;
    if (line == "/clear") {
      conversation.clear();
    } else if (line == "/help" || line[0] == '/') {
      if (line != "/help") std::fprintf(stderr, "there is no command %s\n", line.c_str());
      std::fputs(kHelp, stderr);
    } else if (const Status done = conversation.answer(line); !done) {
      // A full context or a template that refuses this turn need not end the conversation.
      report(done.error());
      failed = true;
      if (done.error().code == ErrorCode::kOutOfRange)
        std::fputs("The conversation fills the context; /clear starts a new one, -c raises it.\n", stderr);
    }
  }
  // At a terminal the user has seen it; a script needs the exit code.
  if (conversation.output_lost() || (failed && !isatty(STDIN_FILENO)))
    return fail(ErrorCode::kIo, "not every message was answered; the errors stand above");
  return {};
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ChatFlags>();
  flags->sampling.max_tokens = 1024;
  CLI::App* verb = app.add_subcommand("chat", "talk with the model, using its own chat template");
  flags->model.add_synthetic(*verb);
  flags->model.add_to(*verb, true);
  flags->model.add_tokenizer_to(*verb);
  flags->sampling.add_to(*verb);
  verb->add_option("--system,--system-prompt", flags->system, "system message");
  verb->callback([flags, &action] {
    action = [flags] {
      const Status done = chat(*flags);
      return done ? kYes : report(done.error());
    };
  });
}

}  // namespace galvani::cli
