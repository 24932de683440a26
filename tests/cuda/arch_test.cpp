// What a binary may run on a 9.0 device, shown on one: images put together into builds that lack something.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "cuda/fixtures.h"

namespace galvani::cuda {
namespace {

using testing::HasSubstr;

/// A plan as an operation would have it: arms best first, each refusal with its reason.
std::string plan_product(const DeviceCaps& caps, std::string* declined) {
  if (caps.has(Feature::kWgmma)) return "product_sm90a";
  *declined += "product_sm90a: wgmma needs an image for 9.0a, this binary holds " + cuda_images_str(caps.images);
  if (caps.has(Feature::kBf16 | Feature::kCpAsync)) return "product_sm80";
  *declined += "product_sm80: no image with bf16";
  return "";
}

/// Runs the arm and compares with the sums in double.
void expect_product(Rig& rig, const std::string& name) {
  std::vector<uint16_t> host(16 * 16 + 16 * 8);
  std::vector<double> values(host.size());
  for (size_t i = 0; i < host.size(); ++i) {
    const float value = static_cast<float>(static_cast<int>(i * 37 % 31) - 15) / 8.0f;  // exact in bf16
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    host[i] = static_cast<uint16_t>(bits >> 16);
    values[i] = value;
  }
  auto input = DeviceBuffer::allocate(*rig.device, host.size() * 2, "input");
  ASSERT_TRUE(input && rig.stream.to_device(input->data(), host.data(), host.size() * 2));
  ASSERT_TRUE(rig.stream.fill(rig.y.data(), 0xff, 16 * 8 * 4));
  const Kernel& kernel = rig.kernel(name.c_str());
  // The fixtures take bf16 pointers, a type that only CUDA's headers have; the erased form passes them.
  const void *a = input->data(), *b = input->as<uint16_t>() + 16 * 16;
  void* c = rig.y.data();
  void* arguments[] = {&a, &b, &c};
  const LaunchConfig config{.grid = {1}, .block = {static_cast<unsigned>(kernel.entry().threads)}};
  const Status done = detail::launch_erased(rig.stream, kernel, config, *kernel.entry().signature, arguments);
  ASSERT_TRUE(done) << done.error().message;
  const std::vector<float> result = rig.read<float>(16 * 8);
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += values[i * 16 + k] * values[256 + k * 8 + j];
      ASSERT_EQ(static_cast<double>(result[i * 8 + j]), sum) << i << " " << j;
    }
}

TEST(CudaArch, FullBuildRunsTheNewestArm) {
  GALVANI_NEEDS_HOPPER();
  const Build build = full_build();
  Rig rig(build.options());
  std::string declined;
  EXPECT_EQ(plan_product(rig.device->caps(), &declined), "product_sm90a");
  expect_product(rig, "product_sm90a");
  expect_product(rig, "product_sm80");
  EXPECT_EQ(rig.kernel("product_sm80").arch(), "sm_90a");
}

TEST(CudaArch, BuildWithout90aRunsItsSm80ArmsAndDeclinesThe90aArmsByName) {
  GALVANI_NEEDS_HOPPER();
  const Build builds[] = {{{sm90::product_sm80_table()}, "90"}, {{ptx80::product_sm80_table()}, "80-virtual"}};
  for (const Build& build : builds) {
    Rig rig(build.options());
    std::string declined;
    EXPECT_EQ(plan_product(rig.device->caps(), &declined), "product_sm80") << build.archs;
    EXPECT_EQ(declined, std::string("product_sm90a: wgmma needs an image for 9.0a, this binary holds ") + build.archs);
    expect_product(rig, "product_sm80");
    const auto missing = rig.device->kernel("product_sm90a");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(missing.error().message, HasSubstr("product_sm90a"));
    EXPECT_THAT(missing.error().message, HasSubstr(build.archs));
  }
}

TEST(CudaArch, TheBestImageOfSeveralIsTaken) {
  GALVANI_NEEDS_HOPPER();
  const Build build{{ptx80::product_sm80_table(), sm90a::product_sm80_table(), sm90::product_sm80_table()},
                    "80-virtual;90a;90"};
  Rig rig(build.options());
  EXPECT_EQ(rig.kernel("product_sm80").arch(), "sm_90a");
  expect_product(rig, "product_sm80");
}

TEST(CudaArch, Sm120OnlyBuildIsRefusedWhole) {
  GALVANI_NEEDS_HOPPER();
  const Build build{{sm120f::basic_sm75_table()}, "120f"};
  const auto device = CudaDevice::open(0, build.options());
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(device.error().message, HasSubstr("compute capability 9.0"));
  EXPECT_THAT(device.error().message, HasSubstr("120f alone"));
  EXPECT_THAT(device.error().message, HasSubstr("-DGALVANI_CUDA_ARCHS=90a"));
}

TEST(CudaArch, An90aArmCompiledAsPlain90IsRefusedByName) {
  GALVANI_NEEDS_HOPPER();
  const Build build{{sm90::product_sm90a_table()}, "90"};
  Rig rig(build.options());
  const Kernel& kernel = rig.kernel("product_sm90a");
  EXPECT_EQ(kernel.self_test().answer, Answer::kNo);
  void* arguments[] = {nullptr, nullptr, nullptr};
  const Status refused =
      detail::launch_erased(rig.stream, kernel, {.grid = {1}, .block = {128}}, *kernel.entry().signature, arguments);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("product_sm90a needs an object compiled for sm_90a"));
  EXPECT_TRUE(rig.stream.synchronize()) << "nothing was launched";
}

