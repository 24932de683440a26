#pragma once
/// Hand-written matchers of the five split patterns that nearly every byte-level BPE tokenizer uses. Each gives exactly
/// what a backtracking engine would find (leftmost alternative, greedy), in one pass over the text.
#include <cstddef>
#include <optional>
#include <string_view>

namespace galvani::text {

enum class KnownPattern {
  kGpt2,    ///< ByteLevel with use_regex, GPT-2, SmolLM
  kLlama3,  ///< Llama 3: digits in groups of up to three
  kQwen2,   ///< Qwen 2 and 3: one digit at a time
  kQwen35,  ///< Qwen 3.5: marks count as letters
  kO200k,   ///< GPT-4o, gpt-oss: words split at case changes, contractions stay on the word
};

/// The source text of a known pattern.
std::string_view pattern_source(KnownPattern pattern);

/// The known pattern whose source is exactly `source`.
std::optional<KnownPattern> find_known_pattern(std::string_view source);

/// End of the match that starts at `position`. Every code point starts a match of each of these patterns, so the
/// matches tile the text: always > position.
size_t match_known(KnownPattern pattern, std::string_view text, size_t position);

}  // namespace galvani::text
