#include "text/tokenizer_json_components.h"

#include <algorithm>

#include "text/unicode.h"

namespace galvani::text {
namespace {

tl::unexpected<Error> unknown_type(const JsonNode& node, std::string_view type, std::string_view supported) {
  return fail(ErrorCode::kUnsupported, "{}: type \"{}\" is not implemented; supported are {}", node.where, type,
              supported);
}

Status check_depth(const JsonNode& node, int depth) {
  if (depth < kMaxNesting) return {};
  return fail(ErrorCode::kCorrupt, "{}: sequences are nested more than {} deep", node.where, kMaxNesting);
}

struct PatternSource {
  bool regex;
  std::string text;
};

/// {"String": ".."} or {"Regex": ".."}.
Result<PatternSource> read_pattern_source(const JsonNode& node) {
  GALVANI_TRY(const JsonNode pattern, node.child("pattern"));
  const bool regex = pattern.has("Regex");
  GALVANI_TRY(const std::string_view text, pattern.text(regex ? "Regex" : "String"));
  if (text.empty()) return fail(ErrorCode::kCorrupt, "{}.pattern is empty", node.where);
  return PatternSource{regex, std::string(text)};
}

Result<SplitPattern> read_pattern(const JsonNode& node) {
  GALVANI_TRY(PatternSource source, read_pattern_source(node));
  if (!source.regex) return SplitPattern::literal(std::move(source.text));
  auto pattern = SplitPattern::regex(source.text);
  if (!pattern) return wrap(std::move(pattern).error(), node.where);
  return pattern;
}

Result<SplitBehavior> read_behavior(const JsonNode& node, std::string_view fallback) {
  GALVANI_TRY(const std::string_view name, node.text_or("behavior", fallback));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return fail(ErrorCode::kCorrupt,
              "{}: behavior \"{}\" is unknown; it must be Removed, Isolated, MergedWithPrevious, MergedWithNext or "
              "Contiguous",
              node.where, name);
}

/// Exactly one code point.
Result<std::string> read_character(const JsonNode& node, std::string_view key, std::string_view fallback) {
  GALVANI_TRY(const std::string_view text, node.text_or(key, fallback));
  if (text.empty() || utf8_step(text, 0).length != text.size()) {
    return fail(ErrorCode::kCorrupt, "{}: \"{}\" must be one character", node.where, key);
  }
  return std::string(text);
}

struct MetaspaceFields {
  std::string replacement;
  PreTokenizer::Metaspace::Prepend prepend;
};

Result<MetaspaceFields> read_metaspace(const JsonNode& node) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  GALVANI_TRY(std::string replacement, read_character(node, "replacement", "\xE2\x96\x81"));
  GALVANI_TRY(const bool add_prefix_space, node.flag("add_prefix_space", true));
  GALVANI_TRY(const std::string_view scheme, node.text_or("prepend_scheme", add_prefix_space ? "always" : "never"));
  if (scheme == "always") return MetaspaceFields{std::move(replacement), Prepend::kAlways};
  if (scheme == "first") return MetaspaceFields{std::move(replacement), Prepend::kFirst};
  if (scheme == "never") return MetaspaceFields{std::move(replacement), Prepend::kNever};
  return fail(ErrorCode::kCorrupt, "{}: prepend_scheme \"{}\" is unknown; it must be always, first or never",
              node.where, scheme);
}

/// A special token with its ids, from TemplateProcessing's table.
Status append_template_token(const JsonNode& node, std::string_view name, std::vector<int32_t>& out) {
  GALVANI_TRY(const JsonNode table, node.child("special_tokens"));
  GALVANI_TRY(const JsonNode token, table.child(name));
  GALVANI_TRY(const JsonArray ids, token.array("ids"));
  for (const JsonElement element : ids) {
    uint64_t id = 0;
    if (element.get(id) != simdjson::SUCCESS || id > 0x7FFFFFFF) {
      return fail(ErrorCode::kCorrupt, "{}.ids must hold token ids", token.where);
    }
    out.push_back(static_cast<int32_t>(id));
  }
  return {};
}

Status read_template(const JsonNode& node, TokenizerParts& parts) {
  std::vector<int32_t> before, after;
  bool text_seen = false;
  GALVANI_TRY_VOID(for_each_object(node, "single", [&](const JsonNode& piece) -> Status {
    if (piece.has("Sequence")) {
      if (text_seen) return fail(ErrorCode::kUnsupported, "{}: the text may appear only once", piece.where);
      text_seen = true;
      return {};
    }
    GALVANI_TRY(const JsonNode special, piece.child("SpecialToken"));
    GALVANI_TRY(const std::string_view name, special.text("id"));
    return append_template_token(node, name, text_seen ? after : before);
  }));
  if (!text_seen) return fail(ErrorCode::kCorrupt, "{}.single has no Sequence: the text would be dropped", node.where);
  parts.prefix.insert(parts.prefix.begin(), before.begin(), before.end());
  parts.suffix.insert(parts.suffix.end(), after.begin(), after.end());
  return {};
}

/// ["[CLS]", 101]
Status append_pair_token(const JsonNode& node, std::string_view key, std::vector<int32_t>& ids, bool front) {
  GALVANI_TRY(const JsonArray pair, node.array(key));
  uint64_t id = 0;
  if (pair.size() != 2 || pair.at(1).get(id) != simdjson::SUCCESS || id > 0x7FFFFFFF) {
    return fail(ErrorCode::kCorrupt, "{}: \"{}\" must be [text, id]", node.where, key);
  }
  ids.insert(front ? ids.begin() : ids.end(), static_cast<int32_t>(id));
  return {};
}

}  // namespace

