#pragma once
/// The chat template of a model: finds it, picks the right one, and turns messages into the text of a prompt.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/jinja/template.h"

namespace galvani::text {

/// What to render. `messages` is an array of objects with a `role`; `tools` an array of objects, or null for none.
struct ChatRequest {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools = nullptr;
  bool add_generation_prompt = true;
  /// Further variables of the template, e.g. enable_thinking, reasoning_effort, documents.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  /// Replaces content that is a list of text parts only by their text, joined with newlines, when the template does not
  /// take lists. Off: the template sees what was sent, as in transformers.
  bool join_text_parts = false;
  RenderOptions options;
};

class ChatTemplate {
 public:
  struct Named {
    std::string name;  ///< "default", "tool_use", …
    std::string source;
  };
  /// Variables such as ("bos_token", "<s>").
  using Tokens = std::vector<std::pair<std::string, std::string>>;

  /// From a model folder: chat_template.jinja (and additional_chat_templates/*.jinja), else tokenizer_config.json's
  /// chat_template (text, or a list of name and template), else chat_template.json; special tokens from
  /// tokenizer_config.json and special_tokens_map.json.
  /// Errors: kNotFound when the folder has no template, kCorrupt for files or templates that break their format.
  static Result<ChatTemplate> open(const std::filesystem::path& folder);

  /// From text already read, e.g. a GGUF's tokenizer.chat_template ("default") and tokenizer.chat_template.<name>.
  /// `origin` names the file in messages. Errors: kNotFound when `templates` is empty.
  static Result<ChatTemplate> from_strings(std::vector<Named> templates, Tokens tokens, const std::string& origin);

  /// The prompt's text. Tool-call arguments given as JSON text are handed to the template as objects (and as text once
  /// more, should the template want text).
  /// Errors: kInvalidArgument for messages that are no chat, or with the template's own words when it refuses them;
  /// kCorrupt and kOutOfRange as of Template::render.
  Result<std::string> render(const ChatRequest& request) const;

  std::vector<std::string> names() const;
  /// Source of the template of that name, for `inspect`; null when there is none.
  const std::string* source(const std::string& name) const;
  /// Whether the default template understands content given as a list of parts.
  bool takes_content_parts() const noexcept { return takes_parts_; }

 private:
  struct Entry {
    std::string name, source;
    Template compiled;
  };
  Result<const Template*> choose(bool with_tools) const;
  bool probe_parts() const;

  std::string origin_;
  std::vector<Entry> entries_;
  Tokens tokens_;
  bool takes_parts_ = false;
};

}  // namespace galvani::text
