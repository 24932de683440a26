#include "formats/npy.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

constexpr size_t kLongestHeader = 65536;

std::optional<DType> dtype_of(std::string_view descr) {
  static constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"<u2", DType::kU16}, {"<i4", DType::kI32}, {"<i8", DType::kI64}, {"<f4", DType::kF32},
      {"<f8", DType::kF64}, {"<f2", DType::kF16}, {"<u4", DType::kU32}, {"<u8", DType::kU64},
      {"<i2", DType::kI16}, {"|u1", DType::kU8},  {"|i1", DType::kI8}};
  for (const auto& [text, type] : kTypes)
    if (text == descr) return type;
  return std::nullopt;
}

/// The header is a Python dict literal of a fixed form: what follows "'key':", blanks skipped.
std::optional<std::string_view> value_after(std::string_view header, std::string_view key) {
  const std::string quoted_key = fmt::format("'{}':", key);
  const size_t at = header.find(quoted_key);
  if (at == header.npos) return std::nullopt;
  std::string_view rest = header.substr(at + quoted_key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

std::optional<std::vector<int64_t>> parse_shape(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  std::vector<int64_t> dims;
  while (true) {
    while (text.starts_with(' ') || text.starts_with(',')) text.remove_prefix(1);
    if (text.starts_with(')')) return dims;
    int64_t dim = 0;
    size_t digits = 0;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits)
      if (__builtin_mul_overflow(dim, 10, &dim) || __builtin_add_overflow(dim, text[digits] - '0', &dim))
        return std::nullopt;
    if (digits == 0 || dims.size() > 8) return std::nullopt;
    text.remove_prefix(digits);
    dims.push_back(dim);
  }
}

/// Length of magic, version and header, and the header's text.
Result<std::pair<size_t, std::string_view>> find_header(std::span<const std::byte> bytes) {
  static constexpr char kMagic[] = "\x93NUMPY";
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic, 6) != 0)
    return fail(ErrorCode::kCorrupt, "not a .npy file");
  const int version = static_cast<int>(bytes[6]);
  if (version < 1 || version > 3)
    return fail(ErrorCode::kUnsupported, ".npy version {} is not supported; 1 to 3 are", version);
  const size_t width = version == 1 ? 2 : 4, start = 8 + width;
  if (bytes.size() < start) return fail(ErrorCode::kCorrupt, "the file ends inside its header");
  size_t length = 0;
  for (size_t i = 0; i < width; ++i) length |= static_cast<size_t>(bytes[8 + i]) << (8 * i);
  if (length > kLongestHeader || length > bytes.size() - start)
    return fail(ErrorCode::kCorrupt, "claims a header of {} bytes; {} are left in the file, and at most {} are allowed",
                length, bytes.size() - start, kLongestHeader);
  return std::pair{start + length, std::string_view(reinterpret_cast<const char*>(bytes.data()) + start, length)};
}

Result<TensorView> parse(std::span<const std::byte> bytes) {
  GALVANI_TRY(const auto found, find_header(bytes));
  const auto [data, header] = found;
  const auto descr = value_after(header, "descr"), order = value_after(header, "fortran_order"),
             shape = value_after(header, "shape");
  if (!descr || !order || !shape) return fail(ErrorCode::kCorrupt, "the header needs descr, fortran_order and shape");
  const auto type =
      descr->size() >= 5 && (*descr)[0] == '\'' && (*descr)[4] == '\'' ? dtype_of(descr->substr(1, 3)) : std::nullopt;
  if (!type)
    return fail(ErrorCode::kUnsupported,
                "element type {} is not supported; little-endian integers, f16, f32 and f64 are",
                quote(descr->substr(0, descr->find(','))));
  if (!order->starts_with("False"))
    return fail(ErrorCode::kUnsupported, "the array is in Fortran order; save it in C order");
  const auto dims = parse_shape(*shape);
  if (!dims || dims->empty() || dims->size() > 2)
    return fail(ErrorCode::kUnsupported, "the array must have one or two dimensions");
  TensorView view{bytes.subspan(data), *type, Shape(*dims)};
  GALVANI_TRY(const int64_t elements, view.shape.elements());
  int64_t size = 0;
  if (__builtin_mul_overflow(elements, dtype_bytes(*type), &size) || static_cast<size_t>(size) != view.bytes.size())
    return fail(ErrorCode::kCorrupt, "{} {} does not take the {} bytes after the header", dtype_name(*type),
                view.shape.str(), view.bytes.size());
  return view;
}

