#pragma once
/// A file that appears complete or not at all: written under a temporary name, synced, renamed. Through a link, the
/// linked file is replaced. Devices and pipes (/dev/null, /dev/stdout) are written directly.
#include <cstddef>
#include <filesystem>
#include <span>

#include "galvani/error.h"

namespace galvani::formats {

class AtomicFile {
 public:
  /// Errors: an empty name or a folder (kInvalidArgument); what the system says (kIo).
  static Result<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  /// Removes the temporary file unless commit() succeeded.
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  /// Syncs the file, renames it and syncs the folder.
  Status commit();

 private:
  AtomicFile() = default;
  std::filesystem::path path_, temporary_;  // no temporary name: written directly
  int fd_ = -1;
};

/// Whether AtomicFile::create would succeed now, for asking before long work; nothing is left behind. What is no file
/// (a pipe, a device) is asked for permission alone: opening it could block. Errors: as create.
Status check_writable(const std::filesystem::path& path);

}  // namespace galvani::formats
