// What a machine without a GPU, or a build without CUDA, is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/choose_device.h"
#include "cuda/device.h"

namespace galvani::cuda {
namespace {

TEST(CudaDriver, SaysWhyThereIsNoGpu) {
  const DriverState state = driver_state();
  if (state.kind == DriverState::Kind::kReady) {
    EXPECT_GT(state.devices, 0);
    EXPECT_EQ(state.message, "");
    EXPECT_THAT(CudaDevice::open(state.devices).error().message, testing::HasSubstr("was asked for"));
    return;
  }
  EXPECT_EQ(state.devices, 0);
  EXPECT_THAT(state.message, testing::HasSubstr("--device cpu"));
  const auto device = CudaDevice::open(0);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(device.error().message, state.message);
}

TEST(CudaDeviceFlag, Words) {
  using Kind = DeviceRequest::Kind;
  EXPECT_EQ(*parse_device("auto"), (DeviceRequest{Kind::kAuto, 0}));
  EXPECT_EQ(*parse_device("cpu"), (DeviceRequest{Kind::kCpu, 0}));
  EXPECT_EQ(*parse_device("cuda"), (DeviceRequest{Kind::kCuda, 0}));
  EXPECT_EQ(*parse_device("cuda:7"), (DeviceRequest{Kind::kCuda, 7}));
  for (const char* word : {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda0", "cuda:99999999999"}) {
    const auto request = parse_device(word);
    ASSERT_FALSE(request) << word;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(request.error().message, testing::HasSubstr("allowed: auto, cpu, cuda, cuda:N"));
  }
}

TEST(CudaDeviceFlag, AutoFallsBackWithItsReasonAndCudaInsists) {
  EXPECT_FALSE(choose_device({DeviceRequest::Kind::kCpu, 0})->gpu);
  EXPECT_EQ(choose_device({DeviceRequest::Kind::kCpu, 0})->note, "");
  const auto automatic = choose_device({});
  ASSERT_TRUE(automatic);
  const auto insisted = choose_device({DeviceRequest::Kind::kCuda, 0});
  EXPECT_EQ(insisted.has_value(), automatic->gpu);
  if (!automatic->gpu) {
    EXPECT_GT(automatic->note.size(), 20u);
    EXPECT_EQ(insisted.error().message, "--device cuda: " + automatic->note);
  }
  const auto far = choose_device({DeviceRequest::Kind::kCuda, 1000});
  ASSERT_FALSE(far);
  EXPECT_TRUE(far.error().message.starts_with("--device cuda:1000: ")) << far.error().message;
  EXPECT_EQ(far.error().code, automatic->gpu ? ErrorCode::kOutOfRange : ErrorCode::kUnsupported);
}

TEST(CudaBuild, ArchitecturesMatchTheKernelTables) {
  const CudaImageList images = builtin_images();
  EXPECT_EQ(images.empty(), std::string(builtin_toolkit()) == "none");
  for (const KernelObject& object : builtin_kernels()) {
    const auto image = parse_cuda_image(object.arch);
    ASSERT_TRUE(image) << object.file;
    EXPECT_NE(std::find(images.begin(), images.end(), *image), images.end()) << object.file << " " << object.arch;
    for (const KernelEntry& entry : object.entries) {
      // What this build compiled must pass its own guard on some device.
      DeviceCaps caps;
      caps.cc = image->cc;
      const SelfTest test = judge_registration(entry, object.arch, caps);
      EXPECT_EQ(test.answer, Answer::kYes) << test.reason;
    }
  }
}

}  // namespace
}  // namespace galvani::cuda