// The same image under another registered architecture: what the driver loaded tells.
TEST(CudaArch, WrongRegistrationIsFoundInWhatTheDriverLoaded) {
  GALVANI_NEEDS_HOPPER();
  KernelObject lying = ptx80::product_sm80_table();
  lying.arch = "sm_90";
  const Build build{{lying}, "90"};
  Rig rig(build.options());
  const SelfTest test = rig.kernel("product_sm80").self_test();
  EXPECT_EQ(test.answer, Answer::kNo);
  EXPECT_THAT(test.reason, HasSubstr("what the driver loaded is binary 90, PTX 80"));
}

TEST(CudaArch, ABodyGuardedAwayWritesNothingAndIsCaughtBeforeItRuns) {
  GALVANI_NEEDS_HOPPER();
  const Build build{{ptx80::guarded_sm90_table()}, "80-virtual"};
  CudaOptions options = build.options();
  options.poison = true;
  Rig rig(options);
  float* y = rig.y.as<float>();
  const LaunchConfig config{.grid = {1}, .block = {32}, .outputs = {{{y, 32 * 4}}}};
  // Under its right name, or with an honest need, it is refused before it runs.
  for (const char* name : {"guarded_sm90", "honest_sm80"}) {
    const Status refused = launch(rig.stream, rig.kernel(name), config, y);
    ASSERT_FALSE(refused) << name;
    EXPECT_THAT(refused.error().message, HasSubstr(name));
    EXPECT_THAT(refused.error().message, HasSubstr("compute_80")) << name;
  }
  for (const float value : rig.read<float>(32)) EXPECT_EQ(value, 0.0f) << "not even poisoned";
  // What it would have done: no error from launch or synchronisation, and nothing written. Poison shows it.
  ASSERT_TRUE(launch(rig.stream, rig.kernel("hidden_sm80"), config, y));
  ASSERT_TRUE(rig.stream.synchronize());
  for (const float value : rig.read<float>(32)) EXPECT_TRUE(std::isnan(value));

  // The same source compiled for 9.0a works.
  const Build right{{sm90a::guarded_sm90_table()}, "90a"};
  Rig good(right.options());
  float* out = good.y.as<float>();
  ASSERT_TRUE(launch(good.stream, good.kernel("guarded_sm90"), {.grid = {1}, .block = {32}}, out));
  for (const float value : good.read<float>(32)) EXPECT_EQ(value, 1.0f);
}

}  // namespace
}  // namespace galvani::cuda
