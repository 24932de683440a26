#pragma once
/// Streams, events and captured graphs. Every handle belongs to a device, which must outlive it.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "cuda/device.h"
#include "cuda/handles.h"

namespace galvani::cuda {

class Stream;

class Event {
 public:
  /// `timed` events can be subtracted; others are cheaper.
  static Result<Event> create(CudaDevice& device, bool timed = false);
  EventHandle handle() const { return handle_.get(); }
  Status synchronize();
  /// Milliseconds from `start` to this one; both timed, both recorded and reached.
  Result<float> milliseconds_since(const Event& start) const;

 private:
  CudaDevice* device_ = nullptr;
  Owned<EventHandle, detail::destroy_event> handle_;
};

/// What a captured graph launches, by kernel.
using LaunchCounts = std::map<const Kernel*, uint64_t>;

class GraphExec {
 public:
  /// Replays the graph; its kernels count as launched.
  Status launch(Stream& stream);

 private:
  friend class Graph;
  CudaDevice* device_ = nullptr;
  Owned<GraphExecHandle, detail::destroy_graph_exec> handle_;
  LaunchCounts counts_;
};

class Graph {
 public:
  GraphHandle handle() const { return handle_.get(); }
  Result<size_t> node_count() const;
  const LaunchCounts& launches() const { return counts_; }
  Result<GraphExec> instantiate() const;

 private:
  friend class Stream;
  CudaDevice* device_ = nullptr;
  Owned<GraphHandle, detail::destroy_graph> handle_;
  LaunchCounts counts_;
};

/// What other threads may do during a capture: everything, or (kGlobal) nothing that could disturb it.
enum class CaptureMode { kThreadLocal, kGlobal };

/// A non-blocking stream. One thread at a time.
class Stream {
 public:
  static Result<Stream> create(CudaDevice& device);
  CudaDevice& device() const { return *device_; }
  StreamHandle handle() const { return handle_.get(); }

  /// Waits for everything in the stream. Errors: what any of it reported, with the kernels launched last.
  Status synchronize();
  /// How often synchronize() has succeeded: what was given before the last of them is done.
  uint64_t synchronised() const { return synchronised_; }
  Status record(const Event& event);
  Status wait(const Event& event);

  // Asynchronous copies; host memory should be pinned. Bytes.
  Status to_device(void* device, const void* host, size_t bytes);
  Status to_host(void* host, const void* device, size_t bytes);
  Status on_device(void* to, const void* from, size_t bytes);
  Status fill(void* device, unsigned char value, size_t bytes);

  /// Everything until end_capture becomes a graph instead of running.
  Status begin_capture(CaptureMode mode = CaptureMode::kThreadLocal);
  Result<Graph> end_capture();
  bool capturing() const { return capture_ != nullptr; }
  /// For launch().
  void count_launch(const Kernel& kernel);

 private:
  CudaDevice* device_ = nullptr;
  Owned<StreamHandle, detail::destroy_stream> handle_;
  std::unique_ptr<LaunchCounts> capture_;
  uint64_t synchronised_ = 0;
};

}  // namespace galvani::cuda
