#include "emulated_gpu/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "emulated_gpu/fiber.h"
#include "emulated_gpu/grid.h"

namespace galvani::emulated {

thread_local Thread* current_thread = nullptr;

namespace {

constexpr unsigned kSharedBase = 1024;          // where the dynamic window begins, so that 0 is never an address
constexpr unsigned kStaticMiddle = 0xa0000000;  // __shared__ variables are thread_local; this is the anchor's address
constexpr size_t kAlign = 1024;
constexpr int kBarriers = 16;
thread_local char static_anchor;

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

}  // namespace

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
  const char* waits_for = nullptr;
  bool ended = false;
  const unsigned* polled = nullptr;  // its last poll, if it has met nobody since
  unsigned polled_value = 0;
  std::unique_ptr<Asynchronous> asynchronous;
};

namespace {

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

}  // namespace

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

namespace {

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
  std::vector<FiberStack> stacks;
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
thread_local Machine* machine = nullptr;

ThreadState& self() { return *current_thread->state; }
Asynchronous& under_way() {
  auto& mine = self().asynchronous;
  if (mine == nullptr) mine = std::make_unique<Asynchronous>();
  return *mine;
}

/// The calling thread meets others: whoever polls between two such steps may be in a loop.
void step() {
  self().polled = nullptr;
  machine->progressed = true;
}

void resume(ThreadState& thread, void** from) {
  current_thread = &thread.who;
  galvani_emulated_switch(from, thread.stack_pointer);
}

/// To whoever is ready; to the scheduler if nobody is.
void leave() {
  ThreadState& mine = self();
  if (machine->ready.empty() || !machine->error.empty()) {
    galvani_emulated_switch(&mine.stack_pointer, machine->scheduler);
    return;
  }
  ThreadState* next = machine->ready.front();
  machine->ready.pop_front();
  if (next != &mine) resume(*next, &mine.stack_pointer);
}

void wait(const char* what, std::vector<ThreadState*>& queue) {
  ThreadState& mine = self();
  mine.waits_for = what;
  queue.push_back(&mine);
  leave();
  mine.waits_for = nullptr;
}

void wake(std::vector<ThreadState*>& queue) {
  machine->ready.insert(machine->ready.end(), queue.begin(), queue.end());
  queue.clear();
}

/// Completes what the end of a thread, or the last arrival, completes.
bool complete(Barrier& barrier, int needed) {
  if (barrier.arrived == 0 || barrier.arrived < needed) return false;
  barrier.arrived = barrier.needed = 0;
  wake(barrier.waiting);
  return true;
}
/// `own`: the lane that calls, which does not wait.
bool complete(Warp& warp, int i, unsigned own) {
  Pending& p = warp.pending[static_cast<size_t>(i)];
  if ((p.mask & ~(p.arrived | warp.ended)) != 0) return false;
  p.together(p.lanes.data(), p.mask & p.arrived);
  for (unsigned left = p.arrived & ~own; left != 0; left &= left - 1)
    machine->ready.push_back(warp.threads + std::countr_zero(left));
  p = warp.pending[static_cast<size_t>(--warp.count)];
  return true;
}

void end_thread() {
  ThreadState& mine = self();
  step();
  BlockState& block = *mine.block;
  mine.ended = true;
  --block.live, --machine->live;
  Warp& warp = block.warps[static_cast<size_t>(mine.who.warp)];
  warp.ended |= 1u << mine.who.lane;
  for (int i = 0; i < warp.count;)
    if (!complete(warp, i, 0)) ++i;
  complete(block.barriers[0], block.barriers[0].needed == 0 ? block.live : block.barriers[0].needed);
  complete(machine->cluster, machine->live);
}

void thread_main() {
  try {
    (*machine->body)();
    const Asynchronous* mine = self().asynchronous.get();
    if (mine != nullptr && (!mine->wgmmas.empty() || !mine->wgmma_groups.empty()))
      fault("the thread ends while a wgmma of it is under way");
    end_thread();
  } catch (const Fault& f) {
    const Thread& t = *current_thread;
    machine->error = fmt::format("block ({}, {}, {}), thread ({}, {}, {}): {}", t.block.x, t.block.y, t.block.z,
                                 t.thread.x, t.thread.y, t.thread.z, f.what);
  }
  leave();
  std::abort();  // nobody resumes a thread that has ended
}

std::string stuck() {
  std::map<std::string, int> waiting;
  for (const BlockState& block : machine->blocks)
    for (const ThreadState& thread : block.threads)
      if (!thread.ended) ++waiting[thread.waits_for != nullptr ? thread.waits_for : "nothing"];
  std::string text;
  for (const auto& [what, threads] : waiting)
    text += fmt::format("{}{} at {}", text.empty() ? "" : ", ", threads, what);
  const Index3 at = machine->blocks.front().threads.front().who.block;
  return fmt::format("the threads wait for each other (block ({}, {}, {})): {}", at.x, at.y, at.z, text);
}

// --- cooperative launches ---

unsigned read_counter(const unsigned* counter) {
  return std::atomic_ref<unsigned>(*const_cast<unsigned*>(counter)).load(std::memory_order_acquire);
}

/// With the grid's mutex.
void all_look_again(Grid& grid) {
  grid.idle = 0;
  ++grid.epoch;
  grid.changed.notify_all();
}

/// All machines are idle: memory may have been changed by more than arrivals, and a poll need not be in a loop, so all
/// look once more, some times. With the grid's mutex.
void all_are_idle(Grid& grid) {
  constexpr int kMostQuiet = 16;
  grid.deadlock = ++grid.quiet > kMostQuiet;
  all_look_again(grid);
}

/// Only threads that poll can go on here: makes them ready again when there may be something to see. False: the launch
/// has failed, or never will go on (grid.deadlock).
bool wait_for_other_blocks() {
  Machine& mine = *machine;
  Grid& grid = *mine.grid;
  std::unique_lock lock(grid.mutex);
  if (mine.progressed) grid.quiet = 0;
  mine.progressed = false;
  const auto changed = [](const Poller& p) { return read_counter(p.counter) != p.value; };
  if (std::any_of(mine.pollers.begin(), mine.pollers.end(), changed)) {
    grid.quiet = 0;
  } else if (!grid.failed && !grid.deadlock) {
    const uint64_t epoch = grid.epoch;
    if (++grid.idle == grid.running)
      all_are_idle(grid);
    else
      grid.changed.wait(lock, [&] { return grid.epoch != epoch; });
  }
  for (const Poller& poller : mine.pollers) mine.ready.push_back(poller.thread);
  mine.pollers.clear();
  return !grid.failed && !grid.deadlock;
}

/// This machine's block has ended, `well` or not.
void leave_grid(Grid& grid, bool well) {
  const std::lock_guard lock(grid.mutex);
  --grid.running;
  if (!well && !grid.deadlock) grid.failed = true;
  if (grid.failed) all_look_again(grid);
  if (grid.running > 0 && grid.idle == grid.running) all_are_idle(grid);
}

Index3 position(unsigned linear, Index3 extent) {
  return {linear % extent.x, linear / extent.x % extent.y, linear / (extent.x * extent.y)};
}
unsigned volume(Index3 i) { return i.x * i.y * i.z; }

/// `block` may have been another block before: what it holds is used again.
void set_up_block(BlockState& block, const Launch& launch, Index3 at, unsigned rank) {
  const unsigned threads = volume(launch.block);
  block.rank = rank;
  block.live = static_cast<int>(threads);
  const size_t bytes = (std::max(launch.dynamic_shared, size_t{1}) + kAlign - 1) / kAlign * kAlign;
  if (block.shared == nullptr || block.shared_bytes != launch.dynamic_shared)
    block.shared.reset(std::aligned_alloc(kAlign, bytes));
  block.shared_bytes = launch.dynamic_shared;
  std::memset(block.shared.get(), 0xff, bytes);
  block.barriers = {};
  block.mbarriers.clear();
  block.warps.resize((threads + 31) / 32);
  block.threads.resize(threads);
  for (size_t w = 0; w < block.warps.size(); ++w) {
    Warp& warp = block.warps[w];
    warp.ended = 0, warp.count = 0, warp.threads = &block.threads[32 * w];
  }
  if (threads % 32 != 0) block.warps.back().ended = ~0u << threads % 32;
  for (unsigned t = 0; t < threads; ++t) {
    ThreadState& thread = block.threads[t];
    thread.block = &block;
    thread.waits_for = nullptr;
    thread.ended = false;
    thread.polled = nullptr;
    thread.asynchronous.reset();
    thread.who = {.thread = position(t, launch.block),
                  .block = at,
                  .block_dim = launch.block,
                  .grid_dim = launch.grid,
                  .lane = static_cast<int>(t % 32),
                  .warp = static_cast<int>(t / 32),
                  .linear = static_cast<int>(t),
                  .state = &thread};
  }
}

/// One cluster from start to end, on `own`. Empty: all went well, or others of its grid failed.
std::string run_cluster(const Launch& launch, unsigned cluster, Machine& own, Grid* grid) {
  const Index3 clusters = {launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y,
                           launch.grid.z / launch.cluster.z};
  const Index3 at = position(cluster, clusters);
  const unsigned blocks = volume(launch.cluster), threads = volume(launch.block);
  machine = &own;
  machine->grid = grid;
  machine->pollers.clear();
  machine->blocks.resize(blocks);
  machine->ready.clear();
  machine->error.clear();
  machine->cluster = {};
  machine->live = static_cast<int>(blocks * threads);
  machine->body = &launch.body;
  while (machine->stacks.size() < blocks * threads) machine->stacks.emplace_back();
  for (unsigned b = 0; b < blocks; ++b) {
    const Index3 in = position(b, launch.cluster);
    set_up_block(machine->blocks[b], launch,
                 {at.x * launch.cluster.x + in.x, at.y * launch.cluster.y + in.y, at.z * launch.cluster.z + in.z}, b);
    for (unsigned t = 0; t < threads; ++t) {
      ThreadState& thread = machine->blocks[b].threads[t];
      thread.stack_pointer = machine->stacks[b * threads + t].prepare(thread_main);
      machine->ready.push_back(&thread);
    }
  }
  if (options().reversed) std::reverse(machine->ready.begin(), machine->ready.end());
  while (machine->error.empty() && machine->live > 0) {
    if (machine->ready.empty()) {
      if (machine->pollers.empty()) return stuck();
      std::string text = stuck();  // before those who poll count as ready
      if (!wait_for_other_blocks()) return grid->deadlock ? text : "";
      continue;
    }
    ThreadState* next = machine->ready.front();
    machine->ready.pop_front();
    resume(*next, &machine->scheduler);
  }
  current_thread = nullptr;
  return machine->error;
}

void copy_now(const Copy& copy) {
  auto* to = static_cast<char*>(shared_pointer(copy.to, 16));
  std::memcpy(to, copy.from, static_cast<size_t>(copy.bytes));
  std::memset(to + copy.bytes, 0, static_cast<size_t>(16 - copy.bytes));
}

MBarrier& mbarrier(unsigned address) {
  auto& barriers = self().block->mbarriers;
  const auto found = barriers.find(address);
  if (found == barriers.end()) fault(fmt::format("no mbarrier was initialised at shared address {:#x}", address));
  return found->second;
}

void advance(MBarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1u;
  barrier.pending = barrier.count;
  wake(barrier.waiting);
}

void land_copies(MBarrier& barrier) {
  const auto copies = std::move(barrier.copies);
  barrier.copies.clear();
  for (const auto& [bytes, copy] : copies) {
    copy();
    barrier.bytes -= bytes;
  }
  if (!copies.empty()) advance(barrier);
}

/// The lanes' lists of operations, one operation after the other.
void run_wgmmas(void* const* lanes, unsigned mask) {
  if (mask != ~0u) fault("wgmma: not all lanes of the warp are there");
  std::array<std::vector<WgmmaOperation>*, 32> lists;
  for (size_t l = 0; l < 32; ++l) lists[l] = static_cast<std::vector<WgmmaOperation>*>(lanes[l]);
  for (size_t i = 0; i < lists[0]->size(); ++i) {
    std::array<void*, 32> arguments;
    for (size_t l = 0; l < 32; ++l) {
      if (lists[l]->size() != lists[0]->size() || (*lists[l])[i].run != (*lists[0])[i].run)
        fault("wgmma: the lanes of a warp have issued different operations");
      arguments[l] = (*lists[l])[i].argument.data();
    }
    (*lists[0])[i].run(arguments.data(), mask);
  }
}

}  // namespace

