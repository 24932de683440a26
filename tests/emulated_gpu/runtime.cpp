/// The CUDA runtime over one emulated GPU: the part of device/parts.h that GALVANI_EMULATED_GPU names (h200 if unset).
/// A captured graph is the list of what its stream was given.
#include "emulated_gpu/runtime.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "device/parts.h"
#include "emulated_gpu/block.h"
#include "emulated_gpu/environment.h"
#include "emulated_gpu/grid.h"
#include "emulated_gpu/kernels.h"
#include "emulated_gpu/queue.h"

using Work = std::function<void()>;

struct CUgraphExec_st {
  std::vector<Work> work;
};
struct CUmemPoolHandle_st {};

namespace galvani::emulated {
namespace {

struct Remembered {
  Bind bind;
  const char* arch;
};
struct Runtime {
  std::mutex mutex;
  std::map<const void*, Remembered> kernels;
  std::map<void*, size_t> memory;        // of the GPU
  std::map<const void*, size_t> pinned;  // of the host
  size_t used = 0;
  std::atomic<cudaError_t> sticky{cudaSuccess};
  std::mutex launches;  // one kernel at a time
};
Runtime& runtime() {
  static Runtime* const instance = new Runtime;  // outlives everybody's destructors
  return *instance;
}

/// That GALVANI_EMULATED_GPU names; one that is none ends the program. GALVANI_EMULATED_SMS: its multiprocessors, so
/// that a cooperative launch is not many threads.
const Part& part() {
  static const Part chosen = [] {
    const std::string_view name = environment("GALVANI_EMULATED_GPU");
    const Part* found = find_part(name.empty() ? "h200" : name);
    if (found == nullptr) {
      std::fprintf(stderr, "GALVANI_EMULATED_GPU is '%s', which is none of %s\n", name.data(),
                   known_part_keys().c_str());
      std::exit(2);
    }
    Part smaller = *found;
    smaller.caps.sms = static_cast<int>(environment_number("GALVANI_EMULATED_SMS", found->caps.sms, found->caps.sms));
    return smaller;
  }();
  return chosen;
}

/// GALVANI_EMULATED_DIES=N: the Nth kernel that is launched ends the GPU, as a fault in it would.
bool dies_now() {
  static const int64_t which = environment_number("GALVANI_EMULATED_DIES", int64_t{1} << 40, 0);
  static std::atomic<int64_t> launched{0};
  return which > 0 && ++launched == which;
}

cudaError_t stream_work(cudaStream_t stream, Work work) {
  if (const cudaError_t sticky = runtime().sticky; sticky != cudaSuccess) return sticky;
  enqueue(stream, std::move(work));
  return cudaSuccess;
}

cudaError_t allocate(void** data, size_t bytes, bool device) {
  if (const cudaError_t sticky = runtime().sticky; sticky != cudaSuccess) return sticky;
  const std::lock_guard lock(runtime().mutex);
  if (device && runtime().used + bytes > static_cast<size_t>(part().caps.memory_bytes))
    return cudaErrorMemoryAllocation;
  // 256 bytes, as cudaMalloc aligns. Large blocks come straight from the kernel, so a GPU's memory is not touched here
  // before it is written.
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  if (device)
    runtime().memory[*data] = bytes, runtime().used += bytes;
  else
    runtime().pinned[*data] = bytes;
  return cudaSuccess;
}

cudaError_t release(void* data) {
  if (data == nullptr) return cudaSuccess;
  const std::lock_guard lock(runtime().mutex);
  const auto found = runtime().memory.find(data);
  if (found == runtime().memory.end()) return cudaErrorInvalidValue;
  runtime().used -= found->second;
  runtime().memory.erase(found);
  std::free(data);
  return cudaSuccess;
}

/// Whether a copy may read or write there later: device memory or page-locked.
bool stays(const void* at) {
  const std::lock_guard lock(runtime().mutex);
  const auto inside = [at](const auto& ranges) {
    auto after = ranges.upper_bound(const_cast<void*>(at));
    return after != ranges.begin() &&
           static_cast<const char*>(at) < static_cast<const char*>((--after)->first) + after->second;
  };
  return inside(runtime().memory) || inside(runtime().pinned);
}

Index3 index(dim3 d) { return {d.x, d.y, d.z}; }

}  // namespace

const void* remember_kernel(const void* function, Bind bind, const char* arch) {
  const std::lock_guard lock(runtime().mutex);
  runtime().kernels[function] = {bind, arch};
  return function;
}

}  // namespace galvani::emulated

using namespace galvani::emulated;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorLaunchFailure: return "unspecified launch failure (what the emulated GPU found is on stderr)";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    default: return cudaGetErrorName(error);
  }
}
cudaError_t cudaGetLastError() { return runtime().sticky; }

cudaError_t cudaGetDeviceCount(int* count) {
  part();  // which ends the program where there is none
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  const galvani::DeviceCaps& caps = part().caps;
  *properties = {};
  const std::string name = fmt::format("{} (emulated on the CPU)", part().name);
  std::snprintf(properties->name, sizeof(properties->name), "%s", name.c_str());
  properties->major = caps.cc / 10, properties->minor = caps.cc % 10;
  properties->multiProcessorCount = caps.sms;
  properties->sharedMemPerBlockOptin = static_cast<size_t>(caps.smem_optin);
  properties->sharedMemPerMultiprocessor = static_cast<size_t>(caps.smem_per_sm);
  properties->regsPerMultiprocessor = caps.regs_per_sm;
  properties->maxThreadsPerMultiProcessor = caps.max_threads_per_sm;
  properties->l2CacheSize = static_cast<int>(caps.l2_bytes);
  properties->totalGlobalMem = static_cast<size_t>(caps.memory_bytes);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? runtime().sticky.load() : cudaErrorInvalidDevice; }
