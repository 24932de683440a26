#pragma once
/// Sampling on the device: edits, one scan over all logits by many blocks, then one block a row that draws. No sort: a
/// filter's set is a prefix of (logit descending, id ascending), found by walking 11, 11 and 10 bits of the logits'
/// order-preserving keys with histograms. NVRTC compiles it alone.
#include "kernels/common/four.cuh"
#include "kernels/sampling/sampling_cuda_args.h"

namespace galvani::kernels::sampling {

constexpr int kThreads = 1024, kBins = 2048, kNobody = 0x7fffffff;
using Mass = unsigned long long;

__device__ __forceinline__ float lowest() { return __int_as_float(0xff800000); }
/// Unsigned order of keys = order of floats; both zeros have one key, as they are equal.
__device__ __forceinline__ unsigned key_of(float x) {
  const unsigned bits = x == 0.0f ? 0u : __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ bool broken(float x) { return !(x <= 3.402823466e38f); }

__device__ __forceinline__ const SampleRow& row_of(const SampleArgs& args, int r) {
  return args.row != nullptr ? args.row[r] : args.inline_row[r];
}

/// Copies a row and masks it. Grid: (parts of 1024, rows); block: 256.
__device__ __forceinline__ void copy_masked(const SampleArgs& args) {
  const SampleRow& row = row_of(args, blockIdx.y);
  if (row.edited < 0) return;
  const float* from = args.logits + blockIdx.y * args.stride;
  float* to = args.edited + static_cast<long long>(row.edited) * args.vocab;
  const unsigned* mask =
      row.mask < 0 ? nullptr : args.masks + static_cast<long long>(row.mask) * ((args.vocab + 31) / 32);
  const int begin = blockIdx.x * 1024, end = min(args.vocab, begin + 1024);
  for (int i = begin + threadIdx.x; i < end; i += blockDim.x)
    to[i] = mask != nullptr && (mask[i / 32] >> (i % 32) & 1u) == 0 ? lowest() : from[i];
}

/// Applies a row's list of edits: the thread of an id's first edit does all of that id's. Grid: rows; block: 256.
__device__ __forceinline__ void apply_edits(const SampleArgs& args) {
  const SampleRow& row = row_of(args, blockIdx.x);
  if (row.edited < 0) return;
  float* logits = args.edited + static_cast<long long>(row.edited) * args.vocab;
  for (int i = row.edits_begin + threadIdx.x; i < row.edits_end; i += blockDim.x) {
    const int id = args.edits[i].id;
    if (i > row.edits_begin && args.edits[i - 1].id == id) continue;
    float x = logits[id];
    for (int j = i; j < row.edits_end && args.edits[j].id == id; ++j) {
      const float value = args.edits[j].value;
      switch (args.edits[j].kind) {
        case EditKind::kSuppress: x = lowest(); break;
        case EditKind::kBias: x = __fadd_rn(x, value); break;
        case EditKind::kRepetition: x = x > 0 ? __fdiv_rn(x, value) : __fmul_rn(x, value); break;
        case EditKind::kFrequency:
        case EditKind::kPresence: x = __fsub_rn(x, value); break;
      }
    }
    logits[id] = x;
  }
}

__device__ __forceinline__ const float* drawn_from(const SampleArgs& args, int r) {
  const SampleRow& row = row_of(args, r);
  return row.edited < 0 ? args.logits + r * args.stride : args.edited + static_cast<long long>(row.edited) * args.vocab;
}

/// Largest, with the lowest id on ties.
__device__ __forceinline__ void keep_larger(float& peak, int& arg, float other, int other_arg) {
  if (other > peak || (other == peak && other_arg < arg)) {
    peak = other;
    arg = other_arg;
  }
}

__device__ __forceinline__ ScanPart nothing_found() { return {lowest(), kNobody, kNobody, lowest(), 0, kNobody}; }

/// own: what both found; all but the sum.
__device__ __forceinline__ void join(ScanPart& own, const ScanPart& other) {
  keep_larger(own.peak, own.arg, other.peak, other.arg);
  own.bad = min(own.bad, other.bad);
  own.raw_bad = min(own.raw_bad, other.raw_bad);
  own.raw_peak = fmaxf(own.raw_peak, other.raw_peak);
}
/// The warp's, the same in all lanes. raw: those fields are asked for.
__device__ __forceinline__ void join_warp(ScanPart& own, bool raw) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    ScanPart other = nothing_found();
    other.peak = __shfl_xor_sync(0xffffffffu, own.peak, step);
    other.arg = __shfl_xor_sync(0xffffffffu, own.arg, step);
    other.bad = __shfl_xor_sync(0xffffffffu, own.bad, step);
    if (raw) {
      other.raw_bad = __shfl_xor_sync(0xffffffffu, own.raw_bad, step);
      other.raw_peak = __shfl_xor_sync(0xffffffffu, own.raw_peak, step);
    }
    join(own, other);
  }
}

