#pragma once
/// The one compute thread pool: OpenMP's. Work is split statically, so that a result never depends on timing.
#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace galvani {

/// Physical cores this process may run on (at least 1).
int physical_cores();
/// Threads that parallel_for uses from now on; `count` < 1 means physical_cores(). Call from one thread, before work.
void set_threads(int count);
int threads();

/// Runs body(begin, end, thread) on each thread's even share of [0, n), in steps of `grain`; thread < threads().
/// Nested calls run serially.
template <typename Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  const int64_t chunks = (n + grain - 1) / grain;
#ifdef _OPENMP
  const int team = static_cast<int>(std::min<int64_t>(threads(), chunks));
  if (team > 1 && !omp_in_parallel()) {
#pragma omp parallel num_threads(team)
    {
      const int64_t t = omp_get_thread_num(), count = omp_get_num_threads();
      const int64_t begin = chunks * t / count * grain, end = std::min(n, chunks * (t + 1) / count * grain);
      if (begin < end) body(begin, end, static_cast<int>(t));
    }
    return;
  }
#endif
  (void)chunks;
  body(int64_t{0}, n, 0);
}

}  // namespace galvani
