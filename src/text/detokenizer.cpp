#include "text/detokenizer.h"

namespace galvani::text {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), stream_(tokenizer_->decoder()), skip_special_(skip_special) {}

std::string Detokenizer::push(int32_t id) {
  std::string out;
  const auto text = tokenizer_->token_text(id);
  if (text && !(skip_special_ && tokenizer_->is_special(id))) stream_.push(*text, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  stream_.finish(out);
  return out;
}

}  // namespace galvani::text
