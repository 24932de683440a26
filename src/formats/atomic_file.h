#pragma once
/// A file that appears complete or not at all: written under a temporary name, synced, renamed.
#include <cstddef>
#include <filesystem>
#include <span>

#include "galvani/error.h"

namespace galvani::formats {

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  /// Removes the temporary file unless commit() succeeded.
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  /// Syncs file and folder and renames.
  Status commit();

 private:
  AtomicFile() = default;
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

}  // namespace galvani::formats
