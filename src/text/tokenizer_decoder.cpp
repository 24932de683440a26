#include "text/tokenizer_decoder.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/tokenizer_bytelevel.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Moves what is certain from `held` to `out`: valid text, and U+FFFD for bytes that can no longer become text.
void drain_bytes(std::string& held, bool last, std::string& out) {
  size_t at = 0;
  while (at < held.size()) {
    const Utf8Step step = utf8_step(held, at);
    if (step.kind == Utf8Step::kIncomplete && !last) break;
    if (step.kind == Utf8Step::kValid) {
      out.append(held, at, step.length);
    } else {
      out += kReplacementCharacter;
    }
    at += step.length;
  }
  held.erase(0, at);
}

/// Replaces from the left; `rest` is where the last match ended.
std::string replace_all(const DecoderChain::Replace& replace, std::string_view text, size_t& rest) {
  std::string out;
  rest = 0;
  for (size_t at; (at = text.find(replace.pattern, rest)) != std::string_view::npos;) {
    out.append(text.substr(rest, at - rest));
    out += replace.content;
    rest = at + replace.pattern.size();
  }
  return out;
}

/// Bytes at the end of `text` that could be the beginning of `pattern`.
size_t partial_match(std::string_view text, std::string_view pattern) {
  for (size_t n = std::min(text.size(), pattern.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == pattern.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

int byte_token_value(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int low = hex_digit(token[4]);
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);
  return low < 0 || high < 0 ? -1 : high * 16 + low;
}

Status DecoderChain::add(Step step) {
  if (fused_ && (std::holds_alternative<ByteLevel>(step) || std::holds_alternative<ByteFallback>(step))) {
    return fail(ErrorCode::kUnsupported,
                "decoder: {} after the tokens were fused into one text; it must come before Fuse and ByteLevel",
                std::holds_alternative<ByteLevel>(step) ? "ByteLevel" : "ByteFallback");
  }
  const bool fuses = std::holds_alternative<ByteLevel>(step) || std::holds_alternative<Fuse>(step);
  steps_.push_back({std::move(step), fused_});
  fused_ = fused_ || fuses;
  return {};
}

std::string DecoderChain::token_bytes(std::string_view token) const {
  std::string text(token);
  for (const Stage& stage : steps_) {
    if (std::holds_alternative<ByteLevel>(stage.step)) {
      std::string bytes;
      if (append_byte_level_bytes(bytes, text)) text = std::move(bytes);
    } else if (std::holds_alternative<ByteFallback>(stage.step)) {
      if (const int value = byte_token_value(text); value >= 0) return std::string(1, static_cast<char>(value));
    } else if (const auto* replace = std::get_if<Replace>(&stage.step)) {
      size_t rest = 0;
      std::string replaced = replace_all(*replace, text, rest);
      text = replaced.append(text, rest);
    } else if (const auto* meta = std::get_if<Metaspace>(&stage.step)) {
      size_t rest = 0;
      std::string replaced = replace_all({meta->replacement, " "}, text, rest);
      text = replaced.append(text, rest);
    }
  }
  return text;
}

DecodeStream::DecodeStream(const DecoderChain& chain) : chain_(chain), states_(chain.steps_.size()) {}

/// One stage: `operator()` takes a token (or a fragment of the fused text), `finish` flushes.
struct DecodeStream::Visitor {
  DecodeStream& stream;
  size_t index;
  State& state;
  bool fused;
  std::string& out;

  void next(std::string_view token) { stream.run(index + 1, token, out); }

  void take(const DecoderChain::ByteLevel&, std::string_view token) {
    if (!append_byte_level_bytes(state.held, token)) state.held += token;
    std::string text;
    drain_bytes(state.held, false, text);
    if (!text.empty()) next(text);
  }
  void finish(const DecoderChain::ByteLevel&) {
    std::string text;
    drain_bytes(state.held, true, text);
    if (!text.empty()) next(text);
  }

  void take(const DecoderChain::ByteFallback& step, std::string_view token) {
    const int value = byte_token_value(token);
    if (value >= 0) {
      state.held += static_cast<char>(value);
      return;
    }
    finish(step);
    next(token);
  }
  void finish(const DecoderChain::ByteFallback&) {
    if (state.held.empty()) return;
    const std::string run = std::exchange(state.held, {});
    if (find_invalid_utf8(run) == std::string::npos) return next(run);
    for (size_t i = 0; i < run.size(); ++i) next(kReplacementCharacter);
  }

  void take(const DecoderChain::Fuse&, std::string_view token) { next(token); }
  void finish(const DecoderChain::Fuse&) {}

  void take(const DecoderChain::Replace& step, std::string_view token) {
    state.held += token;
    size_t rest = 0;
    std::string text = replace_all(step, state.held, rest);
    // Of a fused text, what may begin a match has to wait for the next fragment; a token is complete.
    const std::string_view tail = std::string_view(state.held).substr(rest);
    const size_t wait = fused ? partial_match(tail, step.pattern) : 0;
    text.append(tail.substr(0, tail.size() - wait));
    state.held.erase(0, state.held.size() - wait);
    next(text);
  }
  void finish(const DecoderChain::Replace&) {
    if (!state.held.empty()) next(std::exchange(state.held, {}));
  }

  void take(const DecoderChain::Strip& step, std::string_view token) {
    if (!fused) {
      std::string_view text = token;
      for (size_t i = 0; i < step.start && text.starts_with(step.character); ++i) {
        text.remove_prefix(step.character.size());
      }
      for (size_t i = 0; i < step.stop && text.ends_with(step.character); ++i) {
        text.remove_suffix(step.character.size());
      }
      return next(text);
    }
    state.held += token;
    size_t begin = 0;
    while (state.open && state.count < step.start &&
           state.held.compare(begin, step.character.size(), step.character) == 0) {
      begin += step.character.size();
      ++state.count;
    }
    if (begin < state.held.size()) state.open = false;
    // Hold back what may turn out to be the end of the text.
    size_t end = state.held.size();
    for (size_t i = 0; i < step.stop; ++i) {
      if (end < begin + step.character.size()) break;
      if (state.held.compare(end - step.character.size(), step.character.size(), step.character) != 0) break;
      end -= step.character.size();
    }
    const std::string text = state.held.substr(begin, end - begin);
    state.held.erase(0, end);
    if (!text.empty()) next(text);
  }
  void finish(const DecoderChain::Strip&) {}  // what is still held is stripped

  void take(const DecoderChain::Metaspace& step, std::string_view token) {
    const bool drop = step.drop_first && (fused || state.count == 0);
    ++state.count;
    std::string text;
    size_t done = 0;
    for (size_t at; (at = token.find(step.replacement, done)) != std::string_view::npos;) {
      text.append(token.substr(done, at - done));
      if (!drop) text += ' ';
      done = at + step.replacement.size();
    }
    text.append(token.substr(done));
    next(text);
  }
  void finish(const DecoderChain::Metaspace&) {}
};

void DecodeStream::run(size_t stage, std::string_view token, std::string& out) {
  if (stage == states_.size()) {
    out += token;
    return;
  }
  const auto& entry = chain_.steps_[stage];
  Visitor visitor{*this, stage, states_[stage], entry.fused, out};
  std::visit([&](const auto& step) { visitor.take(step, token); }, entry.step);
}

void DecodeStream::end(size_t stage, std::string& out) {
  const auto& entry = chain_.steps_[stage];
  Visitor visitor{*this, stage, states_[stage], entry.fused, out};
  std::visit([&](const auto& step) { visitor.finish(step); }, entry.step);
}

void DecodeStream::push(std::string_view token, std::string& out) {
  if (chain_.empty() && any_) out += ' ';  // without a decoder the Rust package joins tokens with spaces
  any_ = true;
  run(0, token, out);
}

void DecodeStream::finish(std::string& out) {
  for (size_t stage = 0; stage < states_.size(); ++stage) end(stage, out);
}

}  // namespace galvani::text