const Options& options() {
  static const Options chosen = [] {
    const auto is = [](const char* name, std::string_view value) {
      const char* text = std::getenv(name);
      return text != nullptr && value == text;
    };
    return Options{.eager = is("GALVANI_EMULATED_COPIES", "early"),
                   .reversed = is("GALVANI_EMULATED_ORDER", "reversed")};
  }();
  return chosen;
}

void fault(const std::string& what) { throw Fault{what}; }

void barrier(int id, int threads) {
  step();
  BlockState& block = *self().block;
  Barrier& b = block.barriers[static_cast<size_t>(id)];
  if (b.arrived > 0 && b.needed != threads)
    fault(fmt::format("barrier {}: {} threads are to meet here, others came for {}", id, threads, b.needed));
  ++b.arrived;
  b.needed = threads;
  if (!complete(b, threads == 0 ? block.live : threads)) wait("a barrier", b.waiting);
}

void collective(unsigned mask, const char* what, void* argument, Together together) {
  step();
  ThreadState& mine = self();
  Warp& warp = mine.block->warps[static_cast<size_t>(mine.who.warp)];
  const unsigned bit = 1u << mine.who.lane;
  if ((mask & bit) == 0) fault(fmt::format("{}: lane {} is not in its own mask {:#x}", what, mine.who.lane, mask));
  int i = 0;
  const auto slot = [&]() -> Pending& { return warp.pending[static_cast<size_t>(i)]; };
  while (i < warp.count && !(slot().mask == mask && slot().together == together && (slot().arrived & bit) == 0)) ++i;
  if (i == warp.count) {
    ++warp.count;  // each lane waits at one at most, so 32 are enough
    slot().mask = mask, slot().arrived = 0, slot().together = together;
    slot().lanes = {};
  }
  slot().arrived |= bit;
  slot().lanes[static_cast<size_t>(mine.who.lane)] = argument;
  if (complete(warp, i, bit)) return;
  mine.waits_for = what;
  leave();
  mine.waits_for = nullptr;
}

