#include "bench/kernel_bench.h"

#include <algorithm>

#include "bench/kernel_session.h"
#include "kernels/probe/probe.h"
#include "kernels/qmatmul/qmatmul_cuda.h"

namespace galvani::bench {
namespace {

Status bench_product(KernelSession& session, kernels::QmatmulCuda& product, KernelRow& row) {
  const KernelCase& c = row.what;
  const int64_t packed = kernels::a16_bytes(c.format, c.n, c.k), copies = session.copies_for(packed);
  row.bytes = packed + c.m * c.k * 2 + c.m * c.n * 4;
  // A pattern longer than the L2 where the matrix is; whole row tiles, so that scales stay scales.
  const int64_t units = kernels::a16_row_tiles(c.n) * kernels::a16_units(c.k);
  const std::vector<std::byte> pattern = session.random_units(c.format, std::min<int64_t>(units, 16384));
  GALVANI_TRY(DeviceBuffer weights, session.random_bytes(packed * copies, pattern, "bench weights"));
  GALVANI_TRY(
      DeviceBuffer x,
      session.random_bytes(c.m * c.k * 2, session.normal16(std::min<int64_t>(c.m * c.k, 1 << 20), 1), "bench x"));
  GALVANI_TRY(DeviceBuffer y, DeviceBuffer::allocate(session.device(), static_cast<size_t>(c.m * c.n * 4), "bench y"));
  GALVANI_TRY_VOID(session.stream().fill(y.data(), 0xff, y.size()));
  const kernels::CudaActivations in{x.data(), c.m, c.k};
  const kernels::CudaResult out{y.data(), c.n, false, false};
  const auto launch = [&](int64_t copy) -> Status {
    return product.run(session.stream(), {c.n, c.k, c.format, weights.as<unsigned char>() + copy * packed}, in,
                       session.options().arithmetic, out);
  };
  const kernels::QmatmulCudaPlan plan =
      product.plan({c.n, c.k, c.format, weights.as<unsigned char>()}, in, session.options().arithmetic, out);
  row.kernel = plan.ok ? plan.kernel() : plan.reason;
  row.split = std::max(plan.cluster, plan.arm == kernels::QmatmulCudaArm::kWgmma ? plan.wgmma.splits : 1);
  GALVANI_TRY(row.time, session.time(copies, launch));
  GALVANI_TRY(const bool finite, session.all_finite(y, c.m * c.n));
  if (!finite) return fail(ErrorCode::kInternal, "{} left elements of its output unwritten", row.kernel);
  GALVANI_TRY(row.read, session.time_read(weights, packed, copies));
  if (session.options().cublas) GALVANI_TRY_VOID(session.time_cublas(row, x));
  return {};
}

}  // namespace

// The goals' shapes; odd sizes, each beside the round one next to it. Few tokens first: milliseconds of matrix products
// may lower the clock of what follows, and instructions, not memory, limit the product of one token at 2 bits.
std::vector<KernelCase> standard_kernel_cases() {
  const A16Format q4{4, 64, A16Scale::kBF16};
  std::vector<KernelCase> cases;
  for (int64_t m : {1, 8, 16, 64, 128, 512, 2048}) cases.push_back({28672, 8192, m, q4});
  for (int bits : {2, 3, 5, 6, 8}) cases.push_back({28672, 8192, 1, {bits, 64, A16Scale::kBF16}});
  for (int64_t m : {1, 8, 256, 2048}) cases.push_back({5120, 17408, m, q4});
  for (int64_t m : {1, 8, 256, 2048}) cases.push_back({4096, 4096, m, q4});
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{704, 2816}, {768, 2816}, {2880, 2880}, {3072, 3072}, {48, 5120}, {64, 5120}})
    cases.push_back({n, k, 1, q4});
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{704, 2816}, {768, 2816}, {2880, 2880}, {3072, 3072}})
    cases.push_back({n, k, 256, q4});
  cases.push_back({28672, 8192, 1, {4, 32, A16Scale::kF16}});
  std::stable_sort(cases.begin(), cases.end(), [](const KernelCase& a, const KernelCase& b) { return a.m < b.m; });
  return cases;
}

Result<KernelRecord> bench_kernels(const KernelBenchOptions& options) {
  if (const cuda::DriverState state = cuda::driver_state(); state.kind != cuda::DriverState::Kind::kReady)
    return fail(ErrorCode::kUnsupported, "there is no GPU to time: {}", state.reason);
  GALVANI_TRY(KernelSession session, KernelSession::open(options));
  GALVANI_TRY(KernelRecord record, session.describe());
  if (options.forced >= 0)
    record.arms = {{"qmatmul", kernels::qmatmul_cuda_arm_name(static_cast<kernels::QmatmulCudaArm>(options.forced))}};
  kernels::QmatmulCuda::Options product_options;
  product_options.forced = options.forced;
  product_options.expand_bytes = options.expand_bytes;
  product_options.dependent_launch = options.dependent_launch;
  GALVANI_TRY(const auto product, kernels::QmatmulCuda::create(session.device().shared_from_this(), product_options));
  for (const KernelCase& c : options.cases.empty() ? standard_kernel_cases() : options.cases) {
    KernelRow row;
    row.what = c;
    if (const Status status = bench_product(session, *product, row); !status) {
      row.failure = status.error().message;
      GALVANI_TRY_VOID(session.device().alive());  // nothing more to learn from a dead device
    }
    record.rows.push_back(std::move(row));
  }
  return record;
}

}  // namespace galvani::bench
