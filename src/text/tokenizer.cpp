#include "text/tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/file_map.h"
#include "formats/gguf.h"
#include "text/tokenizer_bytelevel.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;

std::string_view view(const FileMap& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<Tokenizer::Pointer> Tokenizer::from_json(std::string_view json, std::string_view config_json,
                                                const std::string& source) {
  auto parts = parts_from_json(json, config_json, source);
  if (!parts) return wrap(std::move(parts).error(), source);
  return Pointer(new Tokenizer(std::move(*parts)));
}

Result<Tokenizer::Pointer> Tokenizer::from_json(std::string_view json, const std::string& source) {
  return from_json(json, {}, source);
}

Result<Tokenizer::Pointer> Tokenizer::from_json_file(const std::filesystem::path& path) {
  GALVANI_TRY(const auto file, FileMap::open(path));
  return from_json(view(*file), {}, path.string());
}

Result<Tokenizer::Pointer> Tokenizer::from_gguf_vocab(const GgufVocab& vocab, const std::string& source) {
  auto parts = parts_from_gguf(vocab, source);
  if (!parts) return wrap(std::move(parts).error(), source);
  return Pointer(new Tokenizer(std::move(*parts)));
}

Status Tokenizer::encode_normalized(std::string_view text, bool at_start, std::vector<int32_t>& out) const {
  PieceList list{std::string(text), {{0, text.size()}}, at_start};
  GALVANI_TRY_VOID(parts_->pre_tokenizer.apply(list));
  return std::visit(
      [&](const auto& model) -> Status {
        for (const Span& piece : list.pieces) {
          GALVANI_TRY_VOID(
              model.tokenize(std::string_view(list.text).substr(piece.begin, piece.end - piece.begin), out));
        }
        return {};
      },
      parts_->model);
}

Status Tokenizer::encode_gap(std::string_view text, bool at_start, EncodeOptions options,
                             std::vector<int32_t>& out) const {
  std::string prefixed;
  if (parts_->space_before_gaps) {
    prefixed.append(1, ' ').append(text);
    text = prefixed;
  }
  GALVANI_TRY(const std::string normalized, parts_->normalizer.apply(text));
  const auto pieces = parts_->added.split(normalized, AddedVocabulary::Stage::kNormalized, options.parse_special);
  for (const AddedPiece& piece : pieces) {
    if (piece.id != kNoToken) {
      out.push_back(piece.id);
      continue;
    }
    const std::string_view part =
        std::string_view(normalized).substr(piece.span.begin, piece.span.end - piece.span.begin);
    GALVANI_TRY_VOID(encode_normalized(part, at_start && piece.span.begin == 0, out));
  }
  return {};
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view utf8, EncodeOptions options) const {
  if (utf8.size() > kMaxText) {
    return fail(ErrorCode::kOutOfRange, "cannot tokenize {} bytes at once; at most {} are allowed, cut the text",
                utf8.size(), kMaxText);
  }
  if (const size_t bad = find_invalid_utf8(utf8); bad != std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "the text is not valid UTF-8: byte 0x{:02X} at offset {} of {}; convert it to UTF-8 first",
                static_cast<unsigned char>(utf8[bad]), bad, utf8.size());
  }
  std::vector<int32_t> out;
  out.reserve(utf8.size() / 3 + 8);
  if (options.add_special) out.insert(out.end(), parts_->prefix.begin(), parts_->prefix.end());
  for (const AddedPiece& piece : parts_->added.split(utf8, AddedVocabulary::Stage::kRaw, options.parse_special)) {
    if (piece.id != kNoToken) {
      out.push_back(piece.id);
      continue;
    }
    const std::string_view gap = utf8.substr(piece.span.begin, piece.span.end - piece.span.begin);
    const Status status = encode_gap(gap, piece.span.begin == 0, options, out);
    if (!status) return wrap(status.error(), parts_->source);
  }
  if (options.add_special) out.insert(out.end(), parts_->suffix.begin(), parts_->suffix.end());
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  DecodeStream stream(parts_->decoder);
  std::string out;
  for (const int32_t id : ids) {
    const auto text = parts_->token_text(id);
    if (!text || (skip_special && parts_->added.is_special_text(*text))) continue;
    stream.push(*text, out);
  }
  stream.finish(out);
  return out;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const auto text = parts_->token_text(id);
  return text ? parts_->decoder.token_bytes(*text) : std::string();
}

size_t Tokenizer::vocab_size() const { return std::max(parts_->vocab().id_limit(), parts_->added.id_limit()); }
std::optional<int32_t> Tokenizer::id_of(std::string_view token) const { return parts_->id_of(token); }
std::optional<std::string_view> Tokenizer::token_text(int32_t id) const { return parts_->token_text(id); }
bool Tokenizer::is_special(int32_t id) const {
  const auto text = parts_->token_text(id);
  return text && parts_->added.is_special_text(*text);
}
std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos; }
std::optional<int32_t> Tokenizer::eot_id() const { return parts_->eot; }
std::span<const int32_t> Tokenizer::prefix_ids() const { return parts_->prefix; }
std::span<const int32_t> Tokenizer::suffix_ids() const { return parts_->suffix; }
const DecoderChain& Tokenizer::decoder() const { return parts_->decoder; }

Result<Tokenizer::Pointer> open_tokenizer(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    GALVANI_TRY(const auto file, FileMap::open(path));
    if (!view(*file).starts_with("GGUF")) return Tokenizer::from_json(view(*file), {}, path.string());
    GALVANI_TRY(const auto gguf, formats::GgufFile::open(path));
    GALVANI_TRY(const GgufVocab vocab, gguf_vocab(*gguf));
    return Tokenizer::from_gguf_vocab(vocab, path.string());
  }
  const auto json_path = path / "tokenizer.json";
  if (!std::filesystem::exists(json_path, error)) {
    return fail(ErrorCode::kNotFound,
                "{} has no tokenizer.json, which holds the vocabulary; fetch it from the model's page (other tokenizer "
                "files, like tokenizer.model, are not read)",
                path.string());
  }
  GALVANI_TRY(const auto json, FileMap::open(json_path));
  const auto config_path = path / "tokenizer_config.json";
  std::shared_ptr<const FileMap> config;
  if (std::filesystem::exists(config_path, error)) {
    GALVANI_TRY(config, FileMap::open(config_path));
  }
  return Tokenizer::from_json(view(*json), config ? view(*config) : std::string_view(), json_path.string());
}

}  // namespace galvani::text
