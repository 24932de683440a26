#pragma once
/// Fibers: stacks that one operating system thread switches between. x86-64 only (CMake refuses others).
#include <cstddef>
#include <vector>

namespace galvani::emulated {

/// Switches to the stack at `to`, leaving this one's pointer in *from.
extern "C" void galvani_emulated_switch(void** from, void* to);

/// A stack with a guard page below it.
class FiberStack {
 public:
  FiberStack();
  ~FiberStack();
  FiberStack(FiberStack&& other) noexcept : memory_(other.memory_) { other.memory_ = nullptr; }
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;
  FiberStack& operator=(FiberStack&&) = delete;

  /// The stack pointer with which a switch begins `entry`, which must never return.
  void* prepare(void (*entry)()) const;

  /// A thread's frames: kernels keep their registers' worth of arrays here, and nothing is recursive.
  static constexpr size_t kBytes = size_t{64} << 10;

 private:
  char* memory_ = nullptr;
};

}  // namespace galvani::emulated
