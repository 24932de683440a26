#include "core/parallel.h"

#include <sched.h>

#include <atomic>
#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace galvani {
namespace {
std::atomic<int> g_threads{0};
}

int physical_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  std::set<std::pair<std::string, std::string>> cores;
  int logical = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    ++logical;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string package, core;
    std::ifstream(topology + "physical_package_id") >> package;
    std::ifstream(topology + "core_id") >> core;
    if (core.empty()) core = "cpu" + std::to_string(cpu);
    cores.emplace(package, core);
  }
  return std::max(1, std::min(logical, static_cast<int>(cores.size())));
}

void set_threads(int count) { g_threads.store(count < 1 ? physical_cores() : count); }

int threads() {
  const int count = g_threads.load(std::memory_order_relaxed);
  if (count > 0) return count;
  set_threads(0);
  return g_threads.load();
}

}  // namespace galvani
