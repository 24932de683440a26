#pragma once
/// NumPy .npy files: arrays of rank 1 or 2 in C order, little-endian.
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file_map.h"
#include "core/shape.h"
#include "core/tensor_view.h"
#include "formats/atomic_file.h"

namespace galvani::formats {

/// An open array; the elements stay mapped.
struct NpyArray {
  TensorView view;
  std::shared_ptr<const FileMap> map;
};

/// Errors: not an .npy file, a version other than 1 to 3, Fortran order, rank 0 or above 2, an element type other than
/// integers of 8 to 64 bits, f16, f32 and f64, fewer or more bytes than the shape needs.
Result<NpyArray> read_npy(const std::filesystem::path& path);
/// The same on bytes that the caller keeps alive; `map` is null.
Result<NpyArray> read_npy_bytes(std::span<const std::byte> bytes, const std::string& label);

/// A one-dimensional array of integers as token ids. Error: another type or rank, an id outside [0, limit), by
/// position.
Result<std::vector<int32_t>> read_npy_ids(const std::filesystem::path& path, int64_t limit);
Result<std::vector<int32_t>> npy_ids(const NpyArray& array, const std::string& label, int64_t limit);

/// Writes float32 rows one after the other; the file appears under its name at finish().
class NpyWriter {
 public:
  /// shape: rank 1 or 2.
  static Result<NpyWriter> create(const std::filesystem::path& path, const Shape& shape);
  Status append(std::span<const float> values);
  /// Error when not exactly the announced number of values was appended.
  Status finish();

 private:
  NpyWriter(AtomicFile file, int64_t missing, std::string label)
      : file_(std::move(file)), missing_(missing), label_(std::move(label)) {}
  AtomicFile file_;
  int64_t missing_;
  std::string label_;
};

}  // namespace galvani::formats