void* dynamic_shared() { return self().block->shared.get(); }

unsigned shared_address(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const BlockState& block = *self().block;
  const auto base = reinterpret_cast<uintptr_t>(block.shared.get());
  if (at >= base && at <= base + block.shared_bytes) return kSharedBase + static_cast<unsigned>(at - base);
  const auto apart = static_cast<int64_t>(at) - reinterpret_cast<int64_t>(&static_anchor);
  if (apart < -(int64_t{1} << 28) || apart > (int64_t{1} << 28))
    fault(fmt::format("{} is not in shared memory", pointer));
  return kStaticMiddle + static_cast<unsigned>(static_cast<int>(apart));
}

void* shared_pointer(unsigned address, size_t bytes) {
  if (address >= 0x80000000u) return &static_anchor + static_cast<int>(address - kStaticMiddle);
  const BlockState& block = *self().block;
  if (address < kSharedBase || address - kSharedBase + bytes > block.shared_bytes)
    fault(fmt::format("shared address {:#x} ({} bytes) is outside the block's {} bytes", address, bytes,
                      block.shared_bytes));
  return static_cast<char*>(block.shared.get()) + (address - kSharedBase);
}

void* cluster_pointer(unsigned address, unsigned rank, size_t bytes) {
  if (rank >= machine->blocks.size() || address < kSharedBase || address >= 0x80000000u ||
      address - kSharedBase + bytes > machine->blocks[rank].shared_bytes)
    fault(fmt::format("block {} of the cluster has no shared address {:#x}", rank, address));
  return static_cast<char*>(machine->blocks[rank].shared.get()) + (address - kSharedBase);
}
void cluster_barrier() {
  ++machine->cluster.arrived;
  if (!complete(machine->cluster, machine->live)) wait("the cluster's barrier", machine->cluster.waiting);
}
unsigned cluster_rank() { return self().block->rank; }
unsigned cluster_blocks() { return static_cast<unsigned>(machine->blocks.size()); }