constexpr int kScanThreads = 256, kScanFours = kSampleScan / (4 * kScanThreads);

/// Logits stay in registers between the largest and the sum; raw fields are left empty where no log-probability is
/// asked for. Grid: (parts of kSampleScan, rows); block: kScanThreads.
__device__ __forceinline__ void scan(const SampleArgs& args) {
  __shared__ ScanPart shared[kScanThreads / 32];
  const int r = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int begin = blockIdx.x * kSampleScan, vocab = args.vocab;
  const auto at = [begin](int k) { return begin + 4 * static_cast<int>(threadIdx.x + k * kScanThreads); };
  const float* logits = args.logits + r * args.stride;
  Four raw[kScanFours], drawn[kScanFours];
#pragma unroll
  for (int k = 0; k < kScanFours; ++k)
    drawn[k] = raw[k] = load_four(logits, at(k), vocab, by_fours(args.logits, args.stride));
  const SampleRow& row = row_of(args, r);
  const int edited = row.edited, valid = row.valid;
  const bool logprobs = row.logprobs != 0;
  if (edited >= 0) {
    const float* from = args.edited + static_cast<long long>(edited) * vocab;
#pragma unroll
    for (int k = 0; k < kScanFours; ++k) drawn[k] = load_four(from, at(k), vocab, by_fours(args.edited, vocab));
  }
  ScanPart own = nothing_found();
#pragma unroll
  for (int k = 0; k < kScanFours; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = at(k) + j;
      const float x = raw[k].v[j], y = drawn[k].v[j];
      if (logprobs && i < vocab) {
        if (broken(x)) own.raw_bad = min(own.raw_bad, i);
        own.raw_peak = fmaxf(own.raw_peak, x);
      }
      if (i < valid) {
        if (broken(y)) own.bad = min(own.bad, i);
        keep_larger(own.peak, own.arg, y, i);
      }
    }
  join_warp(own, logprobs);
  if (lane == 0) shared[warp] = own;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kScanThreads / 32; ++w) join(own, shared[w]);
  if (logprobs) {
    float sum = 0;
    if (own.raw_peak > lowest()) {
#pragma unroll
      for (int k = 0; k < kScanFours; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (at(k) + j < vocab) sum += expf(raw[k].v[j] - own.raw_peak);
    }
    __shared__ float sums[32];
    own.raw_sum = block_sum_once(sum, sums);
  }
  if (threadIdx.x == 0) args.parts[r * static_cast<long long>(gridDim.x) + blockIdx.x] = own;
}

constexpr int kCandidates = 1024;  ///< most that a filter's set is looked for among in shared memory

struct PickShared {
  unsigned counts[kBins];
  Mass masses[kBins];
  float value[kCandidates];  ///< of gather(), in the order of ids
  int id[kCandidates], found_count;
  Mass warps[32];
  int found_bin, found_id, top_count;
  Mass found_above;
  int top_id[kSampleTop];
  float top_value[kSampleTop];
};

/// Inclusive sum over the block in thread order. warps: 32 entries.
__device__ __forceinline__ Mass block_scan(Mass x, Mass* warps) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int step = 1; step < 32; step *= 2) {
    const Mass below = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x += below;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = x;
  __syncthreads();
  Mass before = 0;
  for (int w = 0; w < warp; ++w) before += warps[w];
  return before + x;
}

/// Weight of a logit as an integer of 2^−44.
struct Weigher {
  float peak, temperature;
  __device__ __forceinline__ float weight(float x) const { return expf((x - peak) / temperature); }
  __device__ __forceinline__ Mass mass(float x) const { return __float2ull_rn(weight(x) * 17592186044416.0f); }
};

/// A set: all with a higher key, and of those with this one the first `ties` in id order (those up to tie_id).
struct Cut {
  unsigned key = 0;
  unsigned ties = 0, equal = 0;  ///< how many of the `equal` ones with this key
  int tie_id = kNobody;
};

