#pragma once
/// Tokenizer and chat template of a model, for the verbs.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "galvani/error.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace galvani::cli {

struct ModelText {
  text::Tokenizer::Pointer tokenizer;
  std::optional<text::ChatTemplate> chat;  ///< absent when the model has none
  Error no_chat;                           ///< why

  /// `model`: a folder with tokenizer files, or a .gguf file. `tokenizer`, unless empty, is read instead: the same, or
  /// a tokenizer.json alone (which has no chat template).
  static Result<ModelText> open(const std::string& model, const std::string& tokenizer = {});
  /// The conversation as the model's template writes it, up to where the assistant's answer begins.
  /// `now`: ISO-8601 clock for the template, empty for the real one.
  Result<std::string> chat_text(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                const std::string& now) const;
  /// The same as ids; no BOS is added beside what the template writes.
  Result<std::vector<int32_t>> chat_ids(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                        const std::string& now) const;
};

}  // namespace galvani::cli
