#pragma once
/// `galvani bench --kernels`: how fast the GPU's matrix products are, against ceilings measured in the same run.
///
/// Protocol: random weights and activations; as many copies of the weights as exceed five times the L2, used in turn;
/// one captured graph of at least 40 launches, replayed; the median over the replays with their spread; every case's
/// output is checked to be finite before it is timed (values are the tests' business). After each replay one thread
/// counts the cycles of 20 microseconds: what instructions limit is as fast as the clock was. Two ceilings: a plain
/// read of the same number of bytes in one launch, rotated and replayed alike, and a long-run read of gigabytes. cuBLAS
/// runs on dense weights of the same shape.
#include <cstdint>
#include <string>
#include <vector>

#include "engine/forced_arms.h"
#include "galvani/error.h"
#include "kernels/common/arithmetic.h"
#include "kernels/qmatmul/qmatmul_cuda_plan.h"

namespace galvani::bench {

struct KernelCase {
  int64_t n = 0, k = 0, m = 0;
  kernels::A16Format format;
};

struct KernelBenchOptions {
  int device = 0;
  std::vector<KernelCase> cases;  ///< empty: the standard list
  bool attention = false;         ///< of tune_kernels, in bf16: also attention's cases where there are others
  bool small = false;             ///< of tune_kernels, in bf16: and the small operations'
  kernels::Arithmetic arithmetic = kernels::Arithmetic::kBF16;
  int forced = -1;           ///< a QmatmulCudaArm
  int64_t expand_bytes = 0;  ///< what the expand arm may hold
  int replays = 12;          ///< of each graph; the first two are not counted
  bool cublas = true, dependent_launch = true;
  // Less than these gives numbers that mean nothing; for tests of the bench itself.
  int64_t launches = 40, most_copies = 400;  ///< of a graph at least; of the weights at most
  int64_t read_ceiling_bytes = int64_t{4} << 30;
};

/// Microseconds of one launch over the replays.
struct Timing {
  double median = 0, low = 0, high = 0;
  double sm_mhz = 0;  ///< the multiprocessors' clock, read on one of them right after each replay: the median
  std::vector<double> samples;
};

struct KernelRow {
  KernelCase what;
  std::string kernel;         ///< that ran
  int split = 1;              ///< blocks that share K
  Timing time, read, cublas;  ///< medians of 0 = not measured
  int64_t bytes = 0;          ///< weights with scales, x and y
  std::string failure;        ///< why there is no number
};

struct KernelRecord {
  std::string device, driver, toolkit;
  int sms = 0;
  int64_t l2_bytes = 0;
  bool dependent_launch = true;
  double read_ceiling_gbps = 0;  ///< long-run read
  double cublas_tflops = 0;      ///< 8192³ in the same arithmetic
  engine::ForcedArms arms;       ///< what the options forced
  std::vector<KernelRow> rows;
};

/// The shapes and token counts of the performance goals.
std::vector<KernelCase> standard_kernel_cases();

/// Errors: kUnsupported when there is no GPU to ask, with the reason.
Result<KernelRecord> bench_kernels(const KernelBenchOptions& options);

std::string kernel_record_markdown(const KernelRecord& record);
std::string kernel_record_json(const KernelRecord& record);

}  // namespace galvani::bench
