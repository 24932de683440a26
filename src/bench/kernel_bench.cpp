#include "bench/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "core/dtype.h"
#include "core/error.h"
#include "cuda/launch.h"
#include "kernels/probe/probe.h"
#include "kernels/qmatmul/qmatmul_cuda.h"

namespace galvani::bench {
namespace {

using cuda::CudaDevice;
using cuda::DeviceBuffer;
using cuda::Stream;
using kernels::A16Format;
using kernels::A16Scale;

constexpr int kLaunches = 40;
constexpr int64_t kMostCopies = 400, kMostLaunches = 1500;
constexpr double kGraphMicroseconds = 3000;

class Session {
 public:
  static Result<Session> open(const KernelBenchOptions& options) {
    Session s;
    s.options_ = options;
    GALVANI_TRY(s.device_, CudaDevice::open(options.device));
    GALVANI_TRY(Stream stream, Stream::create(*s.device_));
    s.stream_ = std::make_unique<Stream>(std::move(stream));
    GALVANI_TRY(s.scratch_, DeviceBuffer::allocate(*s.device_, 256, "bench"));
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
    const int64_t count = std::max<int64_t>(kLaunches, copies);
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
      GALVANI_TRY_VOID(stop.synchronize());
      GALVANI_TRY(const float ms, stop.milliseconds_since(start));
      if (r >= 2) timing.samples.push_back(1e3 * static_cast<double>(ms) / static_cast<double>(count));
    }
    std::vector<double> sorted = timing.samples;
    std::sort(sorted.begin(), sorted.end());
    if (!sorted.empty()) timing.median = sorted[sorted.size() / 2], timing.low = sorted[0], timing.high = sorted.back();
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

  Status bench_product(kernels::QmatmulCuda& product, KernelRow& row);
  Status bench_cublas(KernelRow& row, const DeviceBuffer& x);
  Result<double> cublas_ceiling();

 private:
  int64_t copies_for(int64_t bytes) const {
    return std::clamp<int64_t>(5 * device_->caps().l2_bytes / bytes + 2, 2, kMostCopies);
  }

