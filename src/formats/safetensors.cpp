#include "formats/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // the reference implementation's cap
constexpr size_t kDeepestHeader = 8;

std::optional<DType> dtype_of(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"F32", DType::kF32},   {"F16", DType::kF16},        {"BF16", DType::kBF16},     {"F64", DType::kF64},
      {"I8", DType::kI8},     {"U8", DType::kU8},          {"I16", DType::kI16},       {"U16", DType::kU16},
      {"I32", DType::kI32},   {"U32", DType::kU32},        {"I64", DType::kI64},       {"U64", DType::kU64},
      {"BOOL", DType::kBool}, {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}};
  for (const auto& [text, type] : kTypes)
    if (text == name) return type;
  return std::nullopt;
}

uint64_t load_u64(const std::byte* p) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(p[i]) << (8 * i);
  return value;
}

Result<std::vector<int64_t>> read_dims(simdjson::dom::element value, std::string_view name) {
  simdjson::dom::array array;
  if (value.get(array)) return fail(ErrorCode::kCorrupt, "tensor {}: shape must be a list of sizes", quote(name));
  std::vector<int64_t> dims;
  for (simdjson::dom::element item : array) {
    int64_t dim = 0;
    if (item.get(dim) || dim < 0)
      return fail(ErrorCode::kCorrupt, "tensor {}: dimension {} of its shape must be an integer from 0 to 2^63-1",
                  quote(name), dims.size());
    dims.push_back(dim);
  }
  return dims;
}

/// One "name": {"dtype", "shape", "data_offsets"} of the header; offsets are made absolute with `data`.
Result<SafetensorsEntry> read_entry(std::string_view name, simdjson::dom::element value, uint64_t data, uint64_t size) {
  simdjson::dom::object object;
  if (value.get(object)) return fail(ErrorCode::kCorrupt, "tensor {}: its description must be an object", quote(name));
  SafetensorsEntry entry;
  entry.name = std::string(name);
  int seen_dtype = 0, seen_shape = 0, seen_offsets = 0;
  for (auto field : object) {
    if (field.key == "dtype") {
      std::string_view text;
      if (field.value.get(text)) return fail(ErrorCode::kCorrupt, "tensor {}: dtype must be a string", quote(name));
      const auto type = dtype_of(text);
      if (!type)
        return fail(ErrorCode::kUnsupported,
                    "tensor {}: unknown dtype {}; known are F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I8..I64 U8..U64 BOOL",
                    quote(name), quote(text));
      entry.dtype = *type;
      ++seen_dtype;
    } else if (field.key == "shape") {
      GALVANI_TRY(auto dims, read_dims(field.value, name));
      entry.shape = Shape(std::move(dims));
      ++seen_shape;
    } else if (field.key == "data_offsets") {
      simdjson::dom::array array;
      uint64_t begin = 0, end = 0;
      if (field.value.get(array) || array.size() != 2 || array.at(0).get(begin) || array.at(1).get(end))
        return fail(ErrorCode::kCorrupt, "tensor {}: data_offsets must be two integers >= 0", quote(name));
      if (begin > end || end > size - data)
        return fail(ErrorCode::kCorrupt,
                    "tensor {}: data_offsets [{}, {}] must be ordered and inside the file's {} data bytes", quote(name),
                    begin, end, size - data);
      entry.begin = data + begin;
      entry.end = data + end;
      ++seen_offsets;
    }
  }
  if (seen_dtype != 1 || seen_shape != 1 || seen_offsets != 1)
    return fail(ErrorCode::kCorrupt, "tensor {}: needs dtype, shape and data_offsets, each once (found {}, {} and {})",
                quote(name), seen_dtype, seen_shape, seen_offsets);
  auto elements = entry.shape.elements();
  int64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, dtype_bytes(entry.dtype), &bytes))
    return fail(ErrorCode::kCorrupt, "tensor {}: the size of shape {} overflows 63 bits", quote(name),
                entry.shape.str());
  if (static_cast<uint64_t>(bytes) != entry.end - entry.begin)
    return fail(ErrorCode::kCorrupt, "tensor {}: {} {} takes {} bytes, but its data_offsets span {}", quote(name),
                dtype_name(entry.dtype), entry.shape.str(), bytes, entry.end - entry.begin);
  return entry;
}

Status read_metadata(simdjson::dom::element value, std::map<std::string, std::string>& metadata) {
  if (value.is_null()) return {};  // as mlx writes it when there is none
  simdjson::dom::object object;
  if (value.get(object)) return fail(ErrorCode::kCorrupt, "__metadata__ must be an object of strings");
  for (auto field : object) {
    std::string_view text;
    if (field.value.get(text))
      return fail(ErrorCode::kCorrupt, "__metadata__ key {} must hold a string", quote(field.key));
    if (!metadata.emplace(std::string(field.key), std::string(text)).second)
      return fail(ErrorCode::kCorrupt, "__metadata__ key {} appears twice", quote(field.key));
  }
  return {};
}

