// The functions of src/cuda in a build without CUDA: the same callers link, and each answer says how to get a GPU
// build.
#include <utility>

#include "core/error.h"
#include "cuda/blas.h"
#include "cuda/choose_device.h"
#include "cuda/launch.h"
#include "cuda/memory.h"

namespace galvani::cuda {
namespace {

constexpr const char* kReason = "this build holds no CUDA code";
constexpr const char* kNoCuda = "this build holds no CUDA code; rebuild with -DGALVANI_CUDA=ON, or use --device cpu";

tl::unexpected<Error> no_cuda() { return fail(ErrorCode::kUnsupported, "{}", kNoCuda); }

}  // namespace

std::span<const KernelObject> builtin_kernels() { return {}; }
CudaImageList builtin_images() { return {}; }
const char* builtin_toolkit() { return "none"; }

DriverState driver_state() {
  DriverState state;
  state.reason = kReason, state.message = kNoCuda;
  return state;
}

Result<DeviceIdentity> device_identity(int) { return no_cuda(); }

namespace detail {
void destroy_stream(StreamHandle) {}
void destroy_event(EventHandle) {}
void destroy_graph(GraphHandle) {}
void destroy_graph_exec(GraphExecHandle) {}
void destroy_pool(MemPoolHandle) {}
Status launch_erased(Stream&, const Kernel&, const LaunchConfig&, const std::type_info&, void**) { return no_cuda(); }
}  // namespace detail

SelfTest Kernel::self_test() const { return {Answer::kNo, kNoCuda}; }
KernelAttributes Kernel::attributes() const { return {}; }
Status Kernel::opt_in(int) const { return no_cuda(); }

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(int, const CudaOptions&) { return no_cuda(); }
CudaDevice::~CudaDevice() = default;
Result<const Kernel*> CudaDevice::kernel(std::string_view) const { return no_cuda(); }
std::vector<const Kernel*> CudaDevice::kernels() const { return {}; }
Status CudaDevice::alive() const { return no_cuda(); }
Status CudaDevice::synchronize() { return no_cuda(); }
Status CudaDevice::make_current() const { return no_cuda(); }
Result<CudaDevice::MemoryInfo> CudaDevice::memory() const { return no_cuda(); }
std::map<std::string, int64_t> CudaDevice::memory_by_tag() const { return {}; }
void CudaDevice::note_memory(const std::string&, int64_t) {}
tl::unexpected<Error> CudaDevice::failed(int, const std::string&) { return no_cuda(); }
void CudaDevice::note_launch(const Kernel&) {}

Result<Event> Event::create(CudaDevice&, bool) { return no_cuda(); }
Status Event::synchronize() { return no_cuda(); }
Result<float> Event::milliseconds_since(const Event&) const { return no_cuda(); }

Status GraphExec::launch(Stream&) { return no_cuda(); }
Result<size_t> Graph::node_count() const { return no_cuda(); }
Result<GraphExec> Graph::instantiate() const { return no_cuda(); }

Result<Stream> Stream::create(CudaDevice&) { return no_cuda(); }
Status Stream::synchronize() { return no_cuda(); }
Status Stream::record(const Event&) { return no_cuda(); }
Status Stream::wait(const Event&) { return no_cuda(); }
Status Stream::to_device(void*, const void*, size_t) { return no_cuda(); }
Status Stream::to_host(void*, const void*, size_t) { return no_cuda(); }
Status Stream::on_device(void*, const void*, size_t) { return no_cuda(); }
Status Stream::fill(void*, unsigned char, size_t) { return no_cuda(); }
Status Stream::begin_capture(CaptureMode) { return no_cuda(); }
Result<Graph> Stream::end_capture() { return no_cuda(); }
void Stream::count_launch(const Kernel&) {}

Result<DeviceBuffer> DeviceBuffer::allocate(CudaDevice&, size_t, std::string) { return no_cuda(); }
DeviceBuffer DeviceBuffer::part(std::shared_ptr<DeviceBuffer> whole, size_t at, size_t bytes) {
  DeviceBuffer buffer;
  buffer.device_ = whole->device_, buffer.bytes_ = bytes, buffer.data_ = whole->as<std::byte>() + at;
  buffer.whole_ = std::move(whole);
  return buffer;
}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr), bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}
void DeviceBuffer::reset() {}
Result<PinnedBuffer> PinnedBuffer::allocate(CudaDevice&, size_t, std::string) { return no_cuda(); }
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this == &other) return *this;
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr), bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}
void PinnedBuffer::reset() {}
Result<MemoryPool> MemoryPool::create(CudaDevice&, std::string) { return no_cuda(); }
Result<void*> MemoryPool::allocate(Stream&, size_t) { return no_cuda(); }
Status MemoryPool::free(Stream&, void*) { return no_cuda(); }

struct Blas::Plan {};
Result<std::unique_ptr<Blas>> Blas::create(CudaDevice&) { return no_cuda(); }
Blas::~Blas() = default;
Status Blas::multiply(Stream&, const DenseProduct&, void*) { return no_cuda(); }
Result<std::array<std::byte, 128>> tensor_map_2d(CudaDevice&, const void*, int64_t, int64_t, int64_t, int) {
  return no_cuda();
}
Result<std::array<std::byte, 128>> tensor_map_3d(CudaDevice&, const void*, int64_t, int64_t, int64_t, int64_t, int64_t,
                                                 int) {
  return no_cuda();
}

}  // namespace galvani::cuda
