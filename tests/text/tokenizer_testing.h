#pragma once
/// Strings, random numbers and hashes that scripts/goldens/make_tokenizer_goldens.py has too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/unicode.h"

namespace galvani::text {

inline std::filesystem::path tokenizer_data() { return std::filesystem::path(GALVANI_TEST_DATA) / "tokenizer"; }

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  auto value = nlohmann::json::parse(read_file(path), nullptr, false);
  EXPECT_FALSE(value.is_discarded()) << path << " is missing or not JSON";
  return value;
}

inline const std::vector<std::string>& test_strings() {
  static const std::vector<std::string> strings = [] {
    std::vector<std::string> out;
    std::ifstream file(tokenizer_data() / "strings.jsonl", std::ios::binary);
    for (std::string line; std::getline(file, line);) out.push_back(nlohmann::json::parse(line).get<std::string>());
    return out;
  }();
  return strings;
}

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t limit) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % limit;
  }

 private:
  uint64_t state_;
};

inline std::string fnv_hex(std::string_view bytes) {
  uint32_t value = 0x811C9DC5;
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x01000193u;
  char hex[9];
  snprintf(hex, sizeof hex, "%08x", value);
  return hex;
}

inline std::string fnv_hex(std::span<const int32_t> ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(static_cast<uint32_t>(id) >> shift);
  }
  return fnv_hex(bytes);
}

inline std::vector<std::vector<int32_t>> id_sequences(uint64_t vocab_size, int count) {
  SplitMix r(vocab_size);
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(count));
  for (auto& ids : out) {
    ids.resize(1 + r.below(24));
    for (int32_t& id : ids) {
      const uint64_t limit = r.below(4) == 0 ? std::min<uint64_t>(vocab_size, 400) : vocab_size;
      id = static_cast<int32_t>(r.below(limit));
    }
  }
  return out;
}

inline std::vector<std::string> long_texts() {
  SplitMix r(7);
  std::string random, ideographs;
  for (int i = 0; i < 100000; ++i) random += static_cast<char>('a' + r.below(26));
  for (int i = 0; i < 33000; ++i) append_utf8(ideographs, static_cast<char32_t>(0x4E00 + r.below(8000)));
  return {std::string(100000, 'a'), random, ideographs, std::string(100000, ' ')};
}

inline std::string shown(const std::vector<int32_t>& ids) { return nlohmann::json(ids).dump(); }

/// A small tokenizer.json: byte-level over "a".."z" with a few merges, `fields` added or replaced.
inline std::string small_json(const nlohmann::json& fields = nlohmann::json::object()) {
  nlohmann::json vocab = nlohmann::json::object();
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = c - 'a';
  vocab["ab"] = 26;
  vocab["abc"] = 27;
  nlohmann::json root = {{"model",
                          {{"type", "BPE"},
                           {"vocab", vocab},
                           {"merges", nlohmann::json::array({nlohmann::json::array({"a", "b"}), "ab c"})}}},
                         {"added_tokens", nlohmann::json::array()}};
  root.merge_patch(fields);
  return root.dump();
}

}  // namespace galvani::text
