#pragma once
/// Streams and events of the emulated GPU. What a stream is given runs as late as the rules allow: when somebody waits
/// for it. So host memory that is written over before the copy from it has been waited for, and results that are read
/// too early, are wrong here as they can be on a GPU. Options::eager runs it at once.
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "emulated_gpu/runtime.h"

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};

struct CUstream_st {
  CUgraph_st* capture = nullptr;
  std::mutex running;  // of who runs the work
  std::mutex mutex;    // of what follows
  std::deque<std::function<void()>> waiting;
  uint64_t given = 0, done = 0;  // pieces of work
};

struct CUevent_st {
  std::chrono::steady_clock::time_point at;
  CUstream_st* stream = nullptr;  // null: never recorded
  uint64_t given = 0;             // to the stream before it
};

namespace galvani::emulated {

CUstream_st* create_stream();
void destroy_stream(CUstream_st* stream);
/// Runs the first `given` pieces of the stream's work, those that have not run yet.
void run_until(CUstream_st& stream, uint64_t given);
void run_all(CUstream_st& stream);
void run_all_streams();
void record(CUevent_st& event, CUstream_st* stream);
void wait_for(const CUevent_st& event);

}  // namespace galvani::emulated
