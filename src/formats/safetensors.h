#pragma once
/// Safetensors: u64 little-endian header length, a JSON header, then the tensors' bytes.
///
/// Every rule of the format is enforced, because each one left out has been a hole in some reader: the header is
/// UTF-8 JSON and starts with '{', no key twice, __metadata__ maps strings to strings, the tensors cover the data
/// exactly (no gap, no overlap, nothing after the last), and each holds as many bytes as its shape and type say.
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_map.h"
#include "core/tensor_view.h"
#include "formats/atomic_file.h"

namespace galvani::formats {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  size_t begin = 0, end = 0;  ///< byte range in the file
};

/// One file. The tensors' bytes stay mapped; the object must outlive the views.
class SafetensorsFile {
 public:
  static Result<std::shared_ptr<const SafetensorsFile>> open(const std::filesystem::path& path);
  /// Parses `bytes`, which the caller keeps alive; `label` stands for the file name in messages.
  static Result<std::shared_ptr<const SafetensorsFile>> open_bytes(std::span<const std::byte> bytes, std::string label);

  /// Sorted by name.
  const std::vector<SafetensorsEntry>& tensors() const noexcept { return tensors_; }
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  TensorView view(const SafetensorsEntry& entry) const;
  /// As find + view, with an error that names the file.
  Result<TensorView> tensor(std::string_view name) const;
  const std::string& label() const noexcept { return label_; }
  /// The mapping behind the views; null for open_bytes.
  const std::shared_ptr<const FileMap>& map() const noexcept { return map_; }
  /// Call before a bulk read: fails when the file has become shorter since it was opened.
  Status check_not_truncated() const;

 private:
  Status parse();
  std::string label_;
  std::shared_ptr<const FileMap> map_;
  std::span<const std::byte> bytes_;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A folder's tensors: model.safetensors, or the shards that model.safetensors.index.json names.
class SafetensorsSet {
 public:
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };
  /// Errors: neither file present, a shard missing, a shard path that leaves the folder, a tensor in two shards, index
  /// and shards that disagree. Symbolic links are followed (the Hugging Face cache is made of them).
  static Result<SafetensorsSet> open(const std::filesystem::path& folder);

  /// Sorted by name.
  const std::map<std::string, Tensor, std::less<>>& tensors() const noexcept { return tensors_; }
  const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const noexcept { return files_; }

 private:
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

/// weight_map of an index file's text: tensor name → shard file name, all checked to be plain file names.
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view text, const std::string& label);

struct SafetensorsToWrite {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

/// Writes a file piece by piece: the header is known from the start, the tensors' bytes follow in order. The file
/// appears under its name at finish(), complete, or not at all.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
  };
  /// Data starts 64-byte aligned. Error: two tensors of one name, names that are not UTF-8, sizes beyond 63 bits.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path, const std::vector<Tensor>& tensors,
                                          const std::map<std::string, std::string>& metadata);
  /// Bytes of all tensors together, which finish() compares with what was appended.
  uint64_t total_bytes() const noexcept { return total_; }
  Status append(std::span<const std::byte> bytes);
  Status finish();

 private:
  SafetensorsWriter(AtomicFile file, uint64_t total, std::string label)
      : file_(std::move(file)), total_(total), label_(std::move(label)) {}
  AtomicFile file_;
  uint64_t total_, written_ = 0;
  std::string label_;
};

/// Writes all tensors under a temporary name in the same folder, syncs, then renames: `path` is either the old file or
/// the complete new one. Data starts 64-byte aligned (as far as tensors' sizes allow, each tensor after it follows on).
Status write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata);

}  // namespace galvani::formats
