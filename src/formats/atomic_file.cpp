#include "formats/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace galvani::formats {

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  AtomicFile file;
  file.path_ = path;
  file.temporary_ = path.string() + fmt::format(".{}.tmp", ::getpid());
  file.fd_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return fail(ErrorCode::kIo, "cannot create {}: {}", file.temporary_.string(), std::strerror(errno));
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return fail(ErrorCode::kIo, "cannot write {}: {}", temporary_.string(), std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(fd_) != 0) return fail(ErrorCode::kIo, "cannot sync {}: {}", temporary_.string(), std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return fail(ErrorCode::kIo, "cannot rename {} to {}: {}", temporary_.string(), path_.string(),
                std::strerror(errno));
  ::close(std::exchange(fd_, -1));
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  if (const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);  // best effort: the rename itself has happened
    ::close(fd);
  }
  return {};
}

}  // namespace galvani::formats
