#pragma once
/// One thread block of the emulated GPU, as its threads see it: who they are, barriers, what a warp does together,
/// shared memory, copies that arrive later. Device code reaches this through prelude.h and the headers under include/.
///
/// Every CUDA thread is a fiber. A fiber runs until it waits for others, so within a block nothing is preempted; blocks
/// of a cluster run together on one operating system thread, clusters on several. Order is round robin, forwards or
/// backwards (Options::reversed).
///
/// What arrives asynchronously arrives as late as the rules allow: cp.async at its wait, bulk copies when somebody
/// waits at their barrier, wgmma (which reads shared memory, and writes its accumulators) at its wait; Options::eager
/// does it at once. What is right under both does not depend on luck.
#include <cstddef>
#include <functional>
#include <string>

namespace galvani::emulated {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

struct ThreadState;  // block.cpp

/// What threadIdx and the others are.
struct Thread {
  Index3 thread, block, block_dim, grid_dim;
  int lane = 0, warp = 0, linear = 0;
  ThreadState* state = nullptr;
};
extern thread_local Thread* current_thread;

struct Options {
  bool eager = false;     ///< GALVANI_EMULATED_COPIES=early
  bool reversed = false;  ///< GALVANI_EMULATED_ORDER=reversed
};
const Options& options();

/// GALVANI_EMULATED_SUMS=truncated (tensor_sum.h), as it was when the launch began: a test may ask for it in between.
bool truncated_sums();
void look_at_sums();

/// Ends the kernel with an error, from one of its threads.
[[noreturn]] void fault(const std::string& what);

/// All threads of the block that have not ended, or `threads` of them at barrier `id`.
void barrier(int id, int threads = 0);
/// Counts as arrived at barrier `id`, without waiting.
void barrier_arrive(int id, int threads);

/// What the lanes of `mask` do together: each brings `argument`, the last one there runs `together` on all of them
/// (null for lanes outside the mask or ended). `what` tells apart and names the operation.
using Together = void (*)(void* const* lanes, unsigned mask);
void collective(unsigned mask, const char* what, void* argument, Together together);

/// Dynamic shared memory of this block, 1024-byte aligned; poisoned with 0xff when the block starts.
void* dynamic_shared();
/// Addresses of the shared window, as device code computes with them, and back. Faults: outside what the block has.
unsigned shared_address(const void* pointer);
void* shared_pointer(unsigned address, size_t bytes);
/// The same address in block `rank` of the cluster.
void* cluster_pointer(unsigned address, unsigned rank, size_t bytes);
void cluster_barrier();
unsigned cluster_rank();
unsigned cluster_blocks();

// cp.async: groups of copies of one thread. `bytes` from memory, the rest of 16 as zeros.
void async_copy(unsigned to, const void* from, int bytes);
void async_commit();
void async_wait(int pending_groups);

// mbarriers of this block and copies that they count.
void mbarrier_init(unsigned address, int arrivals);
void mbarrier_arrive(unsigned address, unsigned expected_bytes);
void mbarrier_wait(unsigned address, unsigned parity);
/// `copy` moves `bytes`; it runs later.
void mbarrier_copy(unsigned address, unsigned bytes, std::function<void()> copy);

/// wgmma of one warp: `run` gets the 32 lanes' arguments, which it may read until the group is waited for.
void wgmma_issue(void* argument, size_t bytes, Together run);
void wgmma_commit();
void wgmma_wait(int pending_groups);

/// Runs `body` once a thread. Empty: all went well; else what went wrong, of the first block that failed.
struct Launch {
  Index3 grid, block, cluster;
  size_t dynamic_shared = 0;
  std::function<void()> body;
};
std::string run(const Launch& launch);

}  // namespace galvani::emulated
