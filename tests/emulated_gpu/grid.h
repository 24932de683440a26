#pragma once
/// Cooperative launches: all blocks at once, each on an operating system thread of its own, and the counters in memory
/// by which they wait for each other.
#include "emulated_gpu/block.h"

namespace galvani::emulated {

/// As run(). No clusters; at most kMostCooperativeThreads in all: each has a stack, of which some KiB become memory.
std::string run_cooperative(const Launch& launch);
constexpr unsigned kMostCooperativeThreads = 160 * 1024;

/// Adds 1, release.
void grid_arrive_add(unsigned* counter);
/// Acquire. A thread that polls again and finds the same value is taken to be in a loop: it waits until the value is
/// another one, or until no thread of any block can go on. If looking once more helps nobody, they wait for each other
/// for ever, which is an error. Faults outside a cooperative launch.
unsigned grid_poll(const unsigned* counter);

}  // namespace galvani::emulated
