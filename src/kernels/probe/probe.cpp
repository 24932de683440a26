#include "kernels/probe/probe.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "cuda/blas.h"
#include "cuda/launch.h"

namespace galvani::kernels {
namespace {

using cuda::Event;

// All sign bits, all mantissa bits, and an exponent of 0.5 to 1 (bf16: 2^-1; f16: 2^-1), two values a word.
constexpr uint32_t kBf16Mask = 0x807f807f, kBf16Set = 0x3f003f00;
constexpr uint32_t kF16Mask = 0x83ff83ff, kF16Set = 0x38003800;

// Matches kReadThreads of read_sm70.cuh, as the kernel's registration says too.
constexpr unsigned kThreads = 512;

unsigned read_blocks(const DeviceCaps& caps) {
  return static_cast<unsigned>(std::max(1, caps.sms) *
                               std::max(1, caps.max_threads_per_sm / static_cast<int>(kThreads)));
}

Status sweep(cuda::Stream& stream, const void* data, int64_t bytes, uint32_t* sums, unsigned blocks) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("read_sweep_sm70"));
  const int64_t vectors = bytes / 16;
  // uint4 is a type of CUDA's headers; the pointers are what is passed.
  void* arguments[] = {&data, &sums, const_cast<int64_t*>(&vectors)};
  const cuda::LaunchConfig config{
      .grid = {blocks}, .block = {kThreads}, .outputs = {{{sums, blocks * sizeof(uint32_t)}}}};
  return cuda::detail::launch_erased(stream, *kernel, config, *kernel->entry().signature, arguments);
}

/// Milliseconds of `body` by events around it, one a repetition.
template <typename Body>
Result<std::vector<double>> time_repetitions(cuda::Stream& stream, int repetitions, const Body& body) {
  GALVANI_TRY(Event start, Event::create(stream.device(), true));
  GALVANI_TRY(Event end, Event::create(stream.device(), true));
  std::vector<double> times;
  for (int r = 0; r < repetitions; ++r) {
    GALVANI_TRY_VOID(stream.record(start));
    GALVANI_TRY_VOID(body(r));
    GALVANI_TRY_VOID(stream.record(end));
    GALVANI_TRY_VOID(end.synchronize());
    GALVANI_TRY(const float ms, end.milliseconds_since(start));
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

uint32_t random_word(uint64_t i, uint32_t seed) {
  uint32_t h = static_cast<uint32_t>(i) * 0x9e3779b9u + seed + static_cast<uint32_t>(i >> 32);
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}

Status fill_random(cuda::Stream& stream, void* data, int64_t bytes, uint32_t seed, uint32_t mask, uint32_t set) {
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("random_fill_sm70"));
  const long long words = bytes / 4;
  if (words == 0) return {};
  const auto blocks = static_cast<unsigned>(std::min<long long>((words + 255) / 256, 8192));
  const cuda::LaunchConfig config{
      .grid = {blocks}, .block = {256}, .outputs = {{{data, static_cast<size_t>(words) * 4}}}};
  return cuda::launch(stream, *kernel, config, static_cast<unsigned*>(data), words, seed, mask, set);
}

Result<uint32_t> read_sum(cuda::Stream& stream, const void* data, int64_t bytes) {
  const unsigned blocks = read_blocks(stream.device().caps());
  GALVANI_TRY(const auto sums, cuda::DeviceBuffer::allocate(stream.device(), blocks * sizeof(uint32_t), "read sums"));
  GALVANI_TRY_VOID(sweep(stream, data, bytes, sums.as<uint32_t>(), blocks));
  std::vector<uint32_t> host(blocks);
  GALVANI_TRY_VOID(stream.to_host(host.data(), sums.data(), sums.size()));
  GALVANI_TRY_VOID(stream.synchronize());
  uint32_t total = 0;
  for (const uint32_t sum : host) total += sum;
  return total;
}

Result<ReadCeiling> measure_read_ceiling(cuda::CudaDevice& device, int64_t bytes) {
  GALVANI_TRY(const auto memory, device.memory());
  bytes = std::min(bytes, memory.free_bytes / 4) / 16 * 16;
  GALVANI_TRY(auto stream, cuda::Stream::create(device));
  GALVANI_TRY(const auto data, cuda::DeviceBuffer::allocate(device, static_cast<size_t>(bytes), "read ceiling"));
  GALVANI_TRY_VOID(fill_random(stream, data.data(), bytes, 1));
  const unsigned blocks = read_blocks(device.caps());
  GALVANI_TRY(const auto sums, cuda::DeviceBuffer::allocate(device, blocks * sizeof(uint32_t), "read sums"));
  constexpr int kWarmups = 2, kRepetitions = 8;
  for (int i = 0; i < kWarmups; ++i) GALVANI_TRY_VOID(sweep(stream, data.data(), bytes, sums.as<uint32_t>(), blocks));
  GALVANI_TRY(const std::vector<double> times, time_repetitions(stream, kRepetitions, [&](int) {
                return sweep(stream, data.data(), bytes, sums.as<uint32_t>(), blocks);
              }));
  return ReadCeiling{static_cast<double>(bytes) / (times.front() * 1e6), bytes};
}

Result<MatmulCeiling> measure_matmul_ceiling(cuda::CudaDevice& device, DType type, int64_t size) {
  GALVANI_TRY(auto stream, cuda::Stream::create(device));
  GALVANI_TRY(const auto blas, cuda::Blas::create(device));
  GALVANI_TRY(const auto workspace,
              cuda::DeviceBuffer::allocate(device, cuda::Blas::kWorkspaceBytes, "cuBLASLt workspace"));
  const int64_t bytes = size * size * 2;
  cuda::DeviceBuffer matrices[3];
  for (uint32_t i = 0; i < 3; ++i) {
    GALVANI_TRY(matrices[i], cuda::DeviceBuffer::allocate(device, static_cast<size_t>(bytes), "matmul ceiling"));
    const bool bf16 = type == DType::kBF16;
    GALVANI_TRY_VOID(
        fill_random(stream, matrices[i].data(), bytes, i + 1, bf16 ? kBf16Mask : kF16Mask, bf16 ? kBf16Set : kF16Set));
  }
  const cuda::DenseProduct product{.m = size,
                                   .n = size,
                                   .k = size,
                                   .x = matrices[0].data(),
                                   .x_stride = size,
                                   .w = matrices[1].data(),
                                   .w_stride = size,
                                   .y = matrices[2].data(),
                                   .y_stride = size,
                                   .in = type,
                                   .out = type};
  const auto multiply = [&](int) { return blas->multiply(stream, product, workspace.data()); };
  constexpr int kWarmups = 3, kRepetitions = 12;
  for (int i = 0; i < kWarmups; ++i) GALVANI_TRY_VOID(multiply(i));
  GALVANI_TRY(const std::vector<double> times, time_repetitions(stream, kRepetitions, multiply));
  const double operations = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return MatmulCeiling{operations / (times[times.size() / 2] * 1e9), size};
}

}  // namespace galvani::kernels
