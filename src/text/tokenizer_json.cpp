/// tokenizer.json → TokenizerParts.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "text/tokenizer_json_components.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

Result<TokenTable> read_vocab(const JsonNode& model) {
  GALVANI_TRY(const JsonNode vocab, model.child("vocab"));
  TokenTable table(static_cast<size_t>(std::distance(vocab.object.begin(), vocab.object.end())));
  for (const auto field : vocab.object) {
    uint64_t id = 0;
    if (field.value.get(id) != simdjson::SUCCESS) {
      return fail(ErrorCode::kCorrupt, "model.vocab: the id of \"{}\" must be a whole number of at least 0",
                  field.key.substr(0, 64));
    }
    const Status added = table.add(field.key, id > 0x7FFFFFFF ? int64_t{0x7FFFFFFF} : static_cast<int64_t>(id));
    if (!added) return wrap(added.error(), "model.vocab");
  }
  return table;
}

struct TextPair {
  std::string_view left, right;
};

/// "left right" or ["left", "right"].
Result<TextPair> read_merge(JsonElement element, size_t index) {
  TextPair pair;
  std::string_view line;
  JsonArray both;
  if (element.get(line) == simdjson::SUCCESS) {
    const size_t space = line.find(' ');
    if (space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos) {
      return TextPair{line.substr(0, space), line.substr(space + 1)};
    }
  } else if (element.get(both) == simdjson::SUCCESS && both.size() == 2 &&
             both.at(0).get(pair.left) == simdjson::SUCCESS && both.at(1).get(pair.right) == simdjson::SUCCESS) {
    return pair;
  }
  return fail(ErrorCode::kCorrupt, "model.merges[{}] must be \"left right\" with one space, or [\"left\", \"right\"]",
              index);
}

Result<MergeTable> read_merges(const JsonNode& model, const TokenTable& vocab) {
  GALVANI_TRY(const JsonArray merges, model.array("merges"));
  const size_t count = static_cast<size_t>(std::distance(merges.begin(), merges.end()));
  MergeTable table(count);
  uint32_t rank = 0;
  std::string joined;
  for (const JsonElement element : merges) {
    std::string_view line;
    if (element.get(line) == simdjson::SUCCESS && line.starts_with("#version")) continue;
    GALVANI_TRY(const TextPair pair, read_merge(element, rank));
    joined.assign(pair.left).append(pair.right);
    const int32_t left = vocab.find(pair.left), right = vocab.find(pair.right), both = vocab.find(joined);
    if (left == kNoToken || right == kNoToken || both == kNoToken) {
      return fail(ErrorCode::kCorrupt, "model.merges[{}] joins \"{}\" and \"{}\", but \"{}\" is not in the vocabulary",
                  rank, pair.left.substr(0, 64), pair.right.substr(0, 64),
                  (left == kNoToken    ? pair.left
                   : right == kNoToken ? pair.right
                                       : std::string_view(joined))
                      .substr(0, 64));
    }
    table.set(left, right, {rank++, both});
  }
  return table;
}

Result<BpeModel> read_model(const JsonNode& root) {
  GALVANI_TRY(const JsonNode model, root.child("model"));
  GALVANI_TRY(const std::string_view type, model.text_or("type", "BPE"));
  if (type != "BPE") {
    return fail(ErrorCode::kUnsupported, "model: type \"{}\" is not implemented; supported is BPE", type);
  }
  for (const auto key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    GALVANI_TRY(const std::string_view affix, model.text_or(key, ""));
    if (!affix.empty()) {
      return fail(ErrorCode::kUnsupported, "model.{} is \"{}\"; only null and \"\" are implemented", key, affix);
    }
  }
  double dropout = 0;
  if (model.has("dropout") && (model.object["dropout"].get(dropout) != simdjson::SUCCESS || dropout != 0)) {
    return fail(ErrorCode::kUnsupported,
                "model.dropout is set, which makes token ids random; set it to null for inference");
  }
  BpeModel::Options options;
  GALVANI_TRY(options.byte_fallback, model.flag("byte_fallback", false));
  GALVANI_TRY(options.fuse_unk, model.flag("fuse_unk", false));
  GALVANI_TRY(options.ignore_merges, model.flag("ignore_merges", false));
  GALVANI_TRY(options.unk_token, model.text_or("unk_token", ""));
  GALVANI_TRY(TokenTable vocab, read_vocab(model));
  GALVANI_TRY(MergeTable merges, read_merges(model, vocab));
  return BpeModel(std::move(vocab), std::move(merges), std::move(options));
}

