#pragma once
/// Readers of the four small components of tokenizer.json; `node` is the component's own object.
#include "text/tokenizer_json_fields.h"
#include "text/tokenizer_parts.h"

namespace galvani::text {

/// Sequences may nest this deep; more is refused.
inline constexpr int kMaxNesting = 16;

Status read_normalizer(const JsonNode& node, int depth, Normalizer& out);
Status read_pre_tokenizer(const JsonNode& node, int depth, PreTokenizer& out);
Status read_decoder(const JsonNode& node, int depth, DecoderChain& out);
/// Puts ids around parts.prefix and parts.suffix; the model and added tokens are already in `parts`.
Status read_post_processor(const JsonNode& node, int depth, TokenizerParts& parts);

}  // namespace galvani::text
