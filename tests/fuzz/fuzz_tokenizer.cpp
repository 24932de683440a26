/// tokenizer.json, and what it makes of a text. Input: tokenizer.json, a NUL byte, the text. Without a NUL the whole is
/// a text for a fixed tokenizer.
#include <cstdlib>
#include <string_view>

#include "core/log.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

using namespace galvani;
using namespace galvani::text;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

namespace {

/// Byte-level over all bytes, so that decode(encode(x)) == x must hold.
Tokenizer::Pointer fixed_tokenizer() {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "llama-bpe";
  char32_t extra = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    append_utf8(vocab.tokens.emplace_back(), itself ? byte : extra++);
  }
  for (const char* merged : {"th", "he", "the", "in", "aa", "aaaa"}) vocab.tokens.emplace_back(merged);
  vocab.merges = {"t h", "h e", "th e", "i n", "a a", "aa aa"};
  vocab.add_bos = false;
  auto tokenizer = Tokenizer::from_gguf_vocab(vocab, "fixed");
  if (!tokenizer) __builtin_trap();
  return *tokenizer;
}

void exercise(const Tokenizer::Pointer& tokenizer, std::string_view text, bool lossless) {
  for (const bool parse : {true, false}) {
    const auto ids = tokenizer->encode(text, {.add_special = parse, .parse_special = parse});
    if (!ids) continue;
    const std::string decoded = tokenizer->decode(*ids, false);
    if (lossless && decoded != text) __builtin_trap();
    Detokenizer stream(tokenizer, false);
    std::string streamed;
    for (const int32_t id : *ids) streamed += stream.push(id);
    streamed += stream.finish();
    if (streamed != decoded || find_invalid_utf8(decoded) != std::string_view::npos) __builtin_trap();
  }
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<signed char>(c));
  (void)tokenizer->decode(ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer::Pointer fixed = fixed_tokenizer();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = input.find('\0');
  if (nul == std::string_view::npos) {
    exercise(fixed, input, true);
    return 0;
  }
  const auto tokenizer = Tokenizer::from_json(input.substr(0, nul), "fuzz");
  if (tokenizer) exercise(*tokenizer, input.substr(nul + 1), false);
  return 0;
}
