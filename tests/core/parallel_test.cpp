#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace galvani {
namespace {

TEST(Parallel, CoversEveryIndexOnceInWholeGrains) {
  for (int count : {1, 2, 3}) {
    set_threads(count);
    for (int64_t n : {0, 1, 7, 64, 65, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      parallel_for(n, 8, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_EQ(begin % 8, 0);
        EXPECT_LT(thread, count);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (auto& hits : seen) EXPECT_EQ(hits.load(), 1);
    }
  }
  set_threads(0);
  EXPECT_GE(physical_cores(), 1);
}

}  // namespace
}  // namespace galvani
