#pragma once
/// The inside of the emulated GPU, shared by block.cpp and grid.cpp: threads, blocks, and what runs them.
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulated_gpu/block.h"
#include "emulated_gpu/fiber.h"

namespace galvani::emulated {

constexpr int kBarriers = 16;

struct Fault {
  std::string what;
};

struct Copy {
  unsigned to;
  const void* from;
  int bytes;
};
struct WgmmaOperation {
  std::vector<std::byte> argument;
  Together run;
};

struct BlockState;

/// What a thread has under way; most never have anything.
struct Asynchronous {
  std::vector<Copy> copies;
  std::deque<std::vector<Copy>> copy_groups;
  std::vector<WgmmaOperation> wgmmas;
  std::deque<std::vector<WgmmaOperation>> wgmma_groups;
};
struct ThreadState {
  Thread who;
  BlockState* block = nullptr;
  void* stack_pointer = nullptr;
  size_t stack = 0;  // of the machine's
  const char* waits_for = nullptr;
  bool ended = false;
  const unsigned* polled = nullptr;  // its last poll, if it has met nobody since
  unsigned polled_value = 0;
  std::unique_ptr<Asynchronous> asynchronous;
};

struct Barrier {
  int arrived = 0, needed = 0;
  std::vector<ThreadState*> waiting;
};
struct Pending {
  unsigned mask, arrived;
  Together together;
  std::array<void*, 32> lanes;
};
struct Warp {
  unsigned ended = 0;  // lanes, those that never were included
  int count = 0;       // of `pending`; one, unless the lanes have gone different ways
  std::array<Pending, 32> pending;
  ThreadState* threads = nullptr;
};
struct MBarrier {
  int count = 0, pending = 0;
  int64_t bytes = 0;  // expected and not yet there
  unsigned phase = 0;
  std::vector<std::pair<unsigned, std::function<void()>>> copies;
  std::vector<ThreadState*> waiting;
};
struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

struct BlockState {
  unsigned rank = 0;
  int live = 0;
  std::unique_ptr<void, FreeMemory> shared;
  size_t shared_bytes = 0;
  std::array<Barrier, kBarriers> barriers;
  std::vector<Warp> warps;
  std::map<unsigned, MBarrier> mbarriers;
  std::vector<ThreadState> threads;
};

/// What the machines of a cooperative launch share.
struct Grid {
  std::mutex mutex;
  std::condition_variable changed;
  unsigned running = 0;  // machines whose block has not ended
  unsigned idle = 0;     // of those: with threads that poll and no others that could go on
  uint64_t epoch = 0;    // changes when idle machines are to look again; `idle` is 0 then
  int quiet = 0;         // how often in a row all were idle and looked again for nothing
  bool failed = false, deadlock = false;
};
struct Poller {
  ThreadState* thread;
  const unsigned* counter;
  unsigned value;
};

/// What one operating system thread runs: the blocks of one cluster at a time.
struct Machine {
  FiberStacks stacks;
  std::vector<BlockState> blocks;
  std::deque<ThreadState*> ready;
  void* scheduler = nullptr;
  const std::function<void()>* body = nullptr;
  std::string error;
  Barrier cluster;
  int live = 0;
  Grid* grid = nullptr;  // of a cooperative launch
  std::vector<Poller> pollers;
  bool progressed = false;  // a thread has met others since this machine was idle
};

// A pointer, since a thread_local with a constructor is asked for it at every use.
extern constinit thread_local Machine* machine;

inline ThreadState& self() { return *current_thread->state; }
/// The calling thread meets others: whoever polls between two such steps may be in a loop.
inline void step() {
  self().polled = nullptr;
  machine->progressed = true;
}

inline unsigned volume(Index3 i) { return i.x * i.y * i.z; }

/// To whoever is ready; to the scheduler if nobody is.
void leave();
/// One cluster from start to end, on `own`. Empty: all went well, or others of its grid failed.
std::string run_cluster(const Launch& launch, unsigned cluster, Machine& own, Grid* grid);
/// Only threads that poll can go on here: makes them ready again when there may be something to see. False: the launch
/// has failed, or never will go on (Grid::deadlock).
bool wait_for_other_blocks();

}  // namespace galvani::emulated