void async_copy(unsigned to, const void* from, int bytes) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || to % 16 != 0 || bytes < 0 || bytes > 16)
    fault("cp.async: an address is not a multiple of 16");
  if (options().eager)
    copy_now({to, from, bytes});
  else
    under_way().copies.push_back({to, from, bytes});
}
void async_commit() {
  Asynchronous& mine = under_way();
  mine.copy_groups.push_back(std::move(mine.copies));
  mine.copies.clear();
}
void async_wait(int pending_groups) {
  auto& groups = under_way().copy_groups;
  while (groups.size() > static_cast<size_t>(pending_groups)) {
    for (const Copy& copy : groups.front()) copy_now(copy);
    groups.pop_front();
  }
}

void mbarrier_init(unsigned address, int arrivals) {
  shared_pointer(address, 8);
  self().block->mbarriers[address] = {.count = arrivals, .pending = arrivals};
}
void mbarrier_arrive(unsigned address, unsigned expected_bytes) {
  MBarrier& b = mbarrier(address);
  b.bytes += expected_bytes;
  if (--b.pending < 0) fault("mbarrier: more arrivals than the phase has");
  advance(b);
}
void mbarrier_wait(unsigned address, unsigned parity) {
  MBarrier& b = mbarrier(address);
  land_copies(b);
  while (b.phase == parity) wait("an mbarrier", b.waiting);
}
void mbarrier_copy(unsigned address, unsigned bytes, std::function<void()> copy) {
  MBarrier& b = mbarrier(address);
  b.copies.emplace_back(bytes, std::move(copy));
  // Somebody waits already: nothing is gained by being later still.
  if (options().eager || !b.waiting.empty()) land_copies(b);
}

