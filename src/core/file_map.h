#pragma once
/// Read-only memory map of a whole file.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "galvani/error.h"

namespace galvani {

class FileMap {
 public:
  /// Maps `path`. Errors: not found, not a regular file, empty file is allowed (empty span).
  static Result<std::shared_ptr<const FileMap>> open(const std::filesystem::path& path);
  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  const std::filesystem::path& path() const noexcept { return path_; }
  /// Time this process has spent in open() so far, in milliseconds.
  static double total_open_ms() noexcept;
  /// Fails when the file on disk is now shorter than the map (reading past its end would fault).
  Status check_not_truncated() const;
  /// Copies [offset, offset + out.size()) to `out`, past the map: the kernel copies from the page cache without a fault
  /// a page, which many threads would share. Safe from several threads. Errors: a range outside the map (kOutOfRange),
  /// a file that has become shorter, what the system says (kIo), each with file and place.
  Status read(size_t offset, std::span<std::byte> out) const;
  /// Asks the kernel to read [offset, offset+length) ahead; a hint only.
  void prefetch(size_t offset, size_t length) const noexcept;

 private:
  FileMap(std::filesystem::path path, int fd, const std::byte* data, size_t size);
  std::filesystem::path path_;
  int fd_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace galvani
