#include "formats/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace galvani::formats {

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "the name of the file to write is empty; give a name");
  AtomicFile file;
  file.path_ = path;
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode))
    return fail(ErrorCode::kInvalidArgument, "cannot write {}: it is a folder; name a file in it", path.string());
  if (exists && !S_ISREG(info.st_mode)) {
    // A device or pipe (/dev/null, /dev/stdout): renaming a file over it would destroy it.
    file.fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.fd_ < 0) return fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), std::strerror(errno));
    return file;
  }
  // A link stays: the file it points to is the one replaced.
  std::error_code dangling;
  if (auto target = std::filesystem::canonical(path, dangling); !dangling) file.path_ = std::move(target);
  file.temporary_ = file.path_.string() + fmt::format(".{}.tmp", ::getpid());
  file.fd_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file.fd_ < 0)
    return fail(ErrorCode::kIo, "cannot write {}: creating {} beside it failed: {}", path.string(),
                file.temporary_.string(), std::strerror(errno));
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return fail(ErrorCode::kIo, "cannot write {}: {}", path_.string(), std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status AtomicFile::commit() {
  if (temporary_.empty()) {
    if (::close(std::exchange(fd_, -1)) != 0)
      return fail(ErrorCode::kIo, "cannot write {}: {}", path_.string(), std::strerror(errno));
    return {};
  }
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

Status check_writable(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) {
    GALVANI_TRY_VOID(AtomicFile::create(path));
    return {};
  }
  if (::access(path.c_str(), W_OK) != 0)
    return fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), std::strerror(errno));
  return {};
}

}  // namespace galvani::formats
