#pragma once
/// Template text to tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace galvani::text::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  ///< data, name, decoded string, operator
  int64_t integer = 0;
  double real = 0;
};

/// `source` must be valid UTF-8. Newlines become \n and one at the very end is dropped.
/// Errors (kCorrupt) name the line.
Result<std::vector<Token>> tokenize_template(std::string_view source);

}  // namespace galvani::text::jinja
