#include <algorithm>
#include <cstring>
#include <set>

#include "core/error.h"
#include "formats/gguf.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

constexpr int kDeepestArray = 4;
constexpr uint32_t kMostDims = 4;
constexpr uint64_t kLongestName = 65535;

constexpr GgmlTypeInfo kTypes[] = {
    {GgmlType::kF32, "F32", 1, 4},         {GgmlType::kF16, "F16", 1, 2},       {GgmlType::kQ4_0, "Q4_0", 32, 18},
    {GgmlType::kQ4_1, "Q4_1", 32, 20},     {GgmlType::kQ5_0, "Q5_0", 32, 22},   {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},     {GgmlType::kQ2_K, "Q2_K", 256, 84},  {GgmlType::kQ3_K, "Q3_K", 256, 110},
    {GgmlType::kQ4_K, "Q4_K", 256, 144},   {GgmlType::kQ5_K, "Q5_K", 256, 176}, {GgmlType::kQ6_K, "Q6_K", 256, 210},
    {GgmlType::kIQ4_NL, "IQ4_NL", 32, 18}, {GgmlType::kBF16, "BF16", 1, 2},     {GgmlType::kMXFP4, "MXFP4", 32, 17}};

/// Names of formats that exist but cannot be read here, for the error message.
const char* other_type_name(uint32_t id) {
  switch (id) {
    case 9: return "Q8_1";
    case 15: return "Q8_K";
    case 16: return "IQ2_XXS";
    case 17: return "IQ2_XS";
    case 18: return "IQ3_XXS";
    case 19: return "IQ1_S";
    case 21: return "IQ3_S";
    case 22: return "IQ2_S";
    case 23: return "IQ4_XS";
    case 24: return "I8";
    case 25: return "I16";
    case 26: return "I32";
    case 27: return "I64";
    case 28: return "F64";
    case 29: return "IQ1_M";
    case 34: return "TQ1_0";
    case 35: return "TQ2_0";
    case 40: return "NVFP4";
    default: return "unknown";
  }
}

/// Bytes of a scalar; 0 for strings and arrays.
size_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

