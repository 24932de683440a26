#include "emulated_gpu/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "emulated_gpu/environment.h"
#include "emulated_gpu/machine.h"

namespace galvani::emulated {

thread_local Thread* current_thread = nullptr;
constinit thread_local Machine* machine = nullptr;

namespace {

constexpr unsigned kSharedBase = 1024;          // where the dynamic window begins, so that 0 is never an address
constexpr unsigned kStaticMiddle = 0xa0000000;  // __shared__ variables are thread_local; this is the anchor's address
constexpr size_t kAlign = 1024;
alignas(256) thread_local char static_anchor;  // else a variable's address has not the alignment it asked for

Asynchronous& under_way() {
  auto& mine = self().asynchronous;
  if (mine == nullptr) mine = std::make_unique<Asynchronous>();
  return *mine;
}

void resume(ThreadState& thread, void** from) {
  current_thread = &thread.who;
  galvani_emulated_switch(from, thread.stack_pointer);
}

}  // namespace

void leave() {
  ThreadState& mine = self();
  if (!machine->stacks.intact(mine.stack) && machine->error.empty())
    machine->error = fmt::format("a thread's frames are larger than {} KiB, its stack here", FiberStacks::kBytes >> 10);
  if (machine->ready.empty() || !machine->error.empty()) {
    galvani_emulated_switch(&mine.stack_pointer, machine->scheduler);
    return;
  }
  ThreadState* next = machine->ready.front();
  machine->ready.pop_front();
  if (next != &mine) resume(*next, &mine.stack_pointer);
}

namespace {

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

Index3 position(unsigned linear, Index3 extent) {
  return {linear % extent.x, linear / extent.x % extent.y, linear / (extent.x * extent.y)};
}

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

}  // namespace

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
  machine->stacks.make_room(blocks * threads);
  for (unsigned b = 0; b < blocks; ++b) {
    const Index3 in = position(b, launch.cluster);
    set_up_block(machine->blocks[b], launch,
                 {at.x * launch.cluster.x + in.x, at.y * launch.cluster.y + in.y, at.z * launch.cluster.z + in.z}, b);
    for (unsigned t = 0; t < threads; ++t) {
      ThreadState& thread = machine->blocks[b].threads[t];
      thread.stack = b * threads + t;
      thread.stack_pointer = machine->stacks.prepare(thread.stack, thread_main);
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

namespace {

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
  static const Options chosen{.eager = environment_is("GALVANI_EMULATED_COPIES", "early"),
                              .reversed = environment_is("GALVANI_EMULATED_ORDER", "reversed")};
  return chosen;
}

namespace {
std::atomic<bool> truncated = false;
}
bool truncated_sums() { return truncated.load(std::memory_order_relaxed); }
void look_at_sums() { truncated = environment_is("GALVANI_EMULATED_SUMS", "truncated"); }

void fault(const std::string& what) { throw Fault{what}; }

namespace {
Barrier& arrive_at(int id, int threads) {
  step();
  Barrier& b = self().block->barriers[static_cast<size_t>(id)];
  if (b.arrived > 0 && b.needed != threads)
    fault(fmt::format("barrier {}: {} threads are to meet here, others came for {}", id, threads, b.needed));
  ++b.arrived;
  b.needed = threads;
  return b;
}
}  // namespace

void barrier(int id, int threads) {
  Barrier& b = arrive_at(id, threads);
  if (!complete(b, threads == 0 ? self().block->live : threads)) wait("a barrier", b.waiting);
}

void barrier_arrive(int id, int threads) { complete(arrive_at(id, threads), threads); }

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

}  // namespace galvani::emulated
