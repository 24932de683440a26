/// The tokenizer inside a GGUF file → TokenizerParts.
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace galvani::text {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kDeepseekCjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view kDeepseekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";

/// What `tokenizer.ggml.pre` stands for: the files hold a name only, so the patterns are known by heart.
struct PreType {
  std::string_view name;
  std::vector<std::string_view> patterns;  ///< each splits what the one before left, matches isolated
  bool nfc = false;                        ///< the original tokenizer normalises; the GGUF does not say so
  bool ignore_merges = false;
  bool add_bos = false;  ///< when the file does not say
};

const std::vector<PreType>& pre_types() {
  static const std::vector<PreType> types = [] {
    const auto gpt2 = pattern_source(KnownPattern::kGpt2), llama3 = pattern_source(KnownPattern::kLlama3);
    const auto qwen2 = pattern_source(KnownPattern::kQwen2), qwen35 = pattern_source(KnownPattern::kQwen35);
    const auto o200k = pattern_source(KnownPattern::kO200k);
    return std::vector<PreType>{
        {"default", {kDefaultPunctuation, gpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
        {"gpt-2", {gpt2}},
        {"olmo", {gpt2}, true},
        {"smollm", {kDigit, gpt2}},
        {"starcoder", {kDigit, gpt2}},
        {"refact", {kDigit, gpt2}},
        {"command-r", {kDigit, gpt2}},
        {"llama-bpe", {llama3}, false, true, true},
        {"llama3", {llama3}, false, true, true},
        {"llama-v3", {llama3}, false, true, true},
        {"qwen2", {qwen2}, true},
        {"deepseek-r1-qwen", {qwen2}, true},
        {"qwen35", {qwen35}, true},
        {"gpt-4o", {o200k}, false, true},
        {"llama4", {o200k}, false, true},
        {"tekken", {kTekken}, false, true, true},
        {"deepseek-v3", {kThreeDigits, kDeepseekCjk, kDeepseekWords}},
    };
  }();
  return types;
}

Result<const PreType*> find_pre_type(const std::string& name, const std::string& source) {
  if (name.empty()) {
    log_warn(
        "{}: no tokenizer.ggml.pre; splitting words by the pattern named \"default\", which may not be the model's",
        source);
  }
  std::string known;
  for (const PreType& type : pre_types()) {
    if (type.name == (name.empty() ? std::string_view("default") : name)) return &type;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
  }
  return fail(ErrorCode::kUnsupported,
              "tokenizer.ggml.pre \"{}\" is not known, and a guess would give wrong token ids; known are {}. Use the "
              "model's tokenizer.json instead",
              name, known);
}

Status check_sizes(const GgufVocab& vocab) {
  const size_t count = vocab.tokens.size();
  if (count == 0) return fail(ErrorCode::kCorrupt, "tokenizer.ggml.tokens is empty");
  if (count > 0x7FFFFFF) return fail(ErrorCode::kCorrupt, "tokenizer.ggml.tokens holds {} tokens", count);
  for (const auto& [name, size] :
       {std::pair{"scores", vocab.scores.size()}, {"token_type", vocab.token_types.size()}}) {
    if (size != 0 && size != count) {
      return fail(ErrorCode::kCorrupt, "tokenizer.ggml.{} has {} entries for {} tokens", name, size, count);
    }
  }
  for (const float score : vocab.scores) {
    if (!std::isfinite(score))
      return fail(ErrorCode::kCorrupt, "tokenizer.ggml.scores holds a value that is not finite");
  }
  return {};
}

Result<std::optional<int32_t>> token_id(const GgufVocab& vocab, std::optional<int64_t> id, std::string_view key) {
  if (!id) return std::optional<int32_t>();
  if (*id < 0 || *id >= static_cast<int64_t>(vocab.tokens.size())) {
    return fail(ErrorCode::kCorrupt, "tokenizer.ggml.{} is {}, but token ids end at {}", key, *id,
                vocab.tokens.size() - 1);
  }
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

Result<TokenTable> read_tokens(const GgufVocab& vocab) {
  TokenTable table(vocab.tokens.size());
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    GALVANI_TRY_VOID(table.add(vocab.tokens[i], static_cast<int64_t>(i), TokenTable::Duplicates::kLastWins));
  }
  return table;
}

Result<MergeTable> read_merges(const GgufVocab& vocab, const TokenTable& tokens) {
  if (vocab.merges.empty()) {
    return fail(ErrorCode::kCorrupt,
                "a tokenizer of kind \"{}\" needs tokenizer.ggml.merges, which is missing or empty", vocab.model);
  }
  MergeTable table(vocab.merges.size());
  for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
    const std::string_view line = vocab.merges[rank];
    const size_t space = line.find(' ', 1);  // a left part may be a space itself
    if (space == std::string_view::npos) {
      return fail(ErrorCode::kCorrupt,
                  "tokenizer.ggml.merges[{}] is \"{}\"; it must be two tokens with a space between", rank,
                  line.substr(0, 64));
    }
    const auto left = line.substr(0, space), right = line.substr(space + 1);
    const int32_t a = tokens.find(left), b = tokens.find(right);
    const int32_t both = tokens.find(std::string(left).append(right));
    if (a == kNoToken || b == kNoToken || both == kNoToken) {
      return fail(ErrorCode::kCorrupt,
                  "tokenizer.ggml.merges[{}] is \"{}\", but its parts or their joined text are not in the vocabulary",
                  rank, line.substr(0, 64));
    }
    table.set(a, b, {static_cast<uint32_t>(rank), both});
  }
  return table;
}

/// Control and unknown tokens are special, user-defined ones are cut out of the text but shown.
void add_tokens(const GgufVocab& vocab, AddedVocabulary& added) {
  for (size_t i = 0; i < vocab.token_types.size(); ++i) {
    const int32_t type = vocab.token_types[i];
    if (type != kControl && type != kUserDefined && type != kUnknown) continue;
    const AddedToken token{.content = vocab.tokens[i],
                           .shown = vocab.tokens[i],
                           .id = static_cast<int32_t>(i),
                           .normalized = false,
                           .special = type != kUserDefined};
    added.add(token);
  }
}

constexpr const char* kSpaceMark = "\xE2\x96\x81";

/// SentencePiece texts: "▁" for spaces, <0xXX> for bytes, and no leading space where one was put in.
Status set_sentencepiece_texts(bool space_prefix, TokenizerParts& parts) {
  parts.normalizer.add(Normalizer::Replace{SplitPattern::literal(" "), kSpaceMark});
  GALVANI_TRY_VOID(parts.decoder.add(DecoderChain::Replace{kSpaceMark, " "}));
  GALVANI_TRY_VOID(parts.decoder.add(DecoderChain::ByteFallback{}));
  GALVANI_TRY_VOID(parts.decoder.add(DecoderChain::Fuse{}));
  parts.space_before_gaps = space_prefix;
  if (space_prefix) GALVANI_TRY_VOID(parts.decoder.add(DecoderChain::Strip{" ", 1, 0}));
  return {};
}

/// bos and eos around the text, as the file says.
Status set_ends(const GgufVocab& vocab, bool default_bos, TokenizerParts& parts) {
  GALVANI_TRY(parts.bos, token_id(vocab, vocab.bos_id, "bos_token_id"));
  GALVANI_TRY(parts.eos, token_id(vocab, vocab.eos_id, "eos_token_id"));
  GALVANI_TRY(parts.eot, token_id(vocab, vocab.eot_id, "eot_token_id"));
  const bool add_bos = vocab.add_bos.value_or(default_bos && parts.bos), add_eos = vocab.add_eos.value_or(false);
  if ((add_bos && !parts.bos) || (add_eos && !parts.eos)) {
    return fail(ErrorCode::kCorrupt, "tokenizer.ggml.add_{0}_token is set, but there is no tokenizer.ggml.{0}_token_id",
                add_bos && !parts.bos ? "bos" : "eos");
  }
  if (add_bos) parts.prefix.push_back(*parts.bos);
  if (add_eos) parts.suffix.push_back(*parts.eos);
  return {};
}

using PartsResult = Result<std::unique_ptr<TokenizerParts>>;

std::unique_ptr<TokenizerParts> make_parts(const std::string& source, std::variant<BpeModel, SpmModel> model) {
  return std::make_unique<TokenizerParts>(TokenizerParts{.source = source, .model = std::move(model)});
}

PartsResult byte_level_parts(const GgufVocab& vocab, const std::string& source) {
  GALVANI_TRY(const PreType* pre, find_pre_type(vocab.pre, source));
  GALVANI_TRY(TokenTable tokens, read_tokens(vocab));
  GALVANI_TRY(MergeTable merges, read_merges(vocab, tokens));
  BpeModel::Options options;
  options.ignore_merges = pre->ignore_merges;
  auto parts = make_parts(source, BpeModel(std::move(tokens), std::move(merges), options));
  if (pre->nfc) parts->normalizer.add(NormalForm::kNfc);
  for (const std::string_view pattern : pre->patterns) {
    GALVANI_TRY(SplitPattern split, SplitPattern::regex(pattern));
    parts->pre_tokenizer.add(PreTokenizer::Split{std::move(split), SplitBehavior::kIsolated, false});
  }
  parts->pre_tokenizer.add(PreTokenizer::ByteLevel{false, false});
  GALVANI_TRY_VOID(parts->decoder.add(DecoderChain::ByteLevel{}));
  GALVANI_TRY_VOID(set_ends(vocab, pre->add_bos, *parts));
  return parts;
}

PartsResult gemma4_parts(const GgufVocab& vocab, const std::string& source) {
  GALVANI_TRY(TokenTable tokens, read_tokens(vocab));
  GALVANI_TRY(MergeTable merges, read_merges(vocab, tokens));
  GALVANI_TRY(const auto unk, token_id(vocab, vocab.unk_id, "unknown_token_id"));
  BpeModel::Options options;
  options.byte_fallback = options.fuse_unk = true;
  if (unk) options.unk_token = vocab.tokens[static_cast<size_t>(*unk)];
  auto parts = make_parts(source, BpeModel(std::move(tokens), std::move(merges), options));
  GALVANI_TRY_VOID(set_sentencepiece_texts(vocab.add_space_prefix.value_or(false), *parts));
  GALVANI_TRY_VOID(set_ends(vocab, true, *parts));
  return parts;
}

PartsResult sentencepiece_parts(const GgufVocab& vocab, const std::string& source) {
  if (vocab.scores.empty()) {
    return fail(ErrorCode::kCorrupt, "a tokenizer of kind \"llama\" needs tokenizer.ggml.scores, which is missing");
  }
  GALVANI_TRY(TokenTable tokens, read_tokens(vocab));
  GALVANI_TRY(const auto unk, token_id(vocab, vocab.unk_id, "unknown_token_id"));
  auto parts = make_parts(source, SpmModel(std::move(tokens), vocab.scores, unk.value_or(kNoToken)));
  GALVANI_TRY_VOID(set_sentencepiece_texts(vocab.add_space_prefix.value_or(true), *parts));
  GALVANI_TRY_VOID(set_ends(vocab, true, *parts));
  return parts;
}

/// An id or flag that may be absent.
Result<std::optional<int64_t>> optional_integer(const formats::GgufFile& file, std::string_view key) {
  if (!file.has(key)) return std::optional<int64_t>();
  GALVANI_TRY(const int64_t value, file.integer(key));
  return std::optional<int64_t>(value);
}

Result<std::optional<bool>> optional_flag(const formats::GgufFile& file, std::string_view key) {
  if (!file.has(key)) return std::optional<bool>();
  GALVANI_TRY(const bool value, file.boolean(key));
  return std::optional<bool>(value);
}

}  // namespace

Result<std::unique_ptr<TokenizerParts>> parts_from_gguf(const GgufVocab& vocab, const std::string& source) {
  GALVANI_TRY_VOID(check_sizes(vocab));
  PartsResult parts =
      fail(ErrorCode::kUnsupported,
           "tokenizer.ggml.model \"{}\" is not implemented; supported are gpt2, llama and gemma4", vocab.model);
  if (vocab.model == "gpt2") parts = byte_level_parts(vocab, source);
  if (vocab.model == "llama") parts = sentencepiece_parts(vocab, source);
  if (vocab.model == "gemma4") parts = gemma4_parts(vocab, source);
  if (parts) add_tokens(vocab, (*parts)->added);
  return parts;
}

Result<GgufVocab> gguf_vocab(const formats::GgufFile& file) {
  std::string missing;
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens"})
    if (!file.has(key)) missing += (missing.empty() ? "" : " and ") + std::string(key);
  if (!missing.empty())
    return fail(ErrorCode::kNotFound, "{} holds no tokenizer: {} {} missing from its metadata", file.label(), missing,
                missing.find(" and ") == missing.npos ? "is" : "are");
  GgufVocab vocab;
  GALVANI_TRY(vocab.model, file.string("tokenizer.ggml.model"));
  GALVANI_TRY(vocab.pre, file.string("tokenizer.ggml.pre", std::string()));
  GALVANI_TRY(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  vocab.tokens.assign(tokens.begin(), tokens.end());
  if (file.has("tokenizer.ggml.scores")) {
    GALVANI_TRY(vocab.scores, file.numbers("tokenizer.ggml.scores"));
  }
  if (file.has("tokenizer.ggml.token_type")) {
    GALVANI_TRY(const auto types, file.integers("tokenizer.ggml.token_type"));
    for (const int64_t type : types) vocab.token_types.push_back(static_cast<int32_t>(type));
  }
  if (file.has("tokenizer.ggml.merges")) {
    GALVANI_TRY(const auto merges, file.strings("tokenizer.ggml.merges"));
    vocab.merges.assign(merges.begin(), merges.end());
  }
  GALVANI_TRY(vocab.bos_id, optional_integer(file, "tokenizer.ggml.bos_token_id"));
  GALVANI_TRY(vocab.eos_id, optional_integer(file, "tokenizer.ggml.eos_token_id"));
  GALVANI_TRY(vocab.unk_id, optional_integer(file, "tokenizer.ggml.unknown_token_id"));
  GALVANI_TRY(vocab.eot_id, optional_integer(file, "tokenizer.ggml.eot_token_id"));
  GALVANI_TRY(vocab.add_bos, optional_flag(file, "tokenizer.ggml.add_bos_token"));
  GALVANI_TRY(vocab.add_eos, optional_flag(file, "tokenizer.ggml.add_eos_token"));
  GALVANI_TRY(vocab.add_space_prefix, optional_flag(file, "tokenizer.ggml.add_space_prefix"));
  return vocab;
}

}  // namespace galvani::text
