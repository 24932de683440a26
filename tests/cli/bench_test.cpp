// galvani bench --kernels where there is no GPU, and its usage errors everywhere.
#include "cli/program.h"
#include "cuda/device.h"

namespace galvani::cli {
namespace {

TEST(Bench, WithoutAGpuItSaysWhyItCannotAnswer) {
  const cuda::DriverState state = cuda::driver_state();
  if (state.kind == cuda::DriverState::Kind::kReady) GTEST_SKIP() << "there is a GPU here";
  const Outcome outcome = run({"bench", "--kernels"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  if (state.kind == cuda::DriverState::Kind::kNoCudaInBuild) {
    for (const char* words : {"built without its CUDA backend", "cmake --preset cuda-release"})
      EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("--device"), std::string::npos) << "bench has no such flag: " << outcome.err;
    return;
  }
  EXPECT_NE(outcome.err.find("there is no GPU to time: " + state.message), std::string::npos) << outcome.err;
  expect_error(1, {"bench", "--kernels", "--json", "/nowhere/x.json"}, {"/nowhere/x.json"});
}

TEST(Bench, BadCasesAreUsageErrorsThatSayWhatIsAllowed) {
  const std::pair<const char*, const char*> bad[] = {{"4096", "write it as NxK:BITSgGROUP:TOKENS"},
                                                     {"4096x4096:7g64:1", "bits are 2, 3, 4, 5, 6 or 8"},
                                                     {"4096x4100:4g64:1", "divide K"},
                                                     {"4096x4096:4g64:0", "token counts"},
                                                     {"4096x4096:4g64:1;2", "separated by commas"},
                                                     {"99999999999x64:4g64:1", "at most 2^24"}};
  for (const auto& [text, word] : bad) {
    const Outcome outcome = run({"bench", "--kernels", "--case", text});
    EXPECT_EQ(outcome.code, 2) << text;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << text << ": " << outcome.err;
  }
  EXPECT_NE(run({"bench", "--kernels", "--arm", "fast"})
                .err.find("few-bulk, few-async, few-plain, few-stream, stream, wgmma, expand, mma"),
            std::string::npos);
  EXPECT_EQ(run({"bench", "--kernels", "--act", "f32"}).code, 2);
  EXPECT_EQ(run({"bench"}).code, 2);
}

}  // namespace
}  // namespace galvani::cli
