#pragma once
/// Writes GGUF files by hand, right or deliberately wrong.
#include <string>
#include <vector>

#include "formats/bytes.h"

namespace galvani::testing {

struct GgufBuilder {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  ///< fastest first
    uint32_t type = 0;
    uint64_t offset = 0;
  };
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t value_count = ~uint64_t{0}, tensor_count = ~uint64_t{0};  ///< ~0: as many as were added
  std::string values;
  uint64_t values_added = 0;
  std::vector<Tensor> tensors;
  uint64_t alignment = 32;
  std::string data;

  static std::string text(const std::string& s) { return little(s.size(), 8) + s; }
  GgufBuilder& raw(const std::string& key, uint32_t type, const std::string& bytes) {
    values += text(key) + little(type, 4) + bytes;
    ++values_added;
    return *this;
  }
  GgufBuilder& string(const std::string& key, const std::string& s) { return raw(key, 8, text(s)); }
  GgufBuilder& u32(const std::string& key, uint32_t v) { return raw(key, 4, little(v, 4)); }
  GgufBuilder& f32(const std::string& key, float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    return raw(key, 6, little(bits, 4));
  }
  GgufBuilder& tensor(const std::string& name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    tensors.push_back({name, std::move(dims), type, offset});
    return *this;
  }
  std::string build() const {
    std::string out = magic + little(version, 4);
    out += little(tensor_count == ~uint64_t{0} ? tensors.size() : tensor_count, 8);
    out += little(value_count == ~uint64_t{0} ? values_added : value_count, 8);
    out += values;
    for (const auto& t : tensors) {
      out += text(t.name) + little(t.dims.size(), 4);
      for (auto dim : t.dims) out += little(dim, 8);
      out += little(t.type, 4) + little(t.offset, 8);
    }
    if (!data.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

}  // namespace galvani::testing