cudaError_t cudaDeviceSynchronize() { return run_all_streams(), runtime().sticky.load(); }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  const std::lock_guard lock(runtime().mutex);
  *total = static_cast<size_t>(part().caps.memory_bytes);
  *free_bytes = *total - runtime().used;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) { return allocate(data, bytes, true); }
cudaError_t cudaFree(void* data) { return run_all_streams(), release(data); }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) { return allocate(data, bytes, false); }
cudaError_t cudaFreeHost(void* data) {
  run_all_streams();
  const std::lock_guard lock(runtime().mutex);
  runtime().pinned.erase(data);
  return std::free(data), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool captured = stream != nullptr && stream->capture != nullptr;
  // What is not page-locked is copied on the way: from the caller's memory before the call returns, or to it.
  if (kind == cudaMemcpyHostToDevice && !captured && !stays(from)) {
    const auto* begin = static_cast<const char*>(from);
    return stream_work(
        stream, [to, copy = std::vector<char>(begin, begin + bytes)] { std::memcpy(to, copy.data(), copy.size()); });
  }
  const cudaError_t error = stream_work(stream, [=] { std::memcpy(to, from, bytes); });
  if (error == cudaSuccess && kind == cudaMemcpyDeviceToHost && stream != nullptr && !captured && !stays(to))
    run_all(*stream);
  return error;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return stream_work(stream, [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  return *pool = new CUmemPoolHandle_st, cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return delete pool, cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return allocate(data, bytes, true);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return stream_work(stream, [data] { release(data); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = create_stream(), cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return destroy_stream(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  run_all(*stream);
  return runtime().sticky;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  // Of the event as it was recorded last before this call.
  return stream_work(stream, [recorded = *event] { wait_for(recorded); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t sticky = runtime().sticky; sticky != cudaSuccess) return sticky;
  return record(*event, stream), cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return wait_for(*event), runtime().sticky.load(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return cudaErrorInvalidValue;
  stream->capture = new CUgraph_st;
  return runtime().sticky;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  *graph = stream->capture;
  stream->capture = nullptr;
  return runtime().sticky;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = graph->work.size(), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return *exec = new CUgraphExec_st{graph->work}, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const Work& work : exec->work)
    if (const cudaError_t error = stream_work(stream, work); error != cudaSuccess) return error;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  const std::lock_guard lock(runtime().mutex);
  const auto found = runtime().kernels.find(function);
  if (found == runtime().kernels.end()) return cudaErrorInvalidDeviceFunction;
  const auto image = galvani::parse_cuda_image(found->second.arch);
  if (!image || !galvani::covers(*image, part().caps.cc)) return cudaErrorNoKernelImageForDevice;
  *attributes = {.binaryVersion = image->ptx ? part().caps.cc : image->cc,
                 .ptxVersion = image->cc,
                 .numRegs = 0,
                 .maxThreadsPerBlock = 1024,
                 .sharedSizeBytes = 0,
                 .localSizeBytes = 0,
                 .constSizeBytes = 0};
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return runtime().sticky; }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  if (attribute != cudaDevAttrCooperativeLaunch) return cudaErrorInvalidValue;
  return *value = 1, cudaSuccess;
}
/// By threads and dynamic shared memory; registers and static shared memory are not known here.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t dynamic_shared) {
  if (threads < 1 || threads > 1024) return cudaErrorInvalidValue;
  const galvani::DeviceCaps& caps = part().caps;
  constexpr int kReserved = 1024, kMostBlocks = 32;
  const int by_memory = caps.smem_per_sm / (static_cast<int>(dynamic_shared) + kReserved);
  *blocks = std::min({caps.max_threads_per_sm / ((threads + 31) / 32 * 32), by_memory, kMostBlocks});
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  Launch launch{.grid = index(config->gridDim), .block = index(config->blockDim), .cluster = {}, .body = {}};
  launch.dynamic_shared = config->dynamicSmemBytes;
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    cooperative |= config->attrs[i].id == cudaLaunchAttributeCooperative && config->attrs[i].val.cooperative != 0;
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      const auto& cluster = config->attrs[i].val.clusterDim;
      launch.cluster = {cluster.x, cluster.y, cluster.z};
    }
  }
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  if (threads == 0 || threads > 1024 || launch.grid.x * launch.grid.y * launch.grid.z == 0)
    return cudaErrorInvalidConfiguration;
  {
    const std::lock_guard lock(runtime().mutex);
    const auto found = runtime().kernels.find(function);
    if (found == runtime().kernels.end()) return cudaErrorInvalidDeviceFunction;
    launch.body = found->second.bind(function, arguments);
  }
  if (dies_now())
    return stream_work(config->stream, [] {
      std::fprintf(stderr, "emulated GPU: ended by GALVANI_EMULATED_DIES\n");
      runtime().sticky = cudaErrorLaunchFailure;
    });
  return stream_work(config->stream, [launch, cooperative] {
    if (runtime().sticky != cudaSuccess) return;
    const std::lock_guard lock(runtime().launches);
    look_at_sums();
    const std::string error = cooperative ? run_cooperative(launch) : run(launch);
    if (error.empty()) return;
    std::fprintf(stderr, "emulated GPU: %s\n", error.c_str());
    runtime().sticky = cudaErrorLaunchFailure;
  });
}
