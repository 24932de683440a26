#include "emulated_gpu/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace galvani::emulated {
namespace {

size_t guard_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
constexpr uint64_t kMark = 0x5ca1ab1e0ddba11ull;
constexpr size_t kMarks = 32;  // that many of it

}  // namespace

// System V ABI: a called function keeps rbx, rbp and r12…r15; everything else is the caller's to save.
asm(R"(
.text
.globl galvani_emulated_switch
.type galvani_emulated_switch, @function
galvani_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size galvani_emulated_switch, . - galvani_emulated_switch
)");

void FiberStacks::make_room(size_t stacks) {
  if (stacks <= stacks_) return;
  if (memory_ != nullptr) munmap(memory_, guard_bytes() + stacks_ * kBytes);
  stacks_ = stacks;
  void* memory = mmap(nullptr, guard_bytes() + stacks_ * kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, guard_bytes(), PROT_NONE) != 0) {
    std::fputs("the emulated GPU found no memory for the stacks of its threads\n", stderr);
    std::abort();
  }
  memory_ = static_cast<char*>(memory);
}

FiberStacks::~FiberStacks() {
  if (memory_ != nullptr) munmap(memory_, guard_bytes() + stacks_ * kBytes);
}

void* FiberStacks::prepare(size_t i, void (*entry)()) const {
  char* const stack = memory_ + guard_bytes() + i * kBytes;
  std::fill_n(reinterpret_cast<uint64_t*>(stack), kMarks, kMark);
  auto* top = reinterpret_cast<uint64_t*>(stack + kBytes);
  // From the top: a return address of 0 that ends stack traces, the entry, six registers. At a function's first
  // instruction the stack pointer is 8 below a multiple of 16.
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(entry);
  for (int r = 0; r < 6; ++r) *--top = 0;
  return top;
}

bool FiberStacks::intact(size_t i) const {
  const auto* marks = reinterpret_cast<const uint64_t*>(memory_ + guard_bytes() + i * kBytes);
  return marks[0] == kMark && marks[kMarks - 1] == kMark;
}

}  // namespace galvani::emulated