/// Sum of f(i) over all i < n, the same in all threads.
template <typename F>
__device__ __forceinline__ Mass sum_all(int n, PickShared& shared, const F& f) {
  Mass sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) sum += f(i);
  sum = block_scan(sum, shared.warps);
  if (threadIdx.x == kThreads - 1) shared.found_above = sum;
  __syncthreads();
  sum = shared.found_above;
  __syncthreads();
  return sum;
}

/// Where the sum over bins from the top first reaches what `reached` asks for: writes found_bin and found_above, the
/// sum of the bins above it; found_bin −1 when all of them do not. bins: kBins entries. Who leaves after reading these
/// waits for the others first: what comes next may write them.
template <typename T, typename Reached>
__device__ __forceinline__ void walk_bins(const T* bins, PickShared& shared, const Reached& reached) {
  if (threadIdx.x == 0) shared.found_bin = -1;
  const int high = kBins - 1 - 2 * static_cast<int>(threadIdx.x);  // this thread's bins: high and the one below
  const Mass first = bins[high], second = bins[high - 1];
  const Mass end = block_scan(first + second, shared.warps), begin = end - first - second;
  if (!reached(begin) && reached(end)) {
    const bool in_first = reached(begin + first);
    shared.found_bin = in_first ? high : high - 1;
    shared.found_above = begin + (in_first ? 0 : first);
  }
  __syncthreads();
}

/// f(value, i) of the row's first n logits, four of them under way at a time.
template <typename F>
__device__ __forceinline__ void for_all(const float* x, int n, const F& f) {
  constexpr int kAhead = 4;
  for (int base = threadIdx.x; base < n; base += kAhead * kThreads) {
    float value[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) value[j] = base + j * kThreads < n ? x[base + j * kThreads] : lowest();
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (base + j * kThreads < n) f(value[j], base + j * kThreads);
  }
}

/// The distance to the peak in equal pieces, over which logits spread evenly; a larger logit is in no lower piece. The
/// last one, 0, has all that are further away than 31 temperatures.
__device__ __forceinline__ int piece_of(const Weigher& weigher, float value) {
  const float pieces = (weigher.peak - value) / weigher.temperature * 66.0f;
  return kBins - 1 - static_cast<int>(fminf(pieces, kBins - 1.0f));  // −infinity's distance is no int
}

/// Whether all of the `count` largest (or, where that is 0, of the smallest prefix with a share of `top_p` of all mass)
/// are among kCandidates at most: these are in shared.value and shared.id then, in the order of ids, and found_count
/// says how many. total: all mass, where it was asked for.
// Inlined twice it would spill.
static __device__ __noinline__ bool gather(const float* x, int n, const Weigher& weigher, unsigned count, float top_p,
                                           Mass& total, PickShared& shared) {
  const bool by_count = count > 0;
  for (int i = threadIdx.x; i < kBins; i += kThreads) shared.counts[i] = 0, shared.masses[i] = 0;
  __syncthreads();
  for_all(x, n, [&](float value, int) {
    const int piece = piece_of(weigher, value);
    if (piece > 0) atomicAdd(&shared.counts[piece], 1u);  // a set that needs piece 0 is not gathered
    if (by_count) return;
    if (const Mass mass = weigher.mass(value); mass != 0) atomicAdd(&shared.masses[piece], mass);
  });
  __syncthreads();
  if (by_count) {
    walk_bins(shared.counts, shared, [&](Mass sum) { return sum >= count; });
  } else {
    total = sum_all(kBins, shared, [&](int i) { return shared.masses[i]; });
    const double target = static_cast<double>(top_p) * static_cast<double>(total);
    walk_bins(shared.masses, shared, [&](Mass sum) { return static_cast<double>(sum) >= target; });
  }
  const int lowest_piece = shared.found_bin;
  __syncthreads();
  if (lowest_piece <= 0) return false;
  const auto all = static_cast<int>(
      sum_all(kBins, shared, [&](int i) { return i >= lowest_piece ? Mass{shared.counts[i]} : Mass{0}; }));
  if (all > kCandidates) return false;
  if (threadIdx.x == 0) shared.found_count = 0;
  __syncthreads();
  // As they come, into the places of the bins, which have been read; then each to its rank.
  auto* const loose_value = reinterpret_cast<float*>(shared.masses);
  auto* const loose_id = reinterpret_cast<int*>(shared.counts);
  for_all(x, n, [&](float value, int i) {
    if (piece_of(weigher, value) < lowest_piece) return;
    const int at = atomicAdd(&shared.found_count, 1);
    loose_value[at] = value, loose_id[at] = i;
  });
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < all) {
    const int own = loose_id[threadIdx.x];
    int rank = 0;
    for (int j = 0; j < all; ++j) rank += loose_id[j] < own;
    shared.value[rank] = loose_value[threadIdx.x], shared.id[rank] = own;
  }
  __syncthreads();
  return true;
}

