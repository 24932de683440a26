#pragma once
/// What the kernel benches share: one device, random operands in as many copies as exceed the L2, and timing by graph
/// replays (protocol: kernel_bench.h). Not part of the bench layer's interface.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "bench/kernel_bench.h"
#include "core/dtype.h"
#include "core/error.h"
#include "cuda/blas.h"
#include "cuda/launch.h"
#include "cuda/memory.h"

namespace galvani::bench {

using cuda::CudaDevice;
using cuda::DeviceBuffer;
using cuda::Stream;
using kernels::A16Format;
using kernels::A16Scale;

/// Median, lowest and highest of the samples.
inline void spread(Timing& timing) {
  std::vector<double> sorted = timing.samples;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty()) timing.median = sorted[sorted.size() / 2], timing.low = sorted[0], timing.high = sorted.back();
}

class KernelSession {
  static constexpr int64_t kMostLaunches = 1500;
  static constexpr int kUncounted = 2;  // replays
  static constexpr double kGraphMicroseconds = 3000;
  static constexpr long long kClockNanoseconds = 20000;

 public:
  static Result<KernelSession> open(const KernelBenchOptions& options) {
    KernelSession s;
    s.options_ = options;
    GALVANI_TRY(s.device_, CudaDevice::open(options.device));
    GALVANI_TRY(Stream stream, Stream::create(*s.device_));
    s.stream_ = std::make_unique<Stream>(std::move(stream));
    GALVANI_TRY(s.scratch_, DeviceBuffer::allocate(*s.device_, 256, "bench"));
    const auto replays = static_cast<size_t>(std::max(1, options.replays));
    GALVANI_TRY(s.clocks_, DeviceBuffer::allocate(*s.device_, replays * sizeof(ClockSpan), "bench clocks"));
    GALVANI_TRY(s.sm_clock_, s.device_->kernel("sm_clock_sm70"));
    GALVANI_TRY(s.blas_, cuda::Blas::create(*s.device_));
    GALVANI_TRY(s.blas_workspace_, DeviceBuffer::allocate(*s.device_, cuda::Blas::kWorkspaceBytes, "cublas workspace"));
    return s;
  }

  CudaDevice& device() { return *device_; }

  /// launch(copy) of the given number of copies in turn, in one graph; long enough that starting it weighs nothing.
  template <typename Launch>
  Result<Timing> time(int64_t copies, const Launch& launch) {
    GALVANI_TRY_VOID(launch(0));  // loads the kernel, before a capture
    GALVANI_TRY_VOID(stream_->synchronize());
    const int64_t count = std::max<int64_t>(options_.launches, copies);
    GALVANI_TRY(Timing timing, time_graph(count, copies, launch));
    const auto wanted = static_cast<int64_t>(kGraphMicroseconds / std::max(0.1, timing.median));
    if (wanted <= count) return timing;
    return time_graph(std::min(kMostLaunches, wanted), copies, launch);
  }
  template <typename Launch>
  Result<Timing> time_graph(int64_t count, int64_t copies, const Launch& launch) {
    GALVANI_TRY_VOID(stream_->begin_capture());
    Status launched;
    for (int64_t i = 0; i < count && launched; ++i) launched = launch(i % copies);
    Result<cuda::Graph> graph = stream_->end_capture();
    GALVANI_TRY_VOID(std::move(launched));
    if (!graph) return tl::unexpected<Error>(graph.error());
    GALVANI_TRY(cuda::GraphExec exec, graph->instantiate());
    GALVANI_TRY(cuda::Event start, cuda::Event::create(*device_, true));
    GALVANI_TRY(cuda::Event stop, cuda::Event::create(*device_, true));
    Timing timing;
    for (int r = 0; r < options_.replays; ++r) {
      GALVANI_TRY_VOID(stream_->record(start));
      GALVANI_TRY_VOID(exec.launch(*stream_));
      GALVANI_TRY_VOID(stream_->record(stop));
      GALVANI_TRY_VOID(span_clock(r));
      GALVANI_TRY_VOID(stop.synchronize());
      GALVANI_TRY(const float ms, stop.milliseconds_since(start));
      if (r >= kUncounted) timing.samples.push_back(1e3 * static_cast<double>(ms) / static_cast<double>(count));
    }
    spread(timing);
    GALVANI_TRY(timing.sm_mhz, clock_median());
    return timing;
  }

