#include "formats/gguf.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

/// Element i of integers; nothing for other types, and for a u64 beyond int64.
std::optional<int64_t> load_integer(GgufType type, const std::byte* base, uint64_t i) {
  switch (type) {
    case GgufType::kU8: return load<uint8_t>(base + i);
    case GgufType::kI8: return load<int8_t>(base + i);
    case GgufType::kU16: return load<uint16_t>(base + 2 * i);
    case GgufType::kI16: return load<int16_t>(base + 2 * i);
    case GgufType::kU32: return load<uint32_t>(base + 4 * i);
    case GgufType::kI32: return load<int32_t>(base + 4 * i);
    case GgufType::kI64: return load<int64_t>(base + 8 * i);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(base + 8 * i);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default: return std::nullopt;
  }
}

std::optional<double> load_number(GgufType type, const std::byte* base, uint64_t i) {
  if (type == GgufType::kF32) return load<float>(base + 4 * i);
  if (type == GgufType::kF64) return load<double>(base + 8 * i);
  if (const auto integer = load_integer(type, base, i)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string describe(const GgufValue& value) {
  if (value.type != GgufType::kArray) return gguf_type_name(value.type);
  return fmt::format("array of {} {}", value.count, gguf_type_name(value.element));
}

/// "name-00001-of-00003.gguf" → "name", or nothing when the name does not follow the pattern for `count` parts.
std::optional<std::string> split_prefix(const std::string& name, int64_t number, int64_t count) {
  const std::string ending = fmt::format("-{:05}-of-{:05}.gguf", number, count);
  if (!name.ends_with(ending)) return std::nullopt;
  return name.substr(0, name.size() - ending.size());
}

}  // namespace

Status GgufFile::add_part(Part part, const std::string& label) {
  auto contents = parse_gguf(part.bytes);
  if (!contents) return wrap(std::move(contents).error(), label);
  for (auto& tensor : contents->tensors) {
    tensor.file = parts_.size();
    tensors_.push_back(std::move(tensor));
  }
  if (parts_.empty()) {
    version_ = contents->version;
    metadata_ = std::move(contents->metadata);
  }
  parts_.push_back(std::move(part));
  return {};
}

Status GgufFile::finish() {
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(tensors_.begin(), tensors_.end(),
                                        [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != tensors_.end())
    return fail(ErrorCode::kCorrupt, "{}: tensor {} appears twice", label_, quote(twice->name));
  return {};
}

Status GgufFile::add_other_parts(const std::filesystem::path& path) {
  GALVANI_TRY(const int64_t count, integer("split.count", 1));
  if (count == 1 || count == 0) return {};
  GALVANI_TRY(const int64_t number, integer("split.no", 0));
  const std::string name = path.filename().string();
  if (count < 0 || count > 65535 || number < 0 || number >= count)
    return fail(ErrorCode::kCorrupt, "{}: part {} of {} makes no sense", label_, number, count);
  const auto prefix = split_prefix(name, number + 1, count);
  if (!prefix)
    return fail(ErrorCode::kInvalidArgument, "{} is part {} of {}, so its name must end with -{:05}-of-{:05}.gguf",
                label_, number + 1, count, number + 1, count);
  if (number != 0)
    return fail(ErrorCode::kInvalidArgument, "{} is part {} of {}; open the first part, {}-00001-of-{:05}.gguf", label_,
                number + 1, count, *prefix, count);
  for (int64_t i = 1; i < count; ++i) {
    const auto part_path = path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", *prefix, i + 1, count);
    GALVANI_TRY(auto map, FileMap::open(part_path));
    const auto bytes = map->bytes();
    auto part = open_bytes(bytes, part_path.string());  // a file of its own, for its split keys
    if (!part) return tl::unexpected<Error>(std::move(part).error());
    GALVANI_TRY(const int64_t its_number, (*part)->integer("split.no"));
    GALVANI_TRY(const int64_t its_count, (*part)->integer("split.count"));
    if (its_number != i || its_count != count)
      return fail(ErrorCode::kCorrupt, "{} says it is part {} of {}; expected part {} of {}", part_path.string(),
                  its_number + 1, its_count, i + 1, count);
    GALVANI_TRY_VOID(add_part({std::move(map), bytes}, part_path.string()));
  }
  if (has("split.tensors.count")) {
    GALVANI_TRY(const int64_t total, integer("split.tensors.count"));
    if (total != static_cast<int64_t>(tensors_.size()))
      return fail(ErrorCode::kCorrupt, "{}: the {} parts hold {} tensors, split.tensors.count says {}", label_, count,
                  tensors_.size(), total);
  }
  return {};
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::filesystem::path& path) {
  GALVANI_TRY(auto map, FileMap::open(path));
  auto file = std::make_shared<GgufFile>();
  file->label_ = path.string();
  const auto bytes = map->bytes();
  GALVANI_TRY_VOID(file->add_part({std::move(map), bytes}, file->label_));
  GALVANI_TRY_VOID(file->add_other_parts(path));
  GALVANI_TRY_VOID(file->finish());
  return file;
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open_bytes(std::span<const std::byte> bytes, std::string label) {
  auto file = std::make_shared<GgufFile>();
  file->label_ = std::move(label);
  GALVANI_TRY_VOID(file->add_part({nullptr, bytes}, file->label_));
  GALVANI_TRY_VOID(file->finish());
  return file;
}

Result<const GgufValue*> GgufFile::require(std::string_view key, GgufType array_or_scalar) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return fail(ErrorCode::kNotFound, "{}: has no metadata key {}", label_, quote(key));
  if ((array_or_scalar == GgufType::kArray) != (it->second.type == GgufType::kArray))
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected {}", label_, quote(key), describe(it->second),
                array_or_scalar == GgufType::kArray ? "an array" : "a single value");
  return &it->second;
}

Result<int64_t> GgufFile::integer(std::string_view key, std::optional<int64_t> fallback) const {
  if (fallback && !has(key)) return *fallback;
  GALVANI_TRY(const auto* value, require(key, GgufType::kU64));
  if (value->type != GgufType::kString)
    if (const auto result = load_integer(value->type, value->bytes.data(), 0)) return *result;
  return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected an integer below 2^63", label_, quote(key),
              describe(*value));
}