/// Element i of an integer type; nothing for a u64 beyond int64.
std::optional<int64_t> load_integer(DType type, const std::byte* base, int64_t i) {
  uint64_t bits = 0;
  const auto size = static_cast<size_t>(dtype_bytes(type));
  std::memcpy(&bits, base + static_cast<size_t>(i) * size, size);
  switch (type) {
    case DType::kI8: return static_cast<int8_t>(bits);
    case DType::kI16: return static_cast<int16_t>(bits);
    case DType::kI32: return static_cast<int32_t>(bits);
    case DType::kU64:
      if (bits > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      break;
    default: break;
  }
  return static_cast<int64_t>(bits);
}

bool is_integer(DType type) {
  switch (type) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64: return true;
    default: return false;
  }
}

}  // namespace

Result<NpyArray> read_npy_bytes(std::span<const std::byte> bytes, const std::string& label) {
  auto view = parse(bytes);
  if (!view) return wrap(std::move(view).error(), label);
  return NpyArray{std::move(*view), nullptr};
}

Result<NpyArray> read_npy(const std::filesystem::path& path) {
  GALVANI_TRY(auto map, FileMap::open(path));
  GALVANI_TRY(auto array, read_npy_bytes(map->bytes(), path.string()));
  array.map = std::move(map);
  return array;
}

Result<std::vector<int32_t>> npy_ids(const NpyArray& array, const std::string& label, int64_t limit) {
  const auto& view = array.view;
  if (view.shape.rank() != 1 || !is_integer(view.dtype))
    return fail(ErrorCode::kInvalidArgument, "{}: token ids must be a one-dimensional array of integers, not {} {}",
                label, dtype_name(view.dtype), view.shape.str());
  limit = std::min<int64_t>(limit, INT32_MAX);
  std::vector<int32_t> ids(static_cast<size_t>(view.shape[0]));
  for (int64_t i = 0; i < view.shape[0]; ++i) {
    const auto id = load_integer(view.dtype, view.bytes.data(), i);
    if (!id || *id < 0 || *id >= limit)
      return fail(ErrorCode::kOutOfRange, "{}: id {} at position {} is not in [0, {})", label,
                  id ? std::to_string(*id) : ">= 2^63", i, limit);
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(*id);
  }
  return ids;
}

Result<std::vector<int32_t>> read_npy_ids(const std::filesystem::path& path, int64_t limit) {
  GALVANI_TRY(const auto array, read_npy(path));
  GALVANI_TRY_VOID(array.map->check_not_truncated());
  return npy_ids(array, path.string(), limit);
}

Result<NpyWriter> NpyWriter::create(const std::filesystem::path& path, const Shape& shape) {
  if (shape.rank() < 1 || shape.rank() > 2)
    return fail(ErrorCode::kInvalidArgument, "cannot write an array of shape {}", shape.str());
  GALVANI_TRY(const int64_t elements, shape.elements());
  const std::string dims =
      shape.rank() == 1 ? fmt::format("({},)", shape[0]) : fmt::format("({}, {})", shape[0], shape[1]);
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", dims);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string start("\x93NUMPY\x01\x00", 8);
  start.push_back(static_cast<char>(header.size() & 255));
  start.push_back(static_cast<char>(header.size() >> 8));
  GALVANI_TRY(auto file, AtomicFile::create(path));
  GALVANI_TRY_VOID(file.write(std::as_bytes(std::span(start))));
  GALVANI_TRY_VOID(file.write(std::as_bytes(std::span(header))));
  return NpyWriter(std::move(file), elements, path.string());
}

Status NpyWriter::append(std::span<const float> values) {
  missing_ -= static_cast<int64_t>(values.size());
  if (missing_ < 0) return fail(ErrorCode::kInvalidArgument, "{}: more values than its shape holds", label_);
  return file_.write(std::as_bytes(values));
}

Status NpyWriter::finish() {
  if (missing_ != 0)
    return fail(ErrorCode::kInvalidArgument, "{}: {} values fewer than its shape holds", label_, missing_);
  return file_.commit();
}

}  // namespace galvani::formats