Status read_normalizer(const JsonNode& node, int depth, Normalizer& out) {
  GALVANI_TRY_VOID(check_depth(node, depth));
  GALVANI_TRY(const std::string_view type, node.text("type"));
  if (type == "Sequence") {
    return for_each_object(node, "normalizers",
                           [&](const JsonNode& child) { return read_normalizer(child, depth + 1, out); });
  }
  if (type == "NFC") return out.add(NormalForm::kNfc), Status();
  if (type == "NFD") return out.add(NormalForm::kNfd), Status();
  if (type == "NFKC") return out.add(NormalForm::kNfkc), Status();
  if (type == "NFKD") return out.add(NormalForm::kNfkd), Status();
  if (type == "Lowercase") return out.add(Normalizer::Lowercase{}), Status();
  if (type == "StripAccents") return out.add(Normalizer::StripAccents{}), Status();
  if (type == "ByteLevel") return out.add(Normalizer::ByteLevel{}), Status();
  if (type == "Strip") {
    GALVANI_TRY(const bool left, node.flag("strip_left", true));
    GALVANI_TRY(const bool right, node.flag("strip_right", true));
    return out.add(Normalizer::Strip{left, right}), Status();
  }
  if (type == "Prepend") {
    GALVANI_TRY(const std::string_view text, node.text("prepend"));
    return out.add(Normalizer::Prepend{std::string(text)}), Status();
  }
  if (type == "Replace") {
    GALVANI_TRY(SplitPattern pattern, read_pattern(node));
    GALVANI_TRY(const std::string_view content, node.text("content"));
    return out.add(Normalizer::Replace{std::move(pattern), std::string(content)}), Status();
  }
  return unknown_type(node, type,
                      "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, ByteLevel, Strip, Prepend and Replace");
}