void wgmma_issue(void* argument, size_t bytes, Together run) {
  auto& list = under_way().wgmmas;
  const auto* from = static_cast<const std::byte*>(argument);
  list.push_back({std::vector<std::byte>(from, from + bytes), run});
  if (!options().eager) return;
  collective(~0u, "wgmma", &list, run_wgmmas);
  list.clear();
}
void wgmma_commit() {
  Asynchronous& mine = under_way();
  mine.wgmma_groups.push_back(std::move(mine.wgmmas));
  mine.wgmmas.clear();
}
void wgmma_wait(int pending_groups) {
  auto& groups = under_way().wgmma_groups;
  while (groups.size() > static_cast<size_t>(pending_groups)) {
    if (!groups.front().empty()) collective(~0u, "wgmma.wait_group", &groups.front(), run_wgmmas);
    groups.pop_front();
  }
}

std::string run(const Launch& launch) {
  if (launch.grid.x % launch.cluster.x != 0 || launch.grid.y % launch.cluster.y != 0 ||
      launch.grid.z % launch.cluster.z != 0)
    return "the grid is no multiple of the cluster";
  const int64_t clusters = int64_t{volume(launch.grid)} / volume(launch.cluster);
  std::mutex mutex;
  std::string error;
  int64_t error_at = clusters;
#pragma omp parallel for schedule(dynamic)
  for (int64_t c = 0; c < clusters; ++c) {
    {
      const std::lock_guard lock(mutex);
      if (error_at < c) continue;
    }
    static thread_local Machine own;
    std::string found = run_cluster(launch, static_cast<unsigned>(c), own, nullptr);
    if (found.empty()) continue;
    const std::lock_guard lock(mutex);
    if (c < error_at) error = std::move(found), error_at = c;
  }
  return error;
}

void grid_arrive_add(unsigned* counter) {
  step();
  std::atomic_ref<unsigned>(*counter).fetch_add(1, std::memory_order_release);
  if (machine->grid == nullptr) return;
  const std::lock_guard lock(machine->grid->mutex);
  machine->grid->quiet = 0;
  all_look_again(*machine->grid);
}

unsigned grid_poll(const unsigned* counter) {
  if (machine->grid == nullptr)
    fault("grid_poll in a launch that is not cooperative: who is to arrive need not be running");
  ThreadState& mine = self();
  unsigned value = read_counter(counter);
  if (mine.polled == counter && mine.polled_value == value) {
    machine->pollers.push_back({&mine, counter, value});
    mine.waits_for = "a poll of a counter";
    leave();
    mine.waits_for = nullptr;
    value = read_counter(counter);
  }
  mine.polled = counter, mine.polled_value = value;
  return value;
}

std::string run_cooperative(const Launch& launch) {
  const unsigned blocks = volume(launch.grid), threads = blocks * volume(launch.block);
  if (volume(launch.cluster) != 1) return "a cooperative launch in clusters is not emulated";
  if (threads > kMostCooperativeThreads)
    return fmt::format("a cooperative launch of {} threads; the emulated GPU runs at most {} at once", threads,
                       kMostCooperativeThreads);
  static std::vector<std::unique_ptr<Machine>> machines;  // one launch at a time
  while (machines.size() < blocks) machines.push_back(std::make_unique<Machine>());
  Grid grid;
  grid.running = blocks;
  std::vector<std::string> errors(blocks);
  std::vector<std::thread> workers;
  for (unsigned b = 0; b < blocks; ++b) {
    const unsigned block = options().reversed ? blocks - 1 - b : b;
    workers.emplace_back([&launch, &grid, &errors, block] {
      errors[block] = run_cluster(launch, block, *machines[block], &grid);
      leave_grid(grid, errors[block].empty());
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (std::string& error : errors)
    if (!error.empty()) return std::move(error);
  return "";
}

}  // namespace galvani::emulated
