// Cooperative launches: one machine a block, each on a thread of its own.
#include "emulated_gpu/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "emulated_gpu/machine.h"

namespace galvani::emulated {
namespace {

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

/// This machine's block has ended, `well` or not.
void leave_grid(Grid& grid, bool well) {
  const std::lock_guard lock(grid.mutex);
  --grid.running;
  if (!well && !grid.deadlock) grid.failed = true;
  if (grid.failed) all_look_again(grid);
  if (grid.running > 0 && grid.idle == grid.running) all_are_idle(grid);
}

}  // namespace

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