/// The `count` largest (all of them when there are fewer), as a set; −infinity is in no set.
__device__ __forceinline__ Cut largest(const float* x, int n, unsigned count, PickShared& shared) {
  Cut cut;
  unsigned prefix = 0;
  Mass above = 0;
  for (int level = 0; level < 3; ++level) {
    const int bits = level < 2 ? 11 : 10, shift = level == 0 ? 21 : level == 1 ? 10 : 0;
    for (int i = threadIdx.x; i < kBins; i += kThreads) shared.counts[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const float value = x[i];
      const unsigned key = key_of(value);
      if (value != lowest() && (level == 0 || key >> (shift + bits) == prefix))
        atomicAdd(&shared.counts[key >> shift & ((1u << bits) - 1)], 1u);
    }
    __syncthreads();
    walk_bins(shared.counts, shared, [&](Mass sum) { return above + sum >= count; });
    if (shared.found_bin < 0) {
      __syncthreads();
      return cut;
    }
    above += shared.found_above;
    prefix = prefix << bits | static_cast<unsigned>(shared.found_bin);
    cut.equal = shared.counts[shared.found_bin];
    __syncthreads();
  }
  cut.key = prefix;
  cut.ties = count - static_cast<unsigned>(above);
  return cut;
}

/// Mass of a set; its ties need not be settled.
__device__ __forceinline__ Mass mass_of(const float* x, int n, const Weigher& weigher, const Cut& cut,
                                        PickShared& shared) {
  const Mass above = sum_all(n, shared, [&](int i) { return key_of(x[i]) > cut.key ? weigher.mass(x[i]) : 0; });
  if (cut.ties == 0) return above;
  const Mass equal = sum_all(n, shared, [&](int i) { return key_of(x[i]) == cut.key ? weigher.mass(x[i]) : 0; });
  return above + equal / cut.equal * cut.ties;  // equal logits weigh the same
}

/// The smallest prefix of (logit descending, id ascending) whose mass reaches `target`, at least one; target ≤ all
/// mass.
__device__ __forceinline__ Cut by_mass(const float* x, int n, const Weigher& weigher, double target,
                                       PickShared& shared) {
  Cut cut;
  unsigned prefix = 0;
  Mass above = 0;
  int piece = -1;
  // Level 0 is over pieces (64-bit sums in shared memory are slow where many threads meet); the other levels split one
  // piece by key.
  for (int level = 0; level < 4; ++level) {
    const int bits = level < 3 ? 11 : 10, shift = level == 1 ? 21 : level == 2 ? 10 : 0;
    for (int i = threadIdx.x; i < kBins; i += kThreads) shared.counts[i] = 0, shared.masses[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const float value = x[i];
      const Mass mass = weigher.mass(value);
      if (mass == 0) continue;  // no set needs it
      const int own = piece_of(weigher, value);
      const unsigned key = key_of(value);
      if (level > 0 && (own != piece || (level > 1 && key >> (shift + bits) != prefix))) continue;
      const unsigned bin = level == 0 ? static_cast<unsigned>(own) : key >> shift & ((1u << bits) - 1);
      atomicAdd(&shared.masses[bin], mass);
      if (level == 3) atomicAdd(&shared.counts[bin], 1u);
    }
    __syncthreads();
    walk_bins(shared.masses, shared, [&](Mass sum) { return static_cast<double>(above + sum) >= target; });
    const int bin = shared.found_bin;
    if (bin < 0) {
      __syncthreads();
      return cut;
    }
    above += shared.found_above;
    const Mass in_bin = shared.masses[bin];
    cut.equal = shared.counts[bin];
    if (level == 0)
      piece = bin;
    else
      prefix = prefix << bits | static_cast<unsigned>(bin);
    __syncthreads();
    if (level < 3) continue;
    const double one = static_cast<double>(in_bin / cut.equal), missing = target - static_cast<double>(above);
    cut.key = prefix;
    cut.ties = static_cast<unsigned>(fmin(fmax(ceil(missing / one), 1.0), static_cast<double>(cut.equal)));
  }
  return cut;
}