/// Adds one token. Its id is the vocabulary's when the text is in it, else the next free one, whatever the file says:
/// that is what the Rust package does, so it is what the model was trained with.
Status read_added_token(const JsonNode& node, TokenizerParts& parts) {
  AddedToken token;
  GALVANI_TRY(token.content, node.text("content"));
  GALVANI_TRY(const uint64_t file_id, node.number("id"));
  GALVANI_TRY(token.special, node.flag("special", false));
  GALVANI_TRY(token.normalized, node.flag("normalized", !token.special));
  GALVANI_TRY(token.single_word, node.flag("single_word", false));
  GALVANI_TRY(token.lstrip, node.flag("lstrip", false));
  GALVANI_TRY(token.rstrip, node.flag("rstrip", false));
  if (token.content.empty()) return {};
  if (const auto known = parts.id_of(token.content)) {
    token.id = *known;
  } else {
    token.id = static_cast<int32_t>(std::max(parts.vocab().count(), parts.added.id_limit()));
  }
  if (file_id != static_cast<uint64_t>(token.id)) {
    log_warn("{}: {} gives \"{}\" the id {}, but its place in the file makes it {}, which is used", parts.source,
             node.where, token.content.substr(0, 64), file_id, token.id);
  }
  token.shown = token.content;
  if (token.normalized) {
    GALVANI_TRY(token.shown, parts.normalizer.apply(token.content));
  }
  parts.added.add(token);
  return {};
}

/// The id of bos_token / eos_token: a string, or an object with "content".
std::optional<int32_t> config_token(const nlohmann::json& config, const char* key, const TokenizerParts& parts) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  const nlohmann::json& text = found->is_object() && found->contains("content") ? found->at("content") : *found;
  if (!text.is_string()) return std::nullopt;
  const auto id = parts.id_of(text.get_ref<const std::string&>());
  if (!id) {
    log_warn("{}: tokenizer_config.json names {} \"{}\", which is not in the vocabulary", parts.source, key,
             text.get_ref<const std::string&>());
  }
  return id;
}

/// Through nlohmann-json, because these files hold numbers beyond 64 bits (model_max_length 1e30).
Status read_config(std::string_view text, TokenizerParts& parts) {
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return fail(ErrorCode::kCorrupt, "tokenizer_config.json beside it is not a JSON object");
  parts.bos = config_token(config, "bos_token", parts);
  parts.eos = config_token(config, "eos_token", parts);
  return {};
}

Result<JsonNode> parse(simdjson::dom::parser& parser, std::string_view json) {
  JsonElement root;
  if (const auto error = parser.parse(json.data(), json.size(), true).get(root); error != simdjson::SUCCESS) {
    return fail(ErrorCode::kCorrupt, "not valid JSON: {}", simdjson::error_message(error));
  }
  JsonObject object;
  if (root.get(object) != simdjson::SUCCESS) return fail(ErrorCode::kCorrupt, "must hold a JSON object");
  return JsonNode{object, ""};
}

Status check_ids(const std::vector<int32_t>& ids, const TokenizerParts& parts) {
  for (const int32_t id : ids) {
    if (!parts.token_text(id)) {
      return fail(ErrorCode::kCorrupt, "post_processor adds token id {}, which does not exist; ids end at {}", id,
                  std::max(parts.vocab().id_limit(), parts.added.id_limit()));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TokenizerParts>> parts_from_json(std::string_view json, std::string_view config_json,
                                                        const std::string& source) {
  simdjson::dom::parser parser;
  GALVANI_TRY(const JsonNode root, parse(parser, json));
  GALVANI_TRY(BpeModel model, read_model(root));
  auto parts = std::make_unique<TokenizerParts>(TokenizerParts{.source = source, .model = std::move(model)});
  const auto component = [&](std::string_view key, auto read, auto& target) -> Status {
    if (!root.has(key)) return {};
    GALVANI_TRY(const JsonNode node, root.child(key));
    return read(node, 0, target);
  };
  GALVANI_TRY_VOID(component("normalizer", read_normalizer, parts->normalizer));
  GALVANI_TRY_VOID(component("pre_tokenizer", read_pre_tokenizer, parts->pre_tokenizer));
  GALVANI_TRY_VOID(component("decoder", read_decoder, parts->decoder));
  if (root.has("added_tokens")) {
    GALVANI_TRY_VOID(
        for_each_object(root, "added_tokens", [&](const JsonNode& node) { return read_added_token(node, *parts); }));
  }
  GALVANI_TRY_VOID(component("post_processor", read_post_processor, *parts));
  GALVANI_TRY_VOID(check_ids(parts->prefix, *parts));
  GALVANI_TRY_VOID(check_ids(parts->suffix, *parts));
  if (!config_json.empty()) GALVANI_TRY_VOID(read_config(config_json, *parts));
  return parts;
}

}  // namespace galvani::text
