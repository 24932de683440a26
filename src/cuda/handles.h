#pragma once
/// The CUDA runtime's own handle types, declared without its headers (they are pointers to these structs).
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;

namespace galvani::cuda {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;
using GraphHandle = CUgraph_st*;
using GraphExecHandle = CUgraphExec_st*;
using MemPoolHandle = CUmemPoolHandle_st*;

/// Owns one handle; Destroy is a function of the CUDA side that logs a failure and never throws.
template <typename Handle, void (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : handle_(other.release()) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) reset(), handle_ = other.release();
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  Handle release() {
    Handle handle = handle_;
    handle_ = nullptr;
    return handle;
  }
  void reset() {
    if (handle_ != nullptr) Destroy(release());
  }

 private:
  Handle handle_ = nullptr;
};

namespace detail {
void destroy_stream(StreamHandle stream);
void destroy_event(EventHandle event);
void destroy_graph(GraphHandle graph);
void destroy_graph_exec(GraphExecHandle exec);
void destroy_pool(MemPoolHandle pool);
}  // namespace detail

}  // namespace galvani::cuda