Status read_pre_tokenizer(const JsonNode& node, int depth, PreTokenizer& out) {
  GALVANI_TRY_VOID(check_depth(node, depth));
  GALVANI_TRY(const std::string_view type, node.text("type"));
  if (type == "Sequence") {
    return for_each_object(node, "pretokenizers",
                           [&](const JsonNode& child) { return read_pre_tokenizer(child, depth + 1, out); });
  }
  if (type == "Split") {
    GALVANI_TRY(SplitPattern pattern, read_pattern(node));
    GALVANI_TRY(const SplitBehavior behavior, read_behavior(node, ""));
    GALVANI_TRY(const bool invert, node.flag("invert", false));
    return out.add(PreTokenizer::Split{std::move(pattern), behavior, invert}), Status();
  }
  if (type == "ByteLevel") {
    GALVANI_TRY(const bool prefix, node.flag("add_prefix_space", true));
    GALVANI_TRY(const bool regex, node.flag("use_regex", true));
    return out.add(PreTokenizer::ByteLevel{prefix, regex}), Status();
  }
  if (type == "Digits") {
    GALVANI_TRY(const bool individual, node.flag("individual_digits", false));
    return out.add(PreTokenizer::Digits{individual}), Status();
  }
  if (type == "Metaspace") {
    GALVANI_TRY(MetaspaceFields fields, read_metaspace(node));
    GALVANI_TRY(const bool split, node.flag("split", true));
    return out.add(PreTokenizer::Metaspace{fields.prepend, std::move(fields.replacement), split}), Status();
  }
  if (type == "Punctuation") {
    GALVANI_TRY(const SplitBehavior behavior, read_behavior(node, "Isolated"));
    return out.add(PreTokenizer::Punctuation{behavior}), Status();
  }
  if (type == "Whitespace") return out.add(PreTokenizer::Whitespace{}), Status();
  if (type == "WhitespaceSplit") return out.add(PreTokenizer::WhitespaceSplit{}), Status();
  if (type == "BertPreTokenizer") {
    out.add(PreTokenizer::WhitespaceSplit{});
    return out.add(PreTokenizer::Punctuation{SplitBehavior::kIsolated}), Status();
  }
  if (type == "CharDelimiterSplit") {
    GALVANI_TRY(std::string delimiter, read_character(node, "delimiter", ""));
    return out.add(PreTokenizer::Split{SplitPattern::literal(std::move(delimiter)), SplitBehavior::kRemoved, false}),
           Status();
  }
  return unknown_type(node, type,
                      "Sequence, Split, ByteLevel, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, "
                      "BertPreTokenizer and CharDelimiterSplit");
}

Status read_decoder(const JsonNode& node, int depth, DecoderChain& out) {
  GALVANI_TRY_VOID(check_depth(node, depth));
  GALVANI_TRY(const std::string_view type, node.text("type"));
  if (type == "Sequence") {
    return for_each_object(node, "decoders",
                           [&](const JsonNode& child) { return read_decoder(child, depth + 1, out); });
  }
  if (type == "ByteLevel") return out.add(DecoderChain::ByteLevel{});
  if (type == "ByteFallback") return out.add(DecoderChain::ByteFallback{});
  if (type == "Fuse") return out.add(DecoderChain::Fuse{});
  if (type == "Replace") {
    GALVANI_TRY(const PatternSource source, read_pattern_source(node));
    if (source.regex) {
      return fail(ErrorCode::kUnsupported, "{}: a decoder's Replace takes a String pattern, not a Regex", node.where);
    }
    GALVANI_TRY(const std::string_view content, node.text("content"));
    return out.add(DecoderChain::Replace{source.text, std::string(content)});
  }
  if (type == "Strip") {
    GALVANI_TRY(std::string character, read_character(node, "content", " "));
    GALVANI_TRY(const uint64_t start, node.number("start"));
    GALVANI_TRY(const uint64_t stop, node.number("stop"));
    return out.add(DecoderChain::Strip{std::move(character), start, stop});
  }
  if (type == "Metaspace") {
    GALVANI_TRY(MetaspaceFields fields, read_metaspace(node));
    const bool drop = fields.prepend != PreTokenizer::Metaspace::Prepend::kNever;
    return out.add(DecoderChain::Metaspace{std::move(fields.replacement), drop});
  }
  return unknown_type(node, type, "Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip and Metaspace");
}

Status read_post_processor(const JsonNode& node, int depth, TokenizerParts& parts) {
  GALVANI_TRY_VOID(check_depth(node, depth));
  GALVANI_TRY(const std::string_view type, node.text("type"));
  if (type == "Sequence") {
    return for_each_object(node, "processors",
                           [&](const JsonNode& child) { return read_post_processor(child, depth + 1, parts); });
  }
  if (type == "ByteLevel") return {};  // only moves offsets, which nobody here uses
  if (type == "TemplateProcessing") return read_template(node, parts);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    GALVANI_TRY_VOID(append_pair_token(node, "cls", parts.prefix, true));
    return append_pair_token(node, "sep", parts.suffix, false);
  }
  return unknown_type(node, type, "Sequence, ByteLevel, TemplateProcessing, BertProcessing and RobertaProcessing");
}

}  // namespace galvani::text
