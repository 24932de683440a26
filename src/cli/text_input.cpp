#include "cli/text_input.h"

#include <filesystem>
#include <fstream>
#include <string_view>

#include "cli/synthetic_model.h"
#include "core/error.h"
#include "formats/gguf.h"
#include "quant/checkpoint.h"
#include "quant/synthetic_checkpoint.h"

namespace galvani::cli {
namespace {

// tokenizer.chat_template and tokenizer.chat_template.<name>, with bos and eos as the file's tokens spell them.
Result<text::ChatTemplate> gguf_template(const formats::GgufFile& file, const text::Tokenizer& tokenizer) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  std::vector<text::ChatTemplate::Named> templates;
  for (const auto& [key, value] : file.metadata()) {
    if (key.rfind(kKey, 0) != 0 || value.type != formats::GgufType::kString) continue;
    if (key.size() > kKey.size() && key[kKey.size()] != '.') continue;
    GALVANI_TRY(std::string source, file.string(key));
    templates.push_back({key.size() == kKey.size() ? "default" : key.substr(kKey.size() + 1), std::move(source)});
  }
  text::ChatTemplate::Tokens tokens;
  const auto add = [&](const char* name, std::optional<int32_t> id) {
    if (!id) return;
    if (const auto spelled = tokenizer.token_text(*id)) tokens.emplace_back(name, std::string(*spelled));
  };
  add("bos_token", tokenizer.bos_id());
  add("eos_token", tokenizer.eos_id());
  return text::ChatTemplate::from_strings(std::move(templates), std::move(tokens), file.label());
}

bool is_gguf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == "GGUF";
}

Result<ModelText> open_from(const std::string& path) {
  ModelText text;
  std::error_code ignored;
  Result<text::ChatTemplate> chat = fail(ErrorCode::kNotFound, "no chat template");
  if (const auto synthetic = quant::synthetic_folder(path)) {
    if (std::filesystem::exists(*synthetic / "tokenizer.json", ignored)) return open_from(synthetic->string());
    GALVANI_TRY(text.tokenizer, text::Tokenizer::from_json(byte_tokenizer_json(), {}, path));
    text.no_chat = Error{ErrorCode::kNotFound, "a synthetic model has no chat template"};
    return text;
  }
  if (is_gguf(path)) {
    GALVANI_TRY(const auto file, formats::GgufFile::open(path));
    GALVANI_TRY(const text::GgufVocab vocab, text::gguf_vocab(*file));
    GALVANI_TRY(text.tokenizer, text::Tokenizer::from_gguf_vocab(vocab, path));
    chat = gguf_template(*file, *text.tokenizer);
  } else {
    GALVANI_TRY(text.tokenizer, text::open_tokenizer(path));
    if (std::filesystem::is_directory(path, ignored)) chat = text::ChatTemplate::open(path);
  }
  if (chat)
    text.chat = std::move(*chat);
  else
    text.no_chat = chat.error();
  return text;
}

}  // namespace

Result<ModelText> ModelText::open(const std::string& model, const std::string& tokenizer) {
  if (!tokenizer.empty()) {
    auto text = open_from(tokenizer);
    return text ? std::move(text) : wrap(std::move(text).error(), "--tokenizer");
  }
  auto text = open_from(model);
  if (text) return text;
  std::error_code ignored;
  const std::filesystem::path path(model);
  const bool missing = text.error().code == ErrorCode::kNotFound;
  // Where there is no model either, that is what to say.
  if (missing || (std::filesystem::is_regular_file(path, ignored) && path.extension() != ".json"))
    if (const auto checkpoint = quant::Checkpoint::open(model); !checkpoint)
      return tl::unexpected<Error>(checkpoint.error());
  if (!missing) return text;
  Error error = std::move(text).error();
  error.message +=
      ". Give --tokenizer FOLDER with the tokenizer.json of the model it was made from, or another .gguf of that "
      "model; "
      "without a tokenizer, eval --ids takes token ids";
  return tl::unexpected<Error>(std::move(error));
}

Result<std::string> ModelText::chat_text(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                         const std::string& now) const {
  if (!chat) return tl::unexpected<Error>(no_chat);
  text::ChatRequest request{.messages = messages, .tools = tools, .options = {}};
  if (!now.empty()) {
    GALVANI_TRY(request.options.clock, text::parse_iso8601(now));
  }
  return chat->render(request);
}

Result<std::vector<int32_t>> ModelText::chat_ids(const nlohmann::ordered_json& messages,
                                                 const nlohmann::ordered_json& tools, const std::string& now) const {
  GALVANI_TRY(const std::string rendered, chat_text(messages, tools, now));
  return tokenizer->encode(rendered, {.add_special = false});
}

}  // namespace galvani::cli
