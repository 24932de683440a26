#include "text/tokenizer_added.h"

#include <algorithm>

#include "text/unicode.h"

namespace galvani::text {
namespace {

bool word_before(std::string_view text, size_t position) {
  if (position == 0) return false;
  size_t length = 0;
  return CharTable::get()[utf8_at(text, utf8_before(text, position), length)].word();
}

bool word_at(std::string_view text, size_t position) {
  if (position >= text.size()) return false;
  size_t length = 0;
  return CharTable::get()[utf8_at(text, position, length)].word();
}

/// Start of the white space that ends right before `position`, not before `lowest`.
size_t space_start(std::string_view text, size_t position, size_t lowest) {
  const CharTable& table = CharTable::get();
  while (position > lowest) {
    const size_t before = utf8_before(text, position);
    size_t length = 0;
    if (!table[utf8_at(text, before, length)].space()) break;
    position = before;
  }
  return position;
}

size_t space_end(std::string_view text, size_t position) {
  const CharTable& table = CharTable::get();
  size_t length = 0;
  while (position < text.size() && table[utf8_at(text, position, length)].space()) position += length;
  return position;
}

}  // namespace

uint32_t TokenTrie::child(uint32_t node, unsigned char byte) const {
  if (node == 0) return root_[byte];
  const auto& children = nodes_[node].children;
  const auto found = std::lower_bound(children.begin(), children.end(), byte,
                                      [](const auto& entry, unsigned char value) { return entry.first < value; });
  return found != children.end() && found->first == byte ? found->second : 0;
}

void TokenTrie::add(std::string_view text, int32_t value) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      if (node == 0) {
        root_[byte] = next;
      } else {
        auto& children = nodes_[node].children;
        const std::pair<unsigned char, uint32_t> entry{byte, next};
        children.insert(std::lower_bound(children.begin(), children.end(), entry), entry);
      }
    }
    node = next;
  }
  if (nodes_[node].value == kNoToken) nodes_[node].value = value;
}

int32_t TokenTrie::longest_at(std::string_view text, size_t position, size_t& end) const {
  int32_t best = kNoToken;
  uint32_t node = 0;
  for (size_t i = position; i < text.size(); ++i) {
    node = child(node, static_cast<unsigned char>(text[i]));
    if (node == 0) break;
    if (nodes_[node].value != kNoToken) {
      best = nodes_[node].value;
      end = i + 1;
    }
  }
  return best;
}

void AddedVocabulary::add(const AddedToken& token) {
  if (token.content.empty()) return;
  by_content_[token.content] = token.id;
  by_id_[token.id] = token;
  if (token.special) special_.insert(token.content);
  if (token.normalized) {
    normalized_.add(token.shown, token.id);
  } else {
    raw_.add(token.content, token.id);
  }
  id_limit_ = std::max(id_limit_, static_cast<size_t>(token.id) + 1);
}

std::vector<AddedPiece> AddedVocabulary::split(std::string_view text, Stage stage, bool parse_special) const {
  const TokenTrie& trie = stage == Stage::kRaw ? raw_ : normalized_;
  std::vector<AddedPiece> pieces;
  size_t gap = 0;  // end of what has been cut off so far
  for (size_t position = 0; position < text.size();) {
    if (!trie.may_start(static_cast<unsigned char>(text[position]))) {
      ++position;
      continue;
    }
    size_t end = 0;
    const int32_t id = trie.longest_at(text, position, end);
    if (id == kNoToken) {
      ++position;
      continue;
    }
    size_t begin = position;
    position = end;  // a match that is rejected below is not searched again from inside
    const AddedToken& token = by_id_.at(id);
    if (!parse_special && special_.contains(token.content)) continue;
    if (token.single_word && (word_before(text, begin) || word_at(text, end))) continue;
    if (token.lstrip) begin = std::max(space_start(text, begin, gap), gap);
    if (token.rstrip) end = space_end(text, std::max(end, gap));  // what lies between the two is white space
    if (gap < begin) pieces.push_back({{gap, begin}, kNoToken});
    pieces.push_back({{begin, end}, id});
    gap = end;
  }
  if (gap < text.size()) pieces.push_back({{gap, text.size()}, kNoToken});
  return pieces;
}

const AddedToken* AddedVocabulary::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

const AddedToken* AddedVocabulary::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : find(found->second);
}

}  // namespace galvani::text
