// Every slice once, in whichever thread; jobs overlap; errors and unfinished teams.
#include "core/task_team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <numeric>
#include <set>

namespace galvani {
namespace {

TEST(TaskTeam, RunsEverySliceOnce) {
  for (const int threads : {1, 2, 5}) {
    TaskTeam team(threads);
    for (const int64_t count : {0, 1, 7, 1000}) {
      std::vector<int> runs(static_cast<size_t>(count), 0);
      const auto job = team.start(count, [&](int64_t i) -> Status {
        ++runs[static_cast<size_t>(i)];
        return {};
      });
      ASSERT_TRUE(team.wait(*job).has_value());
      EXPECT_TRUE(TaskTeam::done(*job));
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(count), 1)) << threads << " threads";
    }
  }
}

TEST(TaskTeam, OneThreadWorksOnlyWhereItIsWaitedFor) {
  TaskTeam team(1);
  std::set<std::thread::id> ids;
  const auto job = team.start(3, [&](int64_t) -> Status {
    ids.insert(std::this_thread::get_id());
    return {};
  });
  EXPECT_FALSE(TaskTeam::done(*job));
  ASSERT_TRUE(team.wait(*job).has_value());
  EXPECT_EQ(ids, std::set{std::this_thread::get_id()});
}

TEST(TaskTeam, WorksWhileItsCallerDoesNot) {
  TaskTeam team(2);
  std::atomic<int> runs{0};
  const auto job = team.start(4, [&](int64_t) -> Status { return ++runs, Status{}; });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!TaskTeam::done(*job) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(runs, 4);
}

TEST(TaskTeam, JobsOverlapAndEndInAnyOrder) {
  for (const int threads : {1, 3}) {
    TaskTeam team(threads);
    std::vector<std::vector<int64_t>> values(20, std::vector<int64_t>(50));
    std::vector<std::shared_ptr<TaskTeam::Job>> jobs;
    for (auto& row : values)
      jobs.push_back(team.start(50, [&row](int64_t i) -> Status {
        row[static_cast<size_t>(i)] = i;
        return {};
      }));
    for (size_t i = jobs.size(); i-- > 0;) {
      ASSERT_TRUE(team.wait(*jobs[i]).has_value());
      EXPECT_EQ(std::accumulate(values[i].begin(), values[i].end(), int64_t{0}), 49 * 25);
    }
  }
}

TEST(TaskTeam, SleepsAndWakes) {
  TaskTeam team(3);
  std::atomic<int> runs{0};
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than its threads look for work
    const auto job = team.start(9, [&](int64_t) -> Status {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      return ++runs, Status{};
    });
    ASSERT_TRUE(team.wait(*job).has_value());
  }
  EXPECT_EQ(runs, 45);
}

TEST(TaskTeam, TheFirstErrorIsKeptAndTheRestStillRuns) {
  TaskTeam team(3);
  std::atomic<int> runs{0};
  const auto job = team.start(30, [&](int64_t i) -> Status {
    ++runs;
    if (i == 11) return fail(ErrorCode::kCorrupt, "slice {}", i);
    return {};
  });
  const Status status = team.wait(*job);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "slice 11");
  EXPECT_EQ(runs, 30);
  const auto good = team.start(3, [](int64_t) -> Status { return {}; });
  EXPECT_TRUE(team.wait(*good).has_value());
}

TEST(TaskTeam, WhatASliceThrowsIsThrownWhereItIsWaitedFor) {
  for (const int threads : {1, 3}) {
    TaskTeam team(threads);
    const auto job = team.start(8, [](int64_t i) -> Status {
      if (i == 5) throw std::bad_alloc();
      return {};
    });
    EXPECT_THROW((void)team.wait(*job), std::bad_alloc);
  }
}

TEST(TaskTeam, EndsWithWorkLeft) {
  std::atomic<int> runs{0};
  {
    TaskTeam team(2);
    for (int i = 0; i < 50; ++i)
      (void)team.start(100, [&](int64_t) -> Status {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        return ++runs, Status{};
      });
  }
  const int at_the_end = runs;
  EXPECT_LT(at_the_end, 5000);
  EXPECT_EQ(runs, at_the_end) << "nothing runs after it";
}

}  // namespace
}  // namespace galvani
