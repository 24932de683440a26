#pragma once
/// What the CUDA sampling kernels take; order of the steps, ties and draw are sampling.h's. Device pointers.
/// Weights are summed as integers of 2^−44 of the largest one, so that sums do not depend on their order.

namespace galvani::kernels {

constexpr int kSampleTop = 20;          // kMaxTopLogprobs
constexpr int kSampleScan = 2048;       // logits a block of the scan looks at
constexpr int kSampleInline = 16;       // rows that travel with the launch instead of through memory
constexpr int kSampleMaxBlocks = 1024;  // of 1,024 logits: the largest vocabulary is 2^20

/// One edit of one logit, in the order of application; a row's edits are sorted by id, stably.
enum class EditKind : int { kSuppress, kBias, kRepetition, kFrequency, kPresence };
struct SampleEdit {
  int id;
  EditKind kind;
  float value;  ///< bias, penalty, or frequency penalty times count
};

struct SampleRow {
  float temperature, top_p, min_p;
  int greedy, top_k;
  double uniform;  ///< philox_uniform(seed, position)
  int valid;       ///< ids at or above it are never sampled
  int edited;      ///< row of the edited copy to draw from, or −1: the logits themselves
  int edits_begin, edits_end;
  int mask;  ///< row of the masks, or −1
  int logprobs, top_logprobs;
};

enum class SampleFault : int { kNone, kBrokenLogit, kNothingLeft, kBrokenLogprobs };
struct SampleResult {
  int id;
  float logprob;
  SampleFault fault;
  int bad_id;
  float bad_value;
  int top_count;
  int top_id[kSampleTop];
  float top_logprob[kSampleTop];
};

/// What one block of the scan found in its part of a row.
struct ScanPart {
  float peak;               ///< of what is drawn from
  int arg;                  ///< its lowest id
  int bad;                  ///< lowest id of a NaN or +infinity, or INT_MAX
  float raw_peak, raw_sum;  ///< of all logits: largest, and Σ e^(x − raw_peak)
  int raw_bad;
};

struct SampleArgs {
  const float* logits = nullptr;  ///< [rows, vocab]
  long long stride = 0;
  int rows = 0, vocab = 0;
  const SampleRow* row = nullptr;  ///< null: inline_row
  const SampleEdit* edits = nullptr;
  const unsigned* masks = nullptr;  ///< [masks, (vocab + 31) / 32]
  float* edited = nullptr;          ///< [edited rows, vocab]
  ScanPart* parts = nullptr;        ///< [rows, (vocab + kSampleScan − 1) / kSampleScan]
  SampleResult* results = nullptr;  ///< page-locked host memory
  SampleRow inline_row[kSampleInline];
};

}  // namespace galvani::kernels
