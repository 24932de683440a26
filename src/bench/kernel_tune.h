#pragma once
/// `galvani bench --kernels --tune`: every legal launch of every product for the sizes of the performance goals.
///
/// For each case: its plans with their numbers changed one by one (blocks that share K, stages, slots ahead of x, tile,
/// units of a stage: QmatmulCudaTuning), each first compared with f64 at rows and tokens drawn anew and run twice for
/// equal bits, then timed by kernel_bench.h's protocol. Ceilings of the same run: the long-run read, a plain read of
/// the same bytes, cuBLAS of the same shape where there are 64 tokens or more, and 8192³.
#include "bench/kernel_bench.h"

namespace galvani::bench {

struct TuneRow {
  kernels::QmatmulCudaArm arm{};
  kernels::QmatmulCudaTuning tuning;
  std::string launch;   ///< kernel and numbers, for people; no two rows of a case are the same
  bool chosen = false;  ///< what the plan would run
  double worst = 0;     ///< largest error over its bound; above 1 is wrong
  Timing time;
  std::string failure;  ///< why there is no number
};

struct TuneCase {
  KernelCase what;
  int64_t bytes = 0;  ///< weights with scales, x and y
  Timing read, cublas;
  std::vector<TuneRow> rows;
};

/// Decode of `batch` sequences of `length` tokens, bf16; the time is that of the segments and their merge.
struct AttentionTuneRow {
  std::string kernel;
  int segment = 0;      ///< tokens
  bool chosen = false;  ///< what the plan would run
  double worst = 0;     ///< largest error over its bound
  Timing time;
  std::string failure;
};
struct AttentionTuneCase {
  int dim = 0, batch = 0, heads = 0, kv_heads = 0, length = 0;
  int64_t bytes = 0;  ///< keys and values
  Timing read;
  std::vector<AttentionTuneRow> rows;
};

/// Causal attention of one prompt of `length` tokens, bf16, by the arm that the plan takes.
struct AttentionPrefillCase {
  int dim = 0, heads = 0, kv_heads = 0, length = 0;
  double operations = 0;  ///< 4 · heads · dim · length (length + 1) / 2
  std::string kernel;
  double worst = 0;  ///< largest error over its bound
  Timing time;
  std::string failure;
};

/// What lies between products and attention, in Llama 3.1 8B's shapes, bf16. One row's activations are in L2, as in a
/// model's step; many rows', tables and logits are rotated past it.
struct SmallCase {
  enum class Operation { kNorm, kNormOfSum, kQkv, kGated, kEmbed, kGreedy, kTopKTopP };
  Operation operation{};
  int rows = 1;
  int64_t bytes = 0;     ///< operands read and results written
  bool on_host = false;  ///< the time is a call's on the host, from logits on the device to ids
  double worst = 0;      ///< largest difference from the CPU's kernel over what rounding explains; draws must be equal
  Timing time;
  std::string failure;
};

struct TuneRecord {
  KernelRecord machine;  ///< without rows
  std::vector<TuneCase> cases;
  std::vector<AttentionTuneCase> attention;
  std::vector<AttentionPrefillCase> prefill;
  std::vector<SmallCase> small;
};

/// The goals' shapes, 1 to 2,048 tokens: where arms change over is in the table, mma and expand beside the others.
std::vector<KernelCase> tune_cases();

/// What could run `what` on such a device, the plan's own choice first.
std::vector<TuneRow> tune_candidates(const DeviceCaps& caps, const KernelCase& what, kernels::Arithmetic arithmetic);

/// 34 to 268 MB of keys and values.
std::vector<AttentionTuneCase> attention_tune_cases();

/// The goals' 8,192 tokens at heads of 128 and 256; heads of 64, and 2,048 tokens.
std::vector<AttentionPrefillCase> attention_prefill_cases();

/// One row, and many where a prompt has them.
std::vector<SmallCase> small_tune_cases();
std::string small_name(const SmallCase& c);

/// Products, and without --case attention (decode and prefill) and the small operations too. Errors: kUnsupported when
/// there is no GPU to ask. A wrong result is a row with a failure, not an error.
Result<TuneRecord> tune_kernels(const KernelBenchOptions& options);

class KernelSession;
/// Fills in everything that is measured.
Status tune_attention(KernelSession& session, AttentionTuneCase& c);
Status time_attention_prefill(KernelSession& session, AttentionPrefillCase& c);
Status tune_small(KernelSession& session, SmallCase& c);

/// The best few launches of each case with what the plan would have taken.
std::string tune_record_markdown(const TuneRecord& record);
std::string tune_record_json(const TuneRecord& record);

}  // namespace galvani::bench