Result<double> GgufFile::number(std::string_view key, std::optional<double> fallback) const {
  if (fallback && !has(key)) return *fallback;
  GALVANI_TRY(const auto* value, require(key, GgufType::kF32));
  if (value->type != GgufType::kString)
    if (const auto result = load_number(value->type, value->bytes.data(), 0)) return *result;
  return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected a number", label_, quote(key), describe(*value));
}

Result<bool> GgufFile::boolean(std::string_view key, std::optional<bool> fallback) const {
  if (fallback && !has(key)) return *fallback;
  GALVANI_TRY(const auto* value, require(key, GgufType::kBool));
  if (value->type == GgufType::kBool) return load<uint8_t>(value->bytes.data()) != 0;
  return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected a bool", label_, quote(key), describe(*value));
}

Result<std::string> GgufFile::string(std::string_view key, std::optional<std::string> fallback) const {
  if (fallback && !has(key)) return *fallback;
  GALVANI_TRY(const auto* value, require(key, GgufType::kString));
  if (value->type == GgufType::kString)
    return std::string(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
  return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected a string", label_, quote(key), describe(*value));
}

Result<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  GALVANI_TRY(const auto* value, require(key, GgufType::kArray));
  if (value->element != GgufType::kString)
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected an array of strings", label_, quote(key),
                describe(*value));
  std::vector<std::string_view> result;
  result.reserve(value->count);
  const std::byte* at = value->bytes.data();  // lengths were checked when the file was parsed
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<uint64_t>(at);
    result.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return result;
}

Result<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  GALVANI_TRY(const auto* value, require(key, GgufType::kArray));
  std::vector<int64_t> result;
  result.reserve(std::min<uint64_t>(value->count, value->bytes.size()));
  for (uint64_t i = 0; i < value->count; ++i) {
    const bool scalar = value->element != GgufType::kString && value->element != GgufType::kArray;
    const auto item = scalar ? load_integer(value->element, value->bytes.data(), i) : std::nullopt;
    if (!item)
      return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected an array of integers below 2^63", label_, quote(key),
                  describe(*value));
    result.push_back(*item);
  }
  return result;
}

Result<std::vector<float>> GgufFile::numbers(std::string_view key) const {
  GALVANI_TRY(const auto* value, require(key, GgufType::kArray));
  std::vector<float> result;
  result.reserve(std::min<uint64_t>(value->count, value->bytes.size()));
  for (uint64_t i = 0; i < value->count; ++i) {
    const bool scalar = value->element != GgufType::kString && value->element != GgufType::kArray;
    const auto item = scalar ? load_number(value->element, value->bytes.data(), i) : std::nullopt;
    if (!item)
      return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected an array of numbers", label_, quote(key),
                  describe(*value));
    result.push_back(static_cast<float>(*item));
  }
  return result;
}

Result<std::vector<bool>> GgufFile::booleans(std::string_view key) const {
  GALVANI_TRY(const auto* value, require(key, GgufType::kArray));
  if (value->element != GgufType::kBool)
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; expected an array of bools", label_, quote(key), describe(*value));
  std::vector<bool> result;
  for (std::byte b : value->bytes) result.push_back(b != std::byte{0});
  return result;
}

Result<std::vector<int64_t>> GgufFile::integer_per_layer(std::string_view key, int64_t length) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end() || it->second.type != GgufType::kArray) {
    GALVANI_TRY(const int64_t value, integer(key));
    return std::vector<int64_t>(static_cast<size_t>(length), value);
  }
  GALVANI_TRY(auto values, integers(key));
  if (static_cast<int64_t>(values.size()) != length)
    return fail(ErrorCode::kCorrupt, "{}: {} has {} entries for {} layers", label_, quote(key), values.size(), length);
  return values;
}

const GgufTensor* GgufFile::find(std::string_view name) const noexcept {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const GgufTensor& tensor, std::string_view key) { return tensor.name < key; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  return parts_[tensor.file].bytes.subspan(tensor.begin, tensor.bytes);
}
std::shared_ptr<const FileMap> GgufFile::map(const GgufTensor& tensor) const { return parts_[tensor.file].map; }

}  // namespace galvani::formats