/// The tensors must tile [data, size) exactly.
Status check_coverage(const std::vector<SafetensorsEntry>& tensors, size_t data, size_t size) {
  std::vector<const SafetensorsEntry*> order;
  order.reserve(tensors.size());
  for (const auto& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->begin != b->begin ? a->begin < b->begin : a->end < b->end; });
  size_t at = data;
  for (const auto* entry : order) {
    if (entry->begin < at)
      return fail(ErrorCode::kCorrupt, "tensor {} starts at data byte {}, inside the tensor before it (overlap)",
                  quote(entry->name), entry->begin - data);
    if (entry->begin > at)
      return fail(ErrorCode::kCorrupt, "{} bytes before tensor {} belong to no tensor (hole at data byte {})",
                  entry->begin - at, quote(entry->name), at - data);
    at = entry->end;
  }
  if (at != size)
    return fail(ErrorCode::kCorrupt, "the tensors end at byte {}, the file at byte {} ({} bytes too many)", at, size,
                size - at);
  return {};
}

}  // namespace

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::open(const std::filesystem::path& path) {
  GALVANI_TRY(auto map, FileMap::open(path));
  auto file = std::make_shared<SafetensorsFile>();
  file->label_ = path.string();
  file->bytes_ = map->bytes();
  file->map_ = std::move(map);
  if (auto status = file->parse(); !status) return wrap(std::move(status).error(), file->label_);
  return file;
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::open_bytes(std::span<const std::byte> bytes,
                                                                           std::string label) {
  auto file = std::make_shared<SafetensorsFile>();
  file->label_ = std::move(label);
  file->bytes_ = bytes;
  if (auto status = file->parse(); !status) return wrap(std::move(status).error(), file->label_);
  return file;
}

Status SafetensorsFile::parse() {
  const size_t size = bytes_.size();
  if (size < 8) return fail(ErrorCode::kCorrupt, "not a safetensors file: {} bytes long, a header needs 8", size);
  static constexpr std::string_view kLfs = "version https://git-lfs";
  if (size >= kLfs.size() && std::memcmp(bytes_.data(), kLfs.data(), kLfs.size()) == 0)
    return fail(ErrorCode::kCorrupt, "a Git LFS pointer, not the file itself; fetch it with: git lfs pull");
  const uint64_t length = load_u64(bytes_.data());
  if (length > kLongestHeader || length > size - 8)
    return fail(
        ErrorCode::kCorrupt,
        "not a safetensors file, or cut short: it claims a header of {} bytes; the file has {} after the length, "
        "and at most {} are allowed",
        length, size - 8, kLongestHeader);
  const auto* text = reinterpret_cast<const char*>(bytes_.data() + 8);
  if (length < 2 || text[0] != '{')
    return fail(ErrorCode::kCorrupt, "not a safetensors file: the header must be a JSON object and start with '{{'");

  const simdjson::padded_string padded(text, length);
  simdjson::dom::parser parser;
  simdjson::dom::object header;
  if (auto error = parser.allocate(length, kDeepestHeader))
    return fail(ErrorCode::kOutOfMemory, "cannot parse the header of {} bytes: {}", length,
                simdjson::error_message(error));
  simdjson::dom::element root;
  if (auto error = parser.parse(padded).get(root))
    return fail(ErrorCode::kCorrupt, "the header is not valid UTF-8 JSON (at most {} levels deep): {}", kDeepestHeader,
                simdjson::error_message(error));
  if (root.get(header)) return fail(ErrorCode::kCorrupt, "the header must be a JSON object");

  const size_t data = 8 + length;
  bool have_metadata = false;
  for (auto field : header) {
    if (field.key == "__metadata__") {
      if (std::exchange(have_metadata, true)) return fail(ErrorCode::kCorrupt, "__metadata__ appears twice");
      GALVANI_TRY_VOID(read_metadata(field.value, metadata_));
      continue;
    }
    GALVANI_TRY(auto entry, read_entry(field.key, field.value, data, size));
    tensors_.push_back(std::move(entry));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(tensors_.begin(), tensors_.end(),
                                        [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != tensors_.end())
    return fail(ErrorCode::kCorrupt, "tensor {} appears twice in the header", quote(twice->name));
  return check_coverage(tensors_, data, size);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const SafetensorsEntry& entry, std::string_view key) { return entry.name < key; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

TensorView SafetensorsFile::view(const SafetensorsEntry& entry) const {
  return {bytes_.subspan(entry.begin, entry.end - entry.begin), entry.dtype, entry.shape};
}

Result<TensorView> SafetensorsFile::tensor(std::string_view name) const {
  const auto* entry = find(name);
  if (entry == nullptr) return fail(ErrorCode::kNotFound, "{} has no tensor {}", label_, quote(name));
  return view(*entry);
}

Status SafetensorsFile::check_not_truncated() const {
  if (map_ == nullptr) return {};
  return map_->check_not_truncated();
}

}  // namespace galvani::formats
