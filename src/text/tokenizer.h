#pragma once
/// Text → token ids and back, exactly as the Rust `tokenizers` package (for tokenizer.json) or llama.cpp (for the
/// tokenizer inside a GGUF file). Immutable after loading and safe to use from any number of threads.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "galvani/error.h"

namespace galvani::formats {
class GgufFile;
}

namespace galvani::text {

class DecoderChain;
struct TokenizerParts;

struct EncodeOptions {
  bool add_special = true;    ///< put the tokens around the text that the model's post-processor asks for (bos, ...)
  bool parse_special = true;  ///< false: special tokens written in the text are ordinary text
};

/// The tokenizer keys of a GGUF file (`tokenizer.ggml.*`).
struct GgufVocab {
  std::string model;  ///< "gpt2": byte-level BPE with merges; "llama": SentencePiece BPE with scores; "gemma4": BPE
                      ///< with merges over SentencePiece texts
  std::string pre;    ///< which split patterns a gpt2 vocabulary uses
  std::vector<std::string> tokens;
  std::vector<float> scores;         ///< one a token, or empty
  std::vector<int32_t> token_types;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; or empty
  std::vector<std::string> merges;   ///< "left right"
  std::optional<int64_t> bos_id, eos_id, unk_id, eot_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;  ///< absent: the default of `model` and `pre`
};

class Tokenizer {
 public:
  using Pointer = std::shared_ptr<const Tokenizer>;

  /// Loads a tokenizer.json. Errors: kNotFound, kCorrupt (breaks its own rules), kUnsupported (a component that is not
  /// implemented; the message names it and lists what is).
  static Result<Pointer> from_json_file(const std::filesystem::path& path);
  /// The same from memory; `source` names it in messages.
  static Result<Pointer> from_json(std::string_view json, const std::string& source);
  /// `config_json`: the text of tokenizer_config.json, of which bos_token and eos_token are used (may be empty).
  /// Whether bos is added is tokenizer.json's post-processor's word alone, as in the Rust package.
  static Result<Pointer> from_json(std::string_view json, std::string_view config_json, const std::string& source);
  static Result<Pointer> from_gguf_vocab(const GgufVocab& vocab, const std::string& source);
  ~Tokenizer();

  /// Ids of a text of at most 2^30 bytes. Errors: invalid UTF-8 (names the byte offset), text too long, a split pattern
  /// that gives up, a character without a token where the file demands one.
  Result<std::vector<int32_t>> encode(std::string_view utf8, EncodeOptions options = {}) const;
  /// Text of ids. Ids outside the vocabulary are skipped, bytes that are not UTF-8 become U+FFFD.
  /// `skip_special`: leave special tokens out.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;
  /// The bytes one token stands for (not necessarily UTF-8 on their own); empty for an id outside the vocabulary.
  std::string token_bytes(int32_t id) const;

  /// Highest id + 1. Some ids below it may be holes.
  size_t vocab_size() const;
  /// By the token's text as the file spells it ("<|im_end|>", "Ġthe").
  std::optional<int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token_text(int32_t id) const;
  /// True for what decode(skip_special) leaves out.
  bool is_special(int32_t id) const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  /// End of turn, where the file names one beside eos.
  std::optional<int32_t> eot_id() const;
  /// What encode(add_special) puts before the text.
  std::span<const int32_t> prefix_ids() const;
  std::span<const int32_t> suffix_ids() const;

  const DecoderChain& decoder() const;

 private:
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  Status encode_gap(std::string_view text, bool at_start, EncodeOptions options, std::vector<int32_t>& out) const;
  Status encode_normalized(std::string_view text, bool at_start, std::vector<int32_t>& out) const;
  std::unique_ptr<const TokenizerParts> parts_;
};

/// Reads the `tokenizer.ggml.*` keys. Errors: kNotFound without a token list, kCorrupt for a key of the wrong type.
Result<GgufVocab> gguf_vocab(const formats::GgufFile& file);

/// Opens the tokenizer of a model: a folder with tokenizer.json (and tokenizer_config.json), a tokenizer.json file, or
/// a GGUF file.
Result<Tokenizer::Pointer> open_tokenizer(const std::filesystem::path& path);

}  // namespace galvani::text