  KernelBenchOptions options_;
  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
  DeviceBuffer scratch_;
  std::unique_ptr<cuda::Blas> blas_;
  DeviceBuffer blas_workspace_;
  std::mt19937_64 random_{20261129};
};

Status Session::bench_product(kernels::QmatmulCuda& product, KernelRow& row) {
  const KernelCase& c = row.what;
  const int64_t packed = kernels::a16_bytes(c.format, c.n, c.k), copies = copies_for(packed);
  row.bytes = packed + c.m * c.k * 2 + c.m * c.n * 4;
  // A pattern longer than the L2 where the matrix is; whole row tiles, so that scales stay scales.
  const int64_t units = kernels::a16_row_tiles(c.n) * kernels::a16_units(c.k);
  const std::vector<std::byte> pattern = random_units(c.format, std::min<int64_t>(units, 16384));
  GALVANI_TRY(DeviceBuffer weights, random_bytes(packed * copies, pattern, "bench weights"));
  GALVANI_TRY(DeviceBuffer x,
              random_bytes(c.m * c.k * 2, normal16(std::min<int64_t>(c.m * c.k, 1 << 20), 1), "bench x"));
  GALVANI_TRY(DeviceBuffer y, DeviceBuffer::allocate(*device_, static_cast<size_t>(c.m * c.n * 4), "bench y"));
  GALVANI_TRY_VOID(stream_->fill(y.data(), 0xff, y.size()));
  const kernels::CudaActivations in{x.data(), c.m, c.k};
  const kernels::CudaResult out{y.data(), c.n, false, false};
  const auto launch = [&](int64_t copy) -> Status {
    return product.run(*stream_, {c.n, c.k, c.format, weights.as<unsigned char>() + copy * packed}, in,
                       options_.arithmetic, out);
  };
  const kernels::QmatmulCudaPlan plan =
      product.plan({c.n, c.k, c.format, weights.as<unsigned char>()}, in, options_.arithmetic, out);
  row.kernel = plan.ok ? plan.kernel() : plan.reason;
  row.split = plan.cluster;
  GALVANI_TRY(row.time, time(copies, launch));
  GALVANI_TRY(const bool finite, all_finite(y, c.m * c.n));
  if (!finite) return fail(ErrorCode::kInternal, "{} left elements of its output unwritten", row.kernel);
  GALVANI_TRY(row.read, time_read(weights, packed, copies));
  if (options_.cublas) GALVANI_TRY_VOID(bench_cublas(row, x));
  return {};
}

Status Session::bench_cublas(KernelRow& row, const DeviceBuffer& x) {
  const KernelCase& c = row.what;
  const int64_t dense = c.n * c.k * 2, copies = copies_for(dense);
  GALVANI_TRY(DeviceBuffer weights, random_bytes(dense * copies, normal16(1 << 20, 0.02f), "bench dense weights"));
  GALVANI_TRY(DeviceBuffer y, DeviceBuffer::allocate(*device_, static_cast<size_t>(c.m * c.n * 2), "bench y"));
  const DType type = options_.arithmetic == kernels::Arithmetic::kF16 ? DType::kF16 : DType::kBF16;
  GALVANI_TRY(row.cublas, time(copies, [&](int64_t copy) -> Status {
                cuda::DenseProduct p;
                p.m = c.m, p.n = c.n, p.k = c.k;
                p.x = x.data(), p.x_stride = c.k;
                p.w = weights.as<std::byte>() + copy * dense, p.w_stride = c.k;
                p.y = y.data(), p.y_stride = c.n, p.in = p.out = type;  // its best case: 16-bit results
                return blas_->multiply(*stream_, p, blas_workspace_.data());
              }));
  return {};
}

Result<double> Session::cublas_ceiling() {
  KernelRow row;
  row.what = {8192, 8192, 8192, {}};
  GALVANI_TRY(DeviceBuffer x, random_bytes(int64_t{8192} * 8192 * 2, normal16(1 << 20, 1), "bench x"));
  GALVANI_TRY_VOID(bench_cublas(row, x));
  return 2.0 * 8192 * 8192 * 8192 / row.cublas.median * 1e-6;
}

}  // namespace

std::vector<KernelCase> standard_kernel_cases() {
  const A16Format q4{4, 64, A16Scale::kBF16};
  std::vector<KernelCase> cases;
  for (int64_t m : {1, 8, 16, 64, 128, 512, 2048}) cases.push_back({28672, 8192, m, q4});
  for (int bits : {2, 3, 5, 6, 8}) cases.push_back({28672, 8192, 1, {bits, 64, A16Scale::kBF16}});
  for (int64_t m : {1, 8, 256, 2048}) cases.push_back({5120, 17408, m, q4});
  for (int64_t m : {1, 8, 256, 2048}) cases.push_back({4096, 4096, m, q4});
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{704, 2816}, {768, 2816}, {2880, 2880}, {3072, 3072}, {48, 5120}})
    cases.push_back({n, k, 1, q4});
  cases.push_back({28672, 8192, 1, {4, 32, A16Scale::kF16}});
  return cases;
}

Result<KernelRecord> bench_kernels(const KernelBenchOptions& options) {
  if (const cuda::DriverState state = cuda::driver_state(); state.kind != cuda::DriverState::Kind::kReady)
    return fail(ErrorCode::kUnsupported, "there is no GPU to time: {}", state.message);
  GALVANI_TRY(Session session, Session::open(options));
  KernelRecord record;
  record.device = session.device().name();
  record.driver = fmt::format("CUDA {}.{}", cuda::driver_state().driver_version / 1000,
                              cuda::driver_state().driver_version % 1000 / 10);
  record.toolkit = cuda::builtin_toolkit();
  record.sms = session.device().caps().sms;
  record.l2_bytes = session.device().caps().l2_bytes;
  record.dependent_launch = options.dependent_launch;
  GALVANI_TRY(const kernels::ReadCeiling ceiling, kernels::measure_read_ceiling(session.device(), int64_t{4} << 30));
  record.read_ceiling_gbps = ceiling.gbps;
  if (options.cublas) {
    GALVANI_TRY(record.cublas_tflops, session.cublas_ceiling());
  }
  kernels::QmatmulCuda::Options product_options;
  product_options.forced = options.forced;
  product_options.expand_bytes = options.expand_bytes;
  product_options.dependent_launch = options.dependent_launch;
  GALVANI_TRY(const auto product,
              kernels::QmatmulCuda::create(std::shared_ptr<CudaDevice>(&session.device(), [](CudaDevice*) {}),
                                           product_options));
  for (const KernelCase& c : options.cases.empty() ? standard_kernel_cases() : options.cases) {
    KernelRow row;
    row.what = c;
    if (const Status status = session.bench_product(*product, row); !status) {
      row.failure = status.error().message;
      GALVANI_TRY_VOID(session.device().alive());  // nothing more to learn from a dead device
    }
    record.rows.push_back(std::move(row));
  }
  return record;
}

}  // namespace galvani::bench
