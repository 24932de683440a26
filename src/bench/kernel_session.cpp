#include "bench/kernel_session.h"

#include "kernels/probe/probe.h"

namespace galvani::bench {

Status KernelSession::span_clock(int r) {
  auto* const to = clocks_.as<unsigned long long>() + 2 * r;
  const cuda::LaunchConfig config{.grid = {1}, .block = {1}, .outputs = {{{to, sizeof(ClockSpan)}}}};
  return cuda::launch(*stream_, *sm_clock_, config, kClockNanoseconds, to);
}

Result<double> KernelSession::clock_median() {
  std::vector<ClockSpan> spans(static_cast<size_t>(options_.replays));
  GALVANI_TRY_VOID(stream_->to_host(spans.data(), clocks_.data(), spans.size() * sizeof(ClockSpan)));
  GALVANI_TRY_VOID(stream_->synchronize());
  std::vector<double> mhz;
  for (size_t r = kUncounted; r < spans.size(); ++r)
    mhz.push_back(1e3 * static_cast<double>(spans[r].cycles) / static_cast<double>(spans[r].nanoseconds));
  std::sort(mhz.begin(), mhz.end());
  return mhz.empty() ? 0 : mhz[mhz.size() / 2];
}

Status KernelSession::time_cublas(KernelRow& row, const DeviceBuffer& x) {
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

Result<double> KernelSession::cublas_ceiling() {
  KernelRow row;
  row.what = {8192, 8192, 8192, {}};
  GALVANI_TRY(DeviceBuffer x, random_bytes(int64_t{8192} * 8192 * 2, normal16(1 << 20, 1), "bench x"));
  GALVANI_TRY_VOID(time_cublas(row, x));
  return 2.0 * 8192 * 8192 * 8192 / row.cublas.median * 1e-6;
}

Result<KernelRecord> KernelSession::describe() {
  KernelRecord record;
  record.device = device_->name();
  record.driver = fmt::format("CUDA {}.{}", cuda::driver_state().driver_version / 1000,
                              cuda::driver_state().driver_version % 1000 / 10);
  record.toolkit = cuda::builtin_toolkit();
  record.sms = device_->caps().sms;
  record.l2_bytes = device_->caps().l2_bytes;
  record.dependent_launch = options_.dependent_launch;
  GALVANI_TRY(const kernels::ReadCeiling ceiling, kernels::measure_read_ceiling(*device_, options_.read_ceiling_bytes));
  record.read_ceiling_gbps = ceiling.gbps;
  if (options_.cublas) {
    GALVANI_TRY(record.cublas_tflops, cublas_ceiling());
  }
  return record;
}

}  // namespace galvani::bench
