#include "cuda/stream.h"

#include "core/log.h"
#include "cuda/check.h"

namespace galvani::cuda {
namespace detail {
namespace {

/// Destructors cannot answer; a handle that dies after its device is not worth a word.
void report(cudaError_t error, const char* call) {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading || is_sticky(error)) return;
  log_warn("{} failed: {}", call, cudaGetErrorString(error));
  cudaGetLastError();
}

}  // namespace

void destroy_stream(StreamHandle stream) { report(cudaStreamDestroy(stream), "cudaStreamDestroy"); }
void destroy_event(EventHandle event) { report(cudaEventDestroy(event), "cudaEventDestroy"); }
void destroy_graph(GraphHandle graph) { report(cudaGraphDestroy(graph), "cudaGraphDestroy"); }
void destroy_graph_exec(GraphExecHandle exec) { report(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy"); }
void destroy_pool(MemPoolHandle pool) { report(cudaMemPoolDestroy(pool), "cudaMemPoolDestroy"); }

}  // namespace detail

Result<Event> Event::create(CudaDevice& device, bool timed) {
  GALVANI_TRY_VOID(device.make_current());
  cudaEvent_t handle = nullptr;
  GALVANI_CUDA_TRY(device, cudaEventCreateWithFlags(&handle, timed ? cudaEventDefault : cudaEventDisableTiming),
                   "creating an event");
  Event event;
  event.device_ = &device;
  event.handle_ = Owned<EventHandle, detail::destroy_event>(handle);
  return event;
}

Status Event::synchronize() {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_CUDA_TRY(*device_, cudaEventSynchronize(handle()), "waiting for an event");
  return {};
}

Result<float> Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  GALVANI_CUDA_TRY(*device_, cudaEventElapsedTime(&milliseconds, start.handle(), handle()), "time between two events");
  return milliseconds;
}

Status GraphExec::launch(Stream& stream) {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_TRY_VOID(device_->make_current());
  for (const auto& [kernel, count] : counts_) device_->note_launch(*kernel);
  GALVANI_CUDA_TRY(*device_, cudaGraphLaunch(handle_.get(), stream.handle()), "replaying a graph of {} kernels",
                   counts_.size());
  for (const auto& [kernel, count] : counts_) kernel->count_launches(count);
  return {};
}

Result<size_t> Graph::node_count() const {
  size_t count = 0;
  GALVANI_CUDA_TRY(*device_, cudaGraphGetNodes(handle(), nullptr, &count), "counting the nodes of a graph");
  return count;
}

Result<GraphExec> Graph::instantiate() const {
  cudaGraphExec_t handle = nullptr;
  GALVANI_CUDA_TRY(*device_, cudaGraphInstantiate(&handle, handle_.get(), 0), "instantiating a graph");
  GraphExec exec;
  exec.device_ = device_, exec.counts_ = counts_;
  exec.handle_ = Owned<GraphExecHandle, detail::destroy_graph_exec>(handle);
  return exec;
}

Result<Stream> Stream::create(CudaDevice& device) {
  GALVANI_TRY_VOID(device.make_current());
  cudaStream_t handle = nullptr;
  GALVANI_CUDA_TRY(device, cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "creating a stream");
  Stream stream;
  stream.device_ = &device;
  stream.handle_ = Owned<StreamHandle, detail::destroy_stream>(handle);
  return stream;
}

Status Stream::synchronize() {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_CUDA_TRY(*device_, cudaStreamSynchronize(handle()), "waiting for a stream of GPU {}", device_->index());
  ++synchronised_;
  return {};
}

Status Stream::record(const Event& event) {
  GALVANI_CUDA_TRY(*device_, cudaEventRecord(event.handle(), handle()), "recording an event");
  return {};
}

Status Stream::wait(const Event& event) {
  GALVANI_CUDA_TRY(*device_, cudaStreamWaitEvent(handle(), event.handle(), 0), "waiting for an event in a stream");
  return {};
}

Status Stream::to_device(void* device, const void* host, size_t bytes) {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_CUDA_TRY(*device_, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handle()),
                   "copying {} bytes to the GPU", bytes);
  return {};
}

Status Stream::to_host(void* host, const void* device, size_t bytes) {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_CUDA_TRY(*device_, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handle()),
                   "copying {} bytes from the GPU", bytes);
  return {};
}

Status Stream::on_device(void* to, const void* from, size_t bytes) {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_CUDA_TRY(*device_, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle()),
                   "copying {} bytes on the GPU", bytes);
  return {};
}

Status Stream::fill(void* device, unsigned char value, size_t bytes) {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_CUDA_TRY(*device_, cudaMemsetAsync(device, value, bytes, handle()), "filling {} bytes on the GPU", bytes);
  return {};
}

Status Stream::begin_capture(CaptureMode mode) {
  GALVANI_TRY_VOID(device_->alive());
  GALVANI_TRY_VOID(device_->make_current());
  GALVANI_CUDA_TRY(*device_,
                   cudaStreamBeginCapture(handle(), mode == CaptureMode::kGlobal ? cudaStreamCaptureModeGlobal
                                                                                 : cudaStreamCaptureModeThreadLocal),
                   "starting a capture");
  capture_ = std::make_unique<LaunchCounts>();
  return {};
}

Result<Graph> Stream::end_capture() {
  const std::unique_ptr<LaunchCounts> counts = std::move(capture_);
  cudaGraph_t handle = nullptr;
  GALVANI_CUDA_TRY(*device_, cudaStreamEndCapture(this->handle(), &handle), "ending a capture");
  Graph graph;
  graph.device_ = device_;
  graph.handle_ = Owned<GraphHandle, detail::destroy_graph>(handle);
  if (counts != nullptr) graph.counts_ = *counts;
  return graph;
}

void Stream::count_launch(const Kernel& kernel) {
  if (capture_ != nullptr) {
    ++(*capture_)[&kernel];
  } else {
    kernel.count_launches(1);
  }
}

}  // namespace galvani::cuda
