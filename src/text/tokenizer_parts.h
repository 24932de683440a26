#pragma once
/// What a tokenizer is made of; the loaders fill it, Tokenizer runs it.
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "text/tokenizer_added.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_decoder.h"
#include "text/tokenizer_normalizer.h"
#include "text/tokenizer_pretokenizer.h"
#include "text/tokenizer_spm.h"

namespace galvani::text {

struct GgufVocab;

struct TokenizerParts {
  std::string source;  ///< file name, for messages
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<BpeModel, SpmModel> model;
  AddedVocabulary added;
  DecoderChain decoder;
  std::vector<int32_t> prefix, suffix;  ///< ids around the text under add_special
  std::optional<int32_t> bos, eos, eot;
  bool space_before_gaps = false;  ///< SentencePiece's dummy prefix: a space before each stretch of text

  const TokenTable& vocab() const {
    return std::visit([](const auto& m) -> const TokenTable& { return m.vocab(); }, model);
  }
  /// What decoding starts from, added tokens first; nullopt when there is no such id.
  std::optional<std::string_view> token_text(int32_t id) const {
    if (const AddedToken* token = added.find(id)) return token->shown;
    if (vocab().has(id)) return vocab().text(id);
    return std::nullopt;
  }
  std::optional<int32_t> id_of(std::string_view text) const {
    if (const AddedToken* token = added.find(text)) return token->id;
    const int32_t id = vocab().find(text);
    return id == kNoToken ? std::nullopt : std::optional<int32_t>(id);
  }
};

/// Reads a tokenizer.json (`config_json`: tokenizer_config.json, may be empty).
Result<std::unique_ptr<TokenizerParts>> parts_from_json(std::string_view json, std::string_view config_json,
                                                        const std::string& source);

/// Builds the tokenizer that a GGUF file describes.
Result<std::unique_ptr<TokenizerParts>> parts_from_gguf(const GgufVocab& vocab, const std::string& source);

}  // namespace galvani::text
