#pragma once
/// Fibers: stacks that one operating system thread switches between. x86-64 only (CMake refuses others).
#include <cstddef>

namespace galvani::emulated {

/// Switches to the stack at `to`, leaving this one's pointer in *from.
extern "C" void galvani_emulated_switch(void** from, void* to);

/// The stacks of one operating system thread's fibers, side by side in one mapping: a page between any two that must
/// not be touched would be two mappings a stack, of which a process may have 65,530, and a cooperative launch on 132
/// multiprocessors has 67,584 threads. So each ends in a mark that intact() looks for, and the lowest in a page that
/// must not be touched.
class FiberStacks {
 public:
  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  /// Nobody may be on a stack.
  void make_room(size_t stacks);
  /// The stack pointer with which a switch to stack `i` begins `entry`, which must never return.
  void* prepare(size_t i, void (*entry)()) const;
  /// Whether stack `i` has not overflowed. A fiber that has may have spoilt its neighbour's frames, which nobody has
  /// used meanwhile if this is asked whenever a fiber is left.
  bool intact(size_t i) const;

  /// A thread's frames: kernels keep their registers' worth of arrays here, and nothing is recursive.
  static constexpr size_t kBytes = size_t{64} << 10;

 private:
  char* memory_ = nullptr;
  size_t stacks_ = 0;
};

}  // namespace galvani::emulated
