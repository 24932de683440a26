/// Writing safetensors, all or nothing.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "formats/quoted.h"
#include "formats/safetensors.h"

namespace galvani::formats {
namespace {

const char* safetensors_name(DType type) {
  switch (type) {
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF64: return "F64";
    case DType::kI8: return "I8";
    case DType::kU8: return "U8";
    case DType::kI16: return "I16";
    case DType::kU16: return "U16";
    case DType::kI32: return "I32";
    case DType::kU32: return "U32";
    case DType::kI64: return "I64";
    case DType::kU64: return "U64";
    case DType::kBool: return "BOOL";
    case DType::kF8E4M3: return "F8_E4M3";
    case DType::kF8E5M2: return "F8_E5M2";
  }
  return "?";
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    const std::vector<Tensor>& tensors,
                                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names;
  uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    GALVANI_TRY(const int64_t elements, tensor.shape.elements());
    int64_t bytes = 0;
    if (__builtin_mul_overflow(elements, dtype_bytes(tensor.dtype), &bytes) ||
        offset > (uint64_t{1} << 62) - static_cast<uint64_t>(bytes))
      return fail(ErrorCode::kInvalidArgument, "cannot write tensor {}: {} {} is too large", quote(tensor.name),
                  dtype_name(tensor.dtype), tensor.shape.str());
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second)
      return fail(ErrorCode::kInvalidArgument, "cannot write two tensors of the name {}, or one called __metadata__",
                  quote(tensor.name));
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape.dims()},
                           {"data_offsets", {offset, offset + static_cast<uint64_t>(bytes)}}};
    offset += static_cast<uint64_t>(bytes);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {  // names that are not UTF-8
    return fail(ErrorCode::kInvalidArgument, "cannot write {}: {}", path.string(), error.what());
  }
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  GALVANI_TRY(auto file, AtomicFile::create(path));
  std::byte length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  GALVANI_TRY_VOID(file.write(length));
  GALVANI_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return SafetensorsWriter(std::move(file), offset, path.string());
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  written_ += bytes.size();
  return file_.write(bytes);
}

Status SafetensorsWriter::finish() {
  if (written_ != total_)
    return fail(ErrorCode::kInternal, "{}: {} bytes of tensors were announced, {} written", label_, total_, written_);
  return file_.commit();
}

Status write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Tensor> entries;
  for (const auto& tensor : tensors) {
    GALVANI_TRY(const int64_t elements, tensor.shape.elements());
    int64_t bytes = 0;
    if (__builtin_mul_overflow(elements, dtype_bytes(tensor.dtype), &bytes) ||
        static_cast<uint64_t>(bytes) != tensor.bytes.size())
      return fail(ErrorCode::kInvalidArgument, "cannot write tensor {}: {} {} does not take {} bytes",
                  quote(tensor.name), dtype_name(tensor.dtype), tensor.shape.str(), tensor.bytes.size());
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  GALVANI_TRY(auto writer, SafetensorsWriter::create(path, entries, metadata));
  for (const auto& tensor : tensors) GALVANI_TRY_VOID(writer.append(tensor.bytes));
  return writer.finish();
}

}  // namespace galvani::formats
