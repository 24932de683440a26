#include "core/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/error.h"

namespace galvani {
namespace {

std::atomic<int64_t> g_open_ns{0};

// Adds the time it lives to the total.
class OpenTimer {
 public:
  ~OpenTimer() {
    const auto elapsed = std::chrono::steady_clock::now() - begin_;
    g_open_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

double FileMap::total_open_ms() noexcept { return static_cast<double>(g_open_ns.load()) / 1e6; }

FileMap::FileMap(std::filesystem::path path, int fd, const std::byte* data, size_t size)
    : path_(std::move(path)), fd_(fd), data_(data), size_(size) {}

Result<std::shared_ptr<const FileMap>> FileMap::open(const std::filesystem::path& path) {
  const OpenTimer timer;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int reason = errno;
    return fail(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}", path.string(),
                std::strerror(reason));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::kIo, "cannot map {}: it is not a regular file", path.string());
  }
  const auto size = static_cast<size_t>(info.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address == MAP_FAILED) {
      const int reason = errno;
      ::close(fd);
      return fail(ErrorCode::kIo, "cannot map {} ({} bytes): {}", path.string(), size, std::strerror(reason));
    }
    data = static_cast<const std::byte*>(address);
  }
  return std::shared_ptr<const FileMap>(new FileMap(path, fd, data, size));
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(fd_);
}

Status FileMap::check_not_truncated() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || static_cast<size_t>(info.st_size) < size_)
    return fail(ErrorCode::kIo,
                "{} was {} bytes long when it was opened and is {} now; do not change a model file while it is loaded",
                path_.string(), size_, static_cast<size_t>(info.st_size));
  return {};
}

Status FileMap::read(size_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset)
    return fail(ErrorCode::kOutOfRange, "{}: bytes {} to {} were asked for; it has {}", path_.string(), offset,
                offset + out.size(), size_);
  for (size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(ErrorCode::kIo, "cannot read {} bytes at {} of {}: {}", out.size() - done, offset + done,
                  path_.string(), std::strerror(errno));
    if (got == 0)
      return fail(ErrorCode::kIo,
                  "{} was {} bytes long when it was opened and ends at {} now; do not change a model file while it is "
                  "loaded",
                  path_.string(), size_, offset + done);
    done += static_cast<size_t>(got);
  }
  return {};
}

void FileMap::prefetch(size_t offset, size_t length) const noexcept {
  if (data_ == nullptr || offset >= size_) return;
  const size_t page = 4096;
  const size_t begin = offset / page * page;
  const size_t end = std::min(size_, offset + length);
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
}

}  // namespace galvani
