#include "emulated_gpu/queue.h"

#include <algorithm>

#include "emulated_gpu/block.h"

namespace galvani::emulated {
namespace {

struct Streams {
  std::mutex mutex;
  std::vector<CUstream_st*> all;
};
Streams& streams() {
  static Streams* const instance = new Streams;  // outlives everybody's destructors
  return *instance;
}

uint64_t given_to(CUstream_st& stream) {
  const std::lock_guard lock(stream.mutex);
  return stream.given;
}

}  // namespace

CUstream_st* create_stream() {
  auto* stream = new CUstream_st;
  const std::lock_guard lock(streams().mutex);
  streams().all.push_back(stream);
  return stream;
}

void destroy_stream(CUstream_st* stream) {
  run_all(*stream);
  {
    const std::lock_guard lock(streams().mutex);
    std::erase(streams().all, stream);
  }
  delete stream;
}

void enqueue(cuda::StreamHandle stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
    return;
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->waiting.push_back(std::move(work));
    ++stream->given;
  }
  if (options().eager) run_all(*stream);
}

// A piece of work may wait for another stream's event, which is never behind this piece itself: whoever waits here for
// `running` waits for somebody who goes on.
void run_until(CUstream_st& stream, uint64_t given) {
  {
    const std::lock_guard lock(stream.mutex);
    if (stream.done >= given) return;
  }
  const std::lock_guard running(stream.running);
  while (true) {
    std::function<void()> work;
    {
      const std::lock_guard lock(stream.mutex);
      if (stream.done >= given || stream.waiting.empty()) return;
      work = std::move(stream.waiting.front());
      stream.waiting.pop_front();
    }
    work();
    const std::lock_guard lock(stream.mutex);
    ++stream.done;
  }
}

void run_all(CUstream_st& stream) { run_until(stream, given_to(stream)); }

void run_all_streams() {
  std::vector<CUstream_st*> all;
  {
    const std::lock_guard lock(streams().mutex);
    all = streams().all;
  }
  for (CUstream_st* stream : all) run_all(*stream);
}

void record(CUevent_st& event, CUstream_st* stream) {
  enqueue(stream, [&event] { event.at = std::chrono::steady_clock::now(); });
  if (stream == nullptr || stream->capture != nullptr) return;
  event.stream = stream;
  event.given = given_to(*stream);
}

void wait_for(const CUevent_st& event) {
  {
    const std::lock_guard lock(streams().mutex);
    const auto& all = streams().all;
    if (std::find(all.begin(), all.end(), event.stream) == all.end()) return;  // it ended, so all of it ran
  }
  run_until(*event.stream, event.given);
}

}  // namespace galvani::emulated
