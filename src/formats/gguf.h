#pragma once
/// GGUF v2 and v3, little-endian: typed metadata and tensors in ggml block formats, in one file or split over several.
/// Layout: models.md 7.1. Every length is checked against the file before it is believed.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_map.h"
#include "core/shape.h"

namespace galvani::formats {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
const char* gguf_type_name(GgufType type) noexcept;

/// ggml's ids of the element formats that can be read here.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30,
  kMXFP4 = 39,
};
struct GgmlTypeInfo {
  GgmlType type;
  const char* name;
  int block;  ///< elements a block
  int bytes;  ///< bytes a block
};
/// Null for ids that are unknown or cannot be read here.
const GgmlTypeInfo* ggml_type_info(uint32_t id) noexcept;
const GgmlTypeInfo& ggml_type_info(GgmlType type) noexcept;

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  Shape shape;       ///< outermost first, as Hugging Face has it; the file's dims reversed
  size_t file = 0;   ///< index of the split part
  size_t begin = 0;  ///< byte offset in that part
  size_t bytes = 0;
};

/// A metadata value; the bytes stay in the file.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  ///< of an array
  uint64_t count = 0;                ///< of an array
  std::span<const std::byte> bytes;  ///< scalar, string without its length, or the array's elements
};

class GgufFile {
 public:
  /// Opens the file, and its other parts when it is the first of a split set (metadata: the first part's).
  static Result<std::shared_ptr<const GgufFile>> open(const std::filesystem::path& path);
  /// A single file in memory, which the caller keeps alive.
  static Result<std::shared_ptr<const GgufFile>> open_bytes(std::span<const std::byte> bytes, std::string label);

  uint32_t version() const noexcept { return version_; }
  const std::string& label() const noexcept { return label_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const noexcept { return metadata_; }

  bool has(std::string_view key) const { return metadata_.contains(key); }
  /// Typed getters. Without `fallback` the key must exist; a value of another type is an error either way. Any integer
  /// type serves for integer(), any integer or float for number().
  Result<int64_t> integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  Result<double> number(std::string_view key, std::optional<double> fallback = {}) const;
  Result<bool> boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  Result<std::string> string(std::string_view key, std::optional<std::string> fallback = {}) const;
  /// Arrays; the views of strings() point into the file.
  Result<std::vector<std::string_view>> strings(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;
  Result<std::vector<float>> numbers(std::string_view key) const;
  Result<std::vector<bool>> booleans(std::string_view key) const;
  /// A scalar integer, or an array of `length` of them (head counts, feed-forward sizes): always `length` values.
  Result<std::vector<int64_t>> integer_per_layer(std::string_view key, int64_t length) const;

  /// Sorted by name.
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }
  const GgufTensor* find(std::string_view name) const noexcept;
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;
  /// The mapping that holds a tensor; null for open_bytes.
  std::shared_ptr<const FileMap> map(const GgufTensor& tensor) const;

 private:
  struct Part {
    std::shared_ptr<const FileMap> map;
    std::span<const std::byte> bytes;
  };
  Status add_part(Part part, const std::string& label);
  Status add_other_parts(const std::filesystem::path& path);
  Status finish();
  Result<const GgufValue*> require(std::string_view key, GgufType array_or_scalar) const;

  std::string label_;
  uint32_t version_ = 0;
  std::vector<Part> parts_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

/// What one file holds; offsets of tensors are absolute, `file` is 0.
struct GgufContents {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;
};
/// Parses one file's header. Errors do not name the file.
Result<GgufContents> parse_gguf(std::span<const std::byte> bytes);

}  // namespace galvani::formats
