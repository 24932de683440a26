#include "cuda/memory.h"

#include <utility>

#include "core/log.h"
#include "cuda/check.h"

namespace galvani::cuda {
namespace {

double gib(double bytes) { return bytes / (1 << 30); }

tl::unexpected<Error> out_of_memory(CudaDevice& device, size_t bytes, const std::string& tag) {
  cudaGetLastError();
  std::string held;
  for (const auto& [name, size] : device.memory_by_tag())
    if (size > 0)
      held += fmt::format("{}{} {:.2f} GiB", held.empty() ? "" : ", ", name, gib(static_cast<double>(size)));
  const auto memory = device.memory();
  const double free_bytes = memory ? static_cast<double>(memory->free_bytes) : 0;
  const double total = static_cast<double>(device.caps().memory_bytes);
  // What of it the run's options decide.
  const char* const lower = tag == "weights"       ? "take fewer bits or a smaller model"
                            : tag == "activations" ? "lower the tokens of a step (-b)"
                            : tag == "matmul workspace"
                                ? "lower --expand-mib"
                                : "lower the context (-c) or the number of sequences, take fewer bits";
  return fail(ErrorCode::kOutOfMemory,
              "'{}' needs {:.2f} GiB on GPU {} ({}), of whose {:.2f} GiB {:.2f} are free (this process holds: {}); {}, "
              "end other programs on this GPU, or run with --device cpu",
              tag, gib(static_cast<double>(bytes)), device.index(), device.name(), gib(total), gib(free_bytes),
              held.empty() ? "nothing" : held, lower);
}

}  // namespace

Result<DeviceBuffer> DeviceBuffer::allocate(CudaDevice& device, size_t bytes, std::string tag) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  GALVANI_TRY_VOID(device.alive());
  GALVANI_TRY_VOID(device.make_current());
  const cudaError_t error = cudaMalloc(&buffer.data_, bytes);
  if (error == cudaErrorMemoryAllocation) return out_of_memory(device, bytes, tag);
  if (error != cudaSuccess) return device.failed(error, fmt::format("{} bytes for '{}' (cudaMalloc)", bytes, tag));
  buffer.device_ = &device, buffer.bytes_ = bytes, buffer.tag_ = std::move(tag);
  device.note_memory(buffer.tag_, static_cast<int64_t>(bytes));
  return buffer;
}

DeviceBuffer DeviceBuffer::part(std::shared_ptr<DeviceBuffer> whole, size_t at, size_t bytes) {
  DeviceBuffer buffer;
  buffer.device_ = whole->device_, buffer.bytes_ = bytes, buffer.data_ = whole->as<std::byte>() + at;
  buffer.whole_ = std::move(whole);
  return buffer;
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = other.device_, bytes_ = std::exchange(other.bytes_, 0), tag_ = std::move(other.tag_);
  data_ = std::exchange(other.data_, nullptr), whole_ = std::move(other.whole_);
  return *this;
}

void DeviceBuffer::reset() {
  if (data_ == nullptr) return;
  if (whole_ != nullptr) {
    data_ = nullptr, bytes_ = 0;
    whole_.reset();
    return;
  }
  const detail::RelaxedCapture relaxed;
  const cudaError_t error = cudaFree(std::exchange(data_, nullptr));
  if (error != cudaSuccess && error != cudaErrorCudartUnloading && !detail::is_sticky(error))
    log_warn("giving back {} bytes of '{}': {}", bytes_, tag_, cudaGetErrorString(error));
  device_->note_memory(tag_, -static_cast<int64_t>(bytes_));
  bytes_ = 0;
}

Result<PinnedBuffer> PinnedBuffer::allocate(CudaDevice& device, size_t bytes, std::string tag) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  GALVANI_TRY_VOID(device.alive());
  GALVANI_TRY_VOID(device.make_current());
  const cudaError_t error = cudaHostAlloc(&buffer.data_, bytes, cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return fail(ErrorCode::kOutOfMemory,
                "'{}' needs {:.2f} GiB of page-locked host memory, which the system does not give; see `ulimit -l` and "
                "the free memory, or lower the context (-c)",
                tag, gib(static_cast<double>(bytes)));
  }
  if (error != cudaSuccess)
    return device.failed(error, fmt::format("{} pinned bytes for '{}' (cudaHostAlloc)", bytes, tag));
  buffer.device_ = &device, buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = other.device_, bytes_ = std::exchange(other.bytes_, 0);
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

void PinnedBuffer::reset() {
  if (data_ == nullptr) return;
  const detail::RelaxedCapture relaxed;
  const cudaError_t error = cudaFreeHost(std::exchange(data_, nullptr));
  if (error != cudaSuccess && error != cudaErrorCudartUnloading && !detail::is_sticky(error))
    log_warn("giving back {} pinned bytes: {}", bytes_, cudaGetErrorString(error));
  bytes_ = 0;
}

Result<MemoryPool> MemoryPool::create(CudaDevice& device, std::string tag) {
  GALVANI_TRY_VOID(device.make_current());
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device.index();
  cudaMemPool_t handle = nullptr;
  GALVANI_CUDA_TRY(device, cudaMemPoolCreate(&handle, &properties), "creating the memory pool '{}'", tag);
  MemoryPool pool;
  pool.device_ = &device, pool.tag_ = std::move(tag);
  pool.handle_ = Owned<MemPoolHandle, detail::destroy_pool>(handle);
  return pool;
}

Result<void*> MemoryPool::allocate(Stream& stream, size_t bytes) {
  GALVANI_TRY_VOID(device_->alive());
  void* data = nullptr;
  const cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, handle_.get(), stream.handle());
  if (error == cudaErrorMemoryAllocation) return out_of_memory(*device_, bytes, tag_);
  if (error != cudaSuccess)
    return device_->failed(error, fmt::format("{} bytes of '{}' (cudaMallocFromPoolAsync)", bytes, tag_));
  return data;
}

Status MemoryPool::free(Stream& stream, void* data) {
  if (data == nullptr) return {};
  GALVANI_CUDA_TRY(*device_, cudaFreeAsync(data, stream.handle()), "giving memory back to '{}'", tag_);
  return {};
}

}  // namespace galvani::cuda
