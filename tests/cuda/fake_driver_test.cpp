// What a CUDA build says on machines whose driver cannot be used, and that it works on their CPU. The driver is
// fake_driver.cpp, which the program finds before any other.
#include <gmock/gmock.h>

#include "cli/program.h"

namespace galvani::cli {
namespace {

using testing::HasSubstr;

struct Driver {
  const char* name;
  const char *version, *init;  ///< what fake_driver.cpp answers
  const char *driver, *why;    ///< what is said of it
  bool warns;                  ///< when --device auto takes the CPU: a driver is there, and of no use
};

class CudaFakeDriver : public testing::TestWithParam<Driver> {
 protected:
  void SetUp() override {
    // Test programs may have been taken elsewhere, without what they were built beside.
    for (const std::string& path : {program_path(), std::string(GALVANI_FAKE_DRIVER "/libcuda.so.1")})
      if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
  }
  static Outcome run_there(const Words& words) {
    const Driver& driver = GetParam();
    return run(words, {.environment = {{"LD_LIBRARY_PATH", GALVANI_FAKE_DRIVER},
                                       {"GALVANI_FAKE_CUDA_VERSION", driver.version},
                                       {"GALVANI_FAKE_CUDA_INIT", driver.init}}});
  }
  static Words generate(const char* device) {
    return {"generate", "--synthetic", (model_data("hf/llama") / "config.json").string(),
            "--bits",   "8",           "-p",
            "hello",    "-n",          "3",
            "--temp",   "0",           "--ignore-eos",
            "--device", device};
  }
};

TEST_P(CudaFakeDriver, IsNamedAndTheCpuStillWorks) {
  const Driver& driver = GetParam();
  const Outcome doctor = run_there({"doctor", "--quick"});
  EXPECT_EQ(doctor.code, 2) << doctor.out << doctor.err;
  EXPECT_THAT(doctor.out, HasSubstr(driver.driver));
  EXPECT_THAT(doctor.out, HasSubstr(driver.why));
  EXPECT_THAT(doctor.out, HasSubstr("COULD NOT TELL"));

  const Outcome insisted = run_there(generate("cuda"));
  EXPECT_EQ(insisted.code, 1) << insisted.err;
  EXPECT_THAT(insisted.err, HasSubstr(driver.why));
  EXPECT_THAT(insisted.err, HasSubstr("--device cpu"));
  EXPECT_EQ(insisted.out, "");

  const Outcome automatic = run_there(generate("auto")), cpu = run_there(generate("cpu"));
  EXPECT_EQ(automatic.code, 0) << automatic.err;
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_NE(automatic.out, "");
  EXPECT_EQ(automatic.out, cpu.out);
  EXPECT_EQ(automatic.err.find(driver.why) != std::string::npos, driver.warns) << automatic.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaFakeDriver,
    testing::Values(Driver{"TooOld", "11040", "0", "driver   CUDA 11.4,",
                           "the NVIDIA driver here brings CUDA 11.4, this binary was built with CUDA 1", true},
                    Driver{"WithoutAGpu", "99000", "100", "driver   CUDA 99.0,", "the NVIDIA driver found no GPU",
                           false},
                    Driver{"ThatDoesNotStart", "99000", "999", "driver   CUDA 99.0,", "CUDA did not start: ", true}),
    [](const auto& driver) { return std::string(driver.param.name); });

}  // namespace
}  // namespace galvani::cli