/// The first index, in id order, at which the sum of f reaches past `share` of the total (by_share) or `count` ones;
/// −1 when none does. f(i) is the integer that index i adds.
template <typename F>
__device__ __forceinline__ int find_in_order(int n, bool by_share, double share, Mass count, PickShared& shared,
                                             const F& f) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = (n + 1023) / 1024;
  Mass* sums = shared.masses;  // kBins ≥ kSampleMaxBlocks
  for (int b = warp; b < blocks; b += 32) {
    Mass sum = 0;
    for (int i = b * 1024 + lane; i < min(n, b * 1024 + 1024); i += 32) sum += f(i);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) sums[b] = sum;
  }
  if (threadIdx.x == 0) shared.found_bin = shared.found_id = -1;
  __syncthreads();
  const Mass own = static_cast<int>(threadIdx.x) < blocks ? sums[threadIdx.x] : 0;
  const Mass end = block_scan(own, shared.warps);
  if (threadIdx.x == kThreads - 1) shared.found_above = end;  // the total
  __syncthreads();
  const double target = share * static_cast<double>(shared.found_above);
  const auto past = [&](Mass sum) { return by_share ? target < static_cast<double>(sum) : sum >= count; };
  __syncthreads();
  if (!past(end - own) && past(end)) {
    shared.found_bin = static_cast<int>(threadIdx.x);
    shared.found_above = end - own;
  }
  __syncthreads();
  const int block = shared.found_bin;
  const Mass before = shared.found_above;
  __syncthreads();
  if (block < 0) return -1;
  const int i = block * 1024 + static_cast<int>(threadIdx.x);
  const Mass mine = i < n ? f(i) : 0;
  const Mass sum = before + block_scan(mine, shared.warps);
  if (!past(sum - mine) && past(sum)) shared.found_id = i;
  __syncthreads();
  const int found = shared.found_id;
  __syncthreads();
  return found;
}

__device__ __forceinline__ void settle_ties(const float* x, int n, Cut& cut, PickShared& shared) {
  if (cut.ties == cut.equal) return;
  cut.tie_id = find_in_order(n, false, 0, cut.ties, shared,
                             [&](int i) { return static_cast<Mass>(x[i] != lowest() && key_of(x[i]) == cut.key); });
}

__device__ __forceinline__ bool inside(const Cut& cut, float x, int id) {
  const unsigned key = key_of(x);
  return x != lowest() && (key > cut.key || (key == cut.key && id <= cut.tie_id));
}

/// Draws from x[0, n), the whole row or what gather() left of it, whose mass is `total` unless that is 0; −1 when no
/// draw is possible. The same in all threads.
__device__ __forceinline__ int draw_from(const float* x, int n, const SampleRow& row, const Weigher& weigher,
                                         Mass total_mass, PickShared& shared) {
  Cut cut;
  if (row.top_k > 0 && row.top_k < n) cut = largest(x, n, static_cast<unsigned>(row.top_k), shared);
  if (row.top_p < 1.0f) {
    const Mass mass = total_mass != 0 ? total_mass : mass_of(x, n, weigher, cut, shared);
    const double total = static_cast<double>(mass);
    const Cut narrow = by_mass(x, n, weigher, static_cast<double>(row.top_p) * total, shared);
    if (narrow.key > cut.key || (narrow.key == cut.key && narrow.ties < cut.ties)) cut = narrow;
  }
  settle_ties(x, n, cut, shared);
  return find_in_order(n, true, row.uniform, 0, shared, [&](int i) -> Mass {
    const float value = x[i];
    if (!inside(cut, value, i)) return 0;
    const float weight = weigher.weight(value);
    return weight < row.min_p ? 0 : __float2ull_rn(weight * 17592186044416.0f);
  });
}

/// Draws from the whole block's row; the same in all threads.
__device__ __forceinline__ int draw(const float* x, const SampleRow& row, float peak, int arg, PickShared& shared) {
  const Weigher weigher{peak, row.temperature};
  const unsigned count = row.top_k > 0 && row.top_k < row.valid ? static_cast<unsigned>(row.top_k) : 0;
  Mass total = 0;
  const bool few = (count > 0 || row.top_p < 1.0f) && gather(x, row.valid, weigher, count, row.top_p, total, shared);
  const int id = draw_from(few ? shared.value : x, few ? shared.found_count : row.valid, row, weigher, total, shared);
  return id < 0 ? arg : few ? shared.id[id] : id;
}