  /// Best of plain loads and bulk copies over `bytes` in one launch.
  Result<Timing> time_read(const DeviceBuffer& buffer, int64_t bytes, int64_t copies) {
    Timing best;
    const auto keep = [&](Result<Timing> timing) -> Status {
      if (!timing) return tl::unexpected<Error>(timing.error());
      if (best.median == 0 || timing->median < best.median) best = std::move(*timing);
      return {};
    };
    const auto sms = static_cast<unsigned>(device_->caps().sms);
    const auto run = [&](const cuda::Kernel* kernel, unsigned blocks, unsigned threads, int smem) {
      return time(copies, [&, kernel, blocks, threads, smem](int64_t copy) -> Status {
        const cuda::LaunchConfig config{.grid = {blocks}, .block = {threads}, .dynamic_smem = smem};
        return cuda::launch(*stream_, *kernel, config,
                            static_cast<const unsigned char*>(buffer.as<unsigned char>() + copy * bytes),
                            static_cast<long long>(bytes), scratch_.as<unsigned>());
      });
    };
    GALVANI_TRY(const cuda::Kernel* plain, device_->kernel("read_plain_sm70"));
    for (unsigned blocks : {sms, 2 * sms, 8 * sms}) GALVANI_TRY_VOID(keep(run(plain, blocks, 1024, 0)));
    if (device_->caps().has(Feature::kBulkCopy)) {
      GALVANI_TRY(const cuda::Kernel* bulk, device_->kernel("read_bulk_sm90"));
      GALVANI_TRY_VOID(keep(run(bulk, sms, 32, 8 * 16384)));
    }
    return best;
  }

  Result<DeviceBuffer> random_bytes(int64_t bytes, const std::vector<std::byte>& pattern, const char* tag) {
    GALVANI_TRY(DeviceBuffer buffer, DeviceBuffer::allocate(*device_, static_cast<size_t>(bytes), tag));
    for (int64_t at = 0; at < bytes;) {
      const auto part = std::min<int64_t>(bytes - at, static_cast<int64_t>(pattern.size()));
      GALVANI_TRY_VOID(stream_->to_device(buffer.as<std::byte>() + at, pattern.data(), static_cast<size_t>(part)));
      at += part;
    }
    GALVANI_TRY_VOID(stream_->synchronize());
    return buffer;
  }

  std::vector<std::byte> normal16(int64_t count, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<std::byte> bytes(static_cast<size_t>(count) * 2);
    for (int64_t i = 0; i < count; ++i) {
      const float v = normal(random_);
      const uint16_t bits = options_.arithmetic == kernels::Arithmetic::kF16 ? f32_to_f16(v) : f32_to_bf16(v);
      std::memcpy(bytes.data() + i * 2, &bits, 2);
    }
    return bytes;
  }

  /// Random codes, scales and biases such that sums stay moderate.
  std::vector<std::byte> random_units(const A16Format& format, int64_t units) {
    const int64_t unit = kernels::a16_unit_bytes(format), words = kernels::a16_word_bytes(format.bits);
    std::vector<std::byte> bytes(static_cast<size_t>(units * unit));
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const uint64_t word = random_();
      std::memcpy(bytes.data() + i, &word, 8);
    }
    for (int64_t u = 0; u < units; ++u)
      for (int64_t at = words; at < unit; at += kernels::a16_pair_bytes(format.scale)) {
        const float scale = 0.002f + 0.004f * static_cast<float>(random_() % 1024) / 1024;
        const float pair[2] = {scale, -scale * static_cast<float>(1 << (format.bits - 1))};
        for (int i = 0; i < 2; ++i) {
          std::byte* const to = bytes.data() + u * unit + at + i * kernels::a16_pair_bytes(format.scale) / 2;
          const uint16_t half = format.scale == A16Scale::kF16 ? f32_to_f16(pair[i]) : f32_to_bf16(pair[i]);
          if (format.scale == A16Scale::kF32) std::memcpy(to, &pair[i], 4);
          if (format.scale != A16Scale::kF32) std::memcpy(to, &half, 2);
        }
      }
    return bytes;
  }

  Result<bool> all_finite(const DeviceBuffer& y, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    GALVANI_TRY_VOID(stream_->to_host(values.data(), y.data(), values.size() * 4));
    GALVANI_TRY_VOID(stream_->synchronize());
    return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  }

  /// cuBLAS on dense weights of row.what's shape, 16-bit results, into row.cublas.
  Status time_cublas(KernelRow& row, const DeviceBuffer& x);
  /// The machine with its two ceilings; no rows.
  Result<KernelRecord> describe();
  /// TFLOP/s of 8192³.
  Result<double> cublas_ceiling();

  /// Copies of `bytes` that exceed five times the L2.
  int64_t copies_for(int64_t bytes) const {
    return std::clamp<int64_t>(5 * device_->caps().l2_bytes / bytes + 2, 2, options_.most_copies);
  }
  Stream& stream() { return *stream_; }
  const KernelBenchOptions& options() const { return options_; }
  std::mt19937_64& random() { return random_; }

 private:
  struct ClockSpan {
    unsigned long long cycles, nanoseconds;
  };
  /// Behind replay r on the stream.
  Status span_clock(int r);
  /// Of the replays that count, in MHz.
  Result<double> clock_median();

  KernelBenchOptions options_;
  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
  DeviceBuffer scratch_, clocks_;
  const cuda::Kernel* sm_clock_ = nullptr;
  std::unique_ptr<cuda::Blas> blas_;
  DeviceBuffer blas_workspace_;
  std::mt19937_64 random_{20261129};
};

}  // namespace galvani::bench