/// Reads forward through a file's bytes; never past the end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <typename T>
  Result<T> read(const char* what) {
    if (left() < sizeof(T)) return cut(what, sizeof(T));
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(bytes_[at_ + i]) << (8 * i);
    at_ += sizeof(T);
    return static_cast<T>(value);
  }
  Result<std::span<const std::byte>> take(uint64_t length, const char* what) {
    if (length > left()) return cut(what, length);
    const auto span = bytes_.subspan(at_, length);
    at_ += length;
    return span;
  }
  Result<std::string_view> string(const char* what) {
    GALVANI_TRY(const uint64_t length, read<uint64_t>(what));
    GALVANI_TRY(const auto span, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(span.data()), span.size());
  }

 private:
  tl::unexpected<Error> cut(const char* what, uint64_t wanted) const {
    return fail(ErrorCode::kCorrupt, "the file ends inside {}: {} bytes wanted at offset {}, {} left", what, wanted,
                at_, left());
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

Result<GgufType> read_type(Cursor& cursor) {
  GALVANI_TRY(const auto id, cursor.read<uint32_t>("a value's type"));
  if (id > static_cast<uint32_t>(GgufType::kF64))
    return fail(ErrorCode::kCorrupt, "value type {} at offset {} does not exist (0 to 12 do)", id, cursor.at() - 4);
  return static_cast<GgufType>(id);
}

/// Steps over one array's elements and checks them; `value` gets element type, count and bytes.
Status read_array(Cursor& cursor, GgufValue& value, std::span<const std::byte> file, int depth) {
  if (depth > kDeepestArray) return fail(ErrorCode::kCorrupt, "arrays nested more than {} deep", kDeepestArray);
  GALVANI_TRY(value.element, read_type(cursor));
  GALVANI_TRY(value.count, cursor.read<uint64_t>("an array's length"));
  const size_t begin = cursor.at();
  const size_t each = scalar_bytes(value.element);
  const uint64_t least = each != 0 ? each : value.element == GgufType::kString ? 8 : 12;
  if (value.count > cursor.left() / least)
    return fail(ErrorCode::kCorrupt, "an array claims {} {} elements, but only {} bytes are left in the file",
                value.count, gguf_type_name(value.element), cursor.left());
  if (each != 0) {
    GALVANI_TRY(value.bytes, cursor.take(value.count * each, "an array"));
    return {};
  }
  for (uint64_t i = 0; i < value.count; ++i) {
    if (value.element == GgufType::kString) {
      GALVANI_TRY_VOID(cursor.string("a string of an array"));
    } else {
      GgufValue inner;
      GALVANI_TRY_VOID(read_array(cursor, inner, file, depth + 1));
    }
  }
  value.bytes = file.subspan(begin, cursor.at() - begin);
  return {};
}

Result<GgufValue> read_value(Cursor& cursor, std::span<const std::byte> file) {
  GgufValue value;
  GALVANI_TRY(value.type, read_type(cursor));
  if (value.type == GgufType::kArray) {
    GALVANI_TRY_VOID(read_array(cursor, value, file, 1));
  } else if (value.type == GgufType::kString) {
    GALVANI_TRY(const auto text, cursor.string("a string"));
    value.bytes = std::as_bytes(std::span(text));
  } else {
    GALVANI_TRY(value.bytes, cursor.take(scalar_bytes(value.type), "a value"));
  }
  return value;
}

Result<uint32_t> read_version(Cursor& cursor) {
  GALVANI_TRY(const auto magic, cursor.take(4, "the magic"));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    return fail(ErrorCode::kCorrupt, "not a GGUF file: it does not start with \"GGUF\"");
  GALVANI_TRY(const auto version, cursor.read<uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if ((version & 0xffffu) == 0 && version != 0)
    return fail(ErrorCode::kUnsupported,
                "a big-endian GGUF file; only little-endian ones can be read (convert it with gguf-convert-endian)");
  return fail(ErrorCode::kUnsupported, "GGUF version {} is not supported; 2 and 3 are", version);
}

Result<uint64_t> read_alignment(const GgufContents& contents) {
  const auto it = contents.metadata.find("general.alignment");
  if (it == contents.metadata.end()) return uint64_t{32};
  uint32_t alignment = 0;
  if (it->second.type == GgufType::kU32) std::memcpy(&alignment, it->second.bytes.data(), 4);
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > (1u << 30))
    return fail(ErrorCode::kCorrupt, "general.alignment must be a u32 power of two up to 2^30, not {}", alignment);
  return uint64_t{alignment};
}

/// One tensor info; `begin` stays relative to the data section.
Result<GgufTensor> read_tensor(Cursor& cursor) {
  GgufTensor tensor;
  GALVANI_TRY(const auto name, cursor.string("a tensor's name"));
  if (name.empty() || name.size() > kLongestName)
    return fail(ErrorCode::kCorrupt, "tensor name {} must have 1 to {} bytes", quote(name), kLongestName);
  tensor.name = std::string(name);
  GALVANI_TRY(const auto rank, cursor.read<uint32_t>("a tensor's dimensions"));
  if (rank < 1 || rank > kMostDims)
    return fail(ErrorCode::kCorrupt, "tensor {} has {} dimensions; 1 to {} are allowed", quote(name), rank, kMostDims);
  std::vector<int64_t> dims(rank);
  for (auto& dim : dims) {
    GALVANI_TRY(const auto size, cursor.read<uint64_t>("a tensor's dimensions"));
    if (size < 1 || size > static_cast<uint64_t>(INT64_MAX))
      return fail(ErrorCode::kCorrupt, "tensor {} has a dimension of {}; sizes go from 1 to 2^63-1", quote(name), size);
    dim = static_cast<int64_t>(size);
  }
  GALVANI_TRY(const auto id, cursor.read<uint32_t>("a tensor's type"));
  GALVANI_TRY(const auto offset, cursor.read<uint64_t>("a tensor's offset"));
  const auto* info = ggml_type_info(id);
  if (info == nullptr)
    return fail(ErrorCode::kUnsupported,
                "tensor {} has the format {} (id {}), which cannot be read; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
                "Q8_0, Q2_K to "
                "Q6_K, IQ4_NL and MXFP4 can",
                quote(name), other_type_name(id), id);
  tensor.type = info->type;
  if (dims[0] % info->block != 0)
    return fail(ErrorCode::kCorrupt, "tensor {}: rows of {} elements are not whole {} blocks of {}", quote(name),
                dims[0], info->name, info->block);
  int64_t bytes = dims[0] / info->block;
  bool overflow = __builtin_mul_overflow(bytes, static_cast<int64_t>(info->bytes), &bytes);
  for (size_t i = 1; i < dims.size(); ++i) overflow = overflow || __builtin_mul_overflow(bytes, dims[i], &bytes);
  std::reverse(dims.begin(), dims.end());
  tensor.shape = Shape(std::move(dims));
  if (overflow)
    return fail(ErrorCode::kCorrupt, "tensor {}: the size of {} overflows 63 bits", quote(name), tensor.shape.str());
  if (auto elements = tensor.shape.elements(); !elements)
    return wrap(std::move(elements).error(), "tensor " + quote(name));
  tensor.bytes = static_cast<size_t>(bytes);
  tensor.begin = offset;
  return tensor;
}

/// Makes offsets absolute; every tensor must lie inside the file, aligned, and none inside another.
Status place_tensors(std::vector<GgufTensor>& tensors, size_t header_end, uint64_t alignment, size_t file_size) {
  const uint64_t data = (header_end + alignment - 1) / alignment * alignment;
  const uint64_t room = data <= file_size ? file_size - data : 0;
  for (auto& tensor : tensors) {
    if (tensor.begin % alignment != 0)
      return fail(ErrorCode::kCorrupt, "tensor {}: offset {} is not a multiple of the alignment {}", quote(tensor.name),
                  tensor.begin, alignment);
    if (tensor.begin > room || tensor.bytes > room - tensor.begin)
      return fail(
          ErrorCode::kCorrupt,
          "tensor {}: {} bytes at offset {} reach past the file's {} data bytes; the file is cut short or broken",
          quote(tensor.name), tensor.bytes, tensor.begin, room);
    tensor.begin += data;
  }
  std::vector<const GgufTensor*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->begin + order[i - 1]->bytes > order[i]->begin)
      return fail(ErrorCode::kCorrupt, "tensors {} and {} overlap", quote(order[i - 1]->name), quote(order[i]->name));
  return {};
}

}  // namespace

