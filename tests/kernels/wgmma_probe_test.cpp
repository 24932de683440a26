/// The facts that the wgmma kernels rest on, integer-exact: where A's registers, B's swizzled rows and D's registers
/// lie, and how the descriptor moves along k. A test that cannot see a wrong swizzle would prove nothing, so three
/// mutants must fail.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/dtype.h"
#include "cuda/launch.h"
#include "cuda/memory.h"
#include "kernel_testing.h"

namespace galvani::cuda::sm90a {
KernelObject wgmma_probe_sm90a_table();
}

namespace galvani::kernels {
namespace {

using cuda::CudaDevice;
using cuda::DeviceBuffer;

std::vector<uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float v : values) bits.push_back(f32_to_bf16(v));
  return bits;
}

class CudaWgmmaProbe : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const auto state = cuda::driver_state(); state.kind != cuda::DriverState::Kind::kReady)
      GTEST_SKIP() << state.message;
    static const cuda::KernelObject objects[] = {cuda::sm90a::wgmma_probe_sm90a_table()};
    cuda::CudaOptions options;
    options.kernels = objects;
    options.images = *parse_cuda_images("90a");
    auto opened = CudaDevice::open(0, options);
    if (!opened) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
  }

  /// Whether D is exact for these operands.
  bool exact(const std::vector<float>& a, const std::vector<float>& b, int n, int k, int mutant) {
    auto stream = cuda::Stream::create(*device_).value();
    const auto ha = bf16_of(a), hb = bf16_of(b);
    auto da = DeviceBuffer::allocate(*device_, ha.size() * 2, "a").value();
    auto db = DeviceBuffer::allocate(*device_, hb.size() * 2, "b").value();
    auto dd = DeviceBuffer::allocate(*device_, static_cast<size_t>(64 * n) * 4, "d").value();
    EXPECT_TRUE(stream.to_device(da.data(), ha.data(), ha.size() * 2));
    EXPECT_TRUE(stream.to_device(db.data(), hb.data(), hb.size() * 2));
    EXPECT_TRUE(stream.fill(dd.data(), 0xff, dd.size()));
    const auto kernel = device_->kernel(fmt::format("wgmma_probe_n{}_sm90a", n));
    EXPECT_TRUE(kernel);
    // The operands' element type is the kernel's own bf16, which host code cannot name: pointers go as what they are.
    const cuda::LaunchConfig config{.grid = {1}, .block = {128}, .dynamic_smem = n * k * 2};
    void *pa = da.data(), *pb = db.data(), *pd = dd.data();
    void* arguments[] = {&pa, &pb, &pd, &k, &mutant, nullptr};
    const Status status =
        cuda::detail::launch_erased(stream, **kernel, config, *(*kernel)->entry().signature, arguments);
    EXPECT_TRUE(status) << status.error().message;
    std::vector<float> d(static_cast<size_t>(64 * n));
    EXPECT_TRUE(stream.to_host(d.data(), dd.data(), dd.size()));
    EXPECT_TRUE(stream.synchronize());
    for (int r = 0; r < 64; ++r)
      for (int c = 0; c < n; ++c) {
        float want = 0;
        for (int i = 0; i < k; ++i) want += a[static_cast<size_t>(r * k + i)] * b[static_cast<size_t>(c * k + i)];
        if (d[static_cast<size_t>(r * n + c)] != want) return false;
      }
    return true;
  }

  std::shared_ptr<CudaDevice> device_;
};

TEST_P(CudaWgmmaProbe, IntegersAndPositionsAreExactAndMutantsFail) {
  const int n = GetParam(), k = 192;  // three swizzled tiles, twelve k16 steps
  std::mt19937_64 random(fresh_seed());
  std::vector<float> a(static_cast<size_t>(64 * k)), b(static_cast<size_t>(n * k));
  for (float& v : a) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
  for (float& v : b) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
  EXPECT_TRUE(exact(a, b, n, k, 0));
  for (int mutant = 1; mutant <= 3; ++mutant) EXPECT_FALSE(exact(a, b, n, k, mutant)) << "mutant " << mutant;
  // Position-coded: row r of A picks column 3·r of B, which holds its own place.
  std::fill(a.begin(), a.end(), 0.0f);
  for (int r = 0; r < 64; ++r) a[static_cast<size_t>(r * k + 3 * r)] = 1;
  for (int c = 0; c < n; ++c)
    for (int i = 0; i < k; ++i) b[static_cast<size_t>(c * k + i)] = static_cast<float>((c * 7 + i) % 251);
  EXPECT_TRUE(exact(a, b, n, k, 0));
}

INSTANTIATE_TEST_SUITE_P(Widths, CudaWgmmaProbe, ::testing::Values(8, 16, 32, 64, 256));

}  // namespace
}  // namespace galvani::kernels
