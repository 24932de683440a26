// galvani doctor and --device on whatever machine this is; a CI machine has no GPU, and that is an answer too.
#include "cli/program.h"
#include "cuda/device.h"

namespace galvani::cli {
namespace {

using Kind = cuda::DriverState::Kind;

TEST(Doctor, SaysWhatIsHereAndEndsInOneVerdict) {
  const Outcome outcome = run({"doctor", "--quick"});
  for (const char* line : {"binary   galvani ", "CPU      ", "driver   CUDA "})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << outcome.out;
  const size_t last = outcome.out.rfind('\n', outcome.out.size() - 2);
  const std::string verdict = outcome.out.substr(last + 1);
  switch (cuda::driver_state().kind) {
    case Kind::kNoCudaInBuild:
      EXPECT_EQ(outcome.code, 0) << outcome.out;
      EXPECT_EQ(verdict, "YES: nothing is wrong with the CPU; this build holds no CUDA code\n");
      break;
    case Kind::kReady:
      EXPECT_NE(outcome.out.find("GPU 0    "), std::string::npos) << outcome.out;
      EXPECT_NE(outcome.out.find("kernels would run here"), std::string::npos) << outcome.out;
      EXPECT_EQ(verdict.substr(0, outcome.code == 0   ? 3
                                  : outcome.code == 1 ? 2
                                                      : 5),
                outcome.code == 0   ? "YES"
                : outcome.code == 1 ? "NO"
                                    : "COULD");
      break;
    default:
      EXPECT_EQ(outcome.code, 2) << outcome.out;
      EXPECT_NE(outcome.out.find(cuda::driver_state().message), std::string::npos) << outcome.out;
      EXPECT_EQ(verdict, "COULD NOT TELL: 1 question(s) open\n");
  }
}

TEST(Doctor, TheCpuAloneCanAlwaysBeAsked) {
  const Outcome outcome = run({"doctor", "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("YES: nothing is wrong with the CPU"), std::string::npos) << outcome.out;
  // It says how little that is.
  EXPECT_NE(outcome.out.find("the other CPU kernels are not compared here"), std::string::npos) << outcome.out;
}

TEST(Doctor, InsistingOnAGpuThatIsNotThereIsANo) {
  const Outcome outcome = run({"doctor", "--device", "cuda:1000"});
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  EXPECT_NE(outcome.out.find("wrong: "), std::string::npos) << outcome.out;
}

TEST(Doctor, BadWordsAreUsageErrors) {
  expect_error(2, {"doctor", "--device", "gpu"}, {"--device gpu", "auto, cpu, cuda, cuda:N"});
  expect_error(2, {"doctor", "--device", "cpu"}, {"GALVANI_TRACE=everything", "plan"},
               {.environment = {{"GALVANI_TRACE", "everything"}}});
  expect_error(2, {"doctor", "--device", "cpu"}, {"GALVANI_POISON=yes", "0 and 1"},
               {.environment = {{"GALVANI_POISON", "yes"}}});
}

TEST(DeviceFlag, AnInsistedGpuThatIsNotThereIsAnErrorInWords) {
  const Scratch scratch;
  const Words generate = {"generate", "-m", text_model(scratch).string(), "-p", "x", "-n", "1", "--device"};
  Words words = generate;
  words.push_back("cuda:1000");
  const auto kind = cuda::driver_state().kind;
  expect_error(1, words,
               {"--device cuda:1000: ", kind == Kind::kReady ? "this machine has" : cuda::driver_state().message});
  words.back() = "tpu";
  expect_error(2, words, {"--device tpu", "auto, cpu, cuda, cuda:N"});
}

}  // namespace
}  // namespace galvani::cli