const char* gguf_type_name(GgufType type) noexcept {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "?";
}

const GgmlTypeInfo* ggml_type_info(uint32_t id) noexcept {
  for (const auto& info : kTypes)
    if (static_cast<uint32_t>(info.type) == id) return &info;
  return nullptr;
}
const GgmlTypeInfo& ggml_type_info(GgmlType type) noexcept {
  const auto* info = ggml_type_info(static_cast<uint32_t>(type));
  return info != nullptr ? *info : kTypes[0];
}

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes) {
  GgufContents contents;
  Cursor cursor(bytes);
  GALVANI_TRY(contents.version, read_version(cursor));
  GALVANI_TRY(const auto tensor_count, cursor.read<uint64_t>("the tensor count"));
  GALVANI_TRY(const auto value_count, cursor.read<uint64_t>("the metadata count"));
  constexpr uint64_t kSmallestValue = 8 + 4 + 1, kSmallestTensor = 8 + 1 + 4 + 8 + 4 + 8;
  if (value_count > cursor.left() / kSmallestValue || tensor_count > cursor.left() / kSmallestTensor)
    return fail(ErrorCode::kCorrupt, "the header claims {} values and {} tensors, more than {} bytes can hold",
                value_count, tensor_count, cursor.left());
  for (uint64_t i = 0; i < value_count; ++i) {
    GALVANI_TRY(const auto key, cursor.string("a key"));
    if (key.empty() || key.size() > kLongestName)
      return fail(ErrorCode::kCorrupt, "key {} must have 1 to {} bytes", quote(key), kLongestName);
    auto value = read_value(cursor, bytes);
    if (!value) return wrap(std::move(value).error(), "key " + quote(key));
    if (!contents.metadata.emplace(std::string(key), *value).second)
      return fail(ErrorCode::kCorrupt, "key {} appears twice", quote(key));
  }
  GALVANI_TRY(const uint64_t alignment, read_alignment(contents));
  for (uint64_t i = 0; i < tensor_count; ++i) {
    GALVANI_TRY(auto tensor, read_tensor(cursor));
    contents.tensors.push_back(std::move(tensor));
  }
  GALVANI_TRY_VOID(place_tensors(contents.tensors, cursor.at(), alignment, bytes.size()));
  return contents;
}

}  // namespace galvani::formats
