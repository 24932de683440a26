#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "cli/cli.h"

namespace galvani::cli {
namespace {

std::atomic<bool> g_interrupted{false}, g_leaves{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch only lock-free atomics");

extern "C" void on_interrupt(int) {
  if (g_leaves.load()) _exit(kYes);
  if (g_interrupted.exchange(true)) _exit(kNo);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

CatchInterrupts::CatchInterrupts()
    : interrupt_(std::signal(SIGINT, on_interrupt)), terminate_(std::signal(SIGTERM, on_interrupt)) {}
CatchInterrupts::~CatchInterrupts() {
  std::signal(SIGINT, interrupt_);
  std::signal(SIGTERM, terminate_);
}

bool interrupted() { return g_interrupted.load(); }
void reset_interrupt() { g_interrupted.store(false); }
void interrupt_leaves(bool leaves) { g_leaves.store(leaves); }

}  // namespace galvani::cli