/// The most likely valid ids with their log-probabilities, in order. peak: at least the largest of all logits.
__device__ __forceinline__ void report_top(const float* raw, const SampleRow& row, float peak, double normaliser,
                                           SampleResult& result, PickShared& shared) {
  Mass unused = 0;
  const auto wanted = static_cast<unsigned>(row.top_logprobs);
  const bool few = gather(raw, row.valid, {peak, 1.0f}, wanted, 1.0f, unused, shared);
  const float* x = few ? shared.value : raw;
  const int n = few ? shared.found_count : row.valid;
  Cut cut = largest(x, n, wanted, shared);
  settle_ties(x, n, cut, shared);
  if (threadIdx.x == 0) shared.top_count = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    if (!inside(cut, x[i], i)) continue;
    const int at = atomicAdd(&shared.top_count, 1);
    if (at < kSampleTop) shared.top_id[at] = few ? shared.id[i] : i, shared.top_value[at] = x[i];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const int count = min(shared.top_count, kSampleTop);
  for (int i = 1; i < count; ++i) {  // insertion: the order they came in does not matter
    const int id = shared.top_id[i];
    const float value = shared.top_value[i];
    int j = i;
    for (;
         j > 0 && (shared.top_value[j - 1] < value || (shared.top_value[j - 1] == value && shared.top_id[j - 1] > id));
         --j)
      shared.top_id[j] = shared.top_id[j - 1], shared.top_value[j] = shared.top_value[j - 1];
    shared.top_id[j] = id, shared.top_value[j] = value;
  }
  result.top_count = count;
  for (int i = 0; i < count; ++i) {
    result.top_id[i] = shared.top_id[i];
    result.top_logprob[i] = static_cast<float>(shared.top_value[i] - normaliser);
  }
}

/// What the scan found in a whole row, by one warp, the same in all lanes. normaliser: log Σ e^x, where asked for.
__device__ __forceinline__ ScanPart join_parts(const ScanPart* parts, int count, bool logprobs, double& normaliser) {
  const int lane = threadIdx.x & 31;
  ScanPart all = nothing_found();
  for (int p = lane; p < count; p += 32) join(all, parts[p]);
  join_warp(all, logprobs);
  if (!logprobs) return all;
  double sum = 0;
  for (int p = lane; p < count; p += 32) {
    const ScanPart part = parts[p];
    if (part.raw_sum > 0)
      sum += static_cast<double>(part.raw_sum) * exp(static_cast<double>(part.raw_peak) - all.raw_peak);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  normaliser = all.raw_peak + log(sum);
  return all;
}

/// Grid: rows; block: kThreads; after scan with `parts` blocks a row.
__device__ __forceinline__ void pick(const SampleArgs& args, int parts) {
  __shared__ PickShared shared;
  __shared__ ScanPart found;
  __shared__ double found_normaliser;
  const int r = blockIdx.x;
  const SampleRow row = row_of(args, r);
  SampleResult& result = args.results[r];
  const float* raw = args.logits + r * args.stride;
  const float* x = drawn_from(args, r);
  if (threadIdx.x < 32) {
    double normaliser = 0;
    const ScanPart own =
        join_parts(args.parts + static_cast<long long>(r) * parts, parts, row.logprobs != 0, normaliser);
    if (threadIdx.x == 0) found = own, found_normaliser = normaliser;
  }
  __syncthreads();
  const ScanPart all = found;
  const double normaliser = found_normaliser;
  const SampleFault fault = all.bad != kNobody                            ? SampleFault::kBrokenLogit
                            : all.peak == lowest()                        ? SampleFault::kNothingLeft
                            : row.logprobs != 0 && all.raw_bad != kNobody ? SampleFault::kBrokenLogprobs
                                                                          : SampleFault::kNone;
  if (threadIdx.x == 0) {
    result.top_count = 0;
    result.logprob = __int_as_float(0x7fc00000);
    result.id = -1;
    result.fault = fault;
    result.bad_id = fault == SampleFault::kBrokenLogit ? all.bad : -1;
    result.bad_value = fault == SampleFault::kBrokenLogit ? x[all.bad] : 0;
  }
  if (fault != SampleFault::kNone) return;
  const int id = row.greedy != 0 ? all.arg : draw(x, row, all.peak, all.arg, shared);
  if (row.top_logprobs > 0) report_top(raw, row, all.raw_peak, normaliser, result, shared);
  if (threadIdx.x != 0) return;
  result.id = id;
  if (row.logprobs != 0) result.logprob = static_cast<float>(raw[id] - normaliser);
}

}  // namespace galvani::kernels::sampling
