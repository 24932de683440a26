/// Operations between the products in `galvani bench --kernels --tune`, in the shapes of Llama 3.1 8B and bf16.
#include <fmt/format.h>

#include <chrono>

#include "bench/attention_reference.h"
#include "bench/kernel_session.h"
#include "bench/kernel_tune.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/sampling/sampling_cuda.h"

namespace galvani::bench {
namespace {

using kernels::StoreType;

constexpr int kDim = 4096, kHeads = 32, kKvHeads = 8, kHead = 128, kPage = 64, kHidden = 14336, kVocab = 128256;
constexpr int kTable = 32768;  ///< rows of the embedding: 268 MB, more than any L2 holds
constexpr int kWidth = (kHeads + 2 * kKvHeads) * kHead, kPairs = kHead / 2;
constexpr int64_t kPattern = 1 << 20;  ///< random floats that operands repeat

/// Operands of one case: every copy's place, its pattern on the host, and the first copy's results.
class SmallData {
 public:
  SmallData(KernelSession& session, int64_t bytes_of_copy)
      : copies(session.copies_for(bytes_of_copy)), session_(session), pattern_(static_cast<size_t>(kPattern)) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (float& x : pattern_) x = normal(session.random());
  }

  /// [copies][elements] normal floats; element i of copy c is value(c · elements + i).
  Result<float*> floats(int64_t elements) {
    std::vector<std::byte> bytes(pattern_.size() * 4);
    std::memcpy(bytes.data(), pattern_.data(), bytes.size());
    GALVANI_TRY(DeviceBuffer buffer, session_.random_bytes(copies * elements * 4, bytes, "bench operands"));
    return keep(std::move(buffer))->as<float>();
  }
  float value(int64_t at) const { return pattern_[static_cast<size_t>(at % kPattern)]; }
  std::vector<float> values(int64_t at, int64_t count) const {
    std::vector<float> out(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = value(at + i);
    return out;
  }
  /// [copies][bytes], NaN in every type until something is written.
  Result<char*> output(int64_t bytes) {
    GALVANI_TRY(DeviceBuffer buffer,
                DeviceBuffer::allocate(session_.device(), static_cast<size_t>(copies * bytes), "bench results"));
    GALVANI_TRY_VOID(session_.stream().fill(buffer.data(), 0xff, buffer.size()));
    return keep(std::move(buffer))->as<char>();
  }
  template <typename T>
  Result<const T*> upload(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    GALVANI_TRY(DeviceBuffer buffer, DeviceBuffer::allocate(session_.device(), bytes, "bench tables"));
    GALVANI_TRY_VOID(session_.stream().to_device(buffer.data(), values.data(), bytes));
    GALVANI_TRY_VOID(session_.stream().synchronize());
    return keep(std::move(buffer))->template as<T>();
  }

  /// Of what a launch of copy 0 left: worst is the largest |got − want| over what bf16 and f32 sums may be off.
  Status compare(SmallCase& c, const void* result, StoreType type, int64_t at, const std::vector<float>& want) {
    const auto size = static_cast<size_t>(store_bytes(type));
    std::vector<std::byte> got(want.size() * size);
    GALVANI_TRY_VOID(session_.stream().to_host(
        got.data(), static_cast<const std::byte*>(result) + static_cast<size_t>(at) * size, got.size()));
    GALVANI_TRY_VOID(session_.stream().synchronize());
    double largest = 0;
    for (const float x : want) largest = std::max(largest, static_cast<double>(std::fabs(x)));
    const double u = type == StoreType::kBF16 ? 0x1p-8 : 0x1p-24;
    for (size_t i = 0; i < want.size(); ++i) {
      float x = 0;
      if (type == StoreType::kF32) std::memcpy(&x, got.data() + i * 4, 4);
      if (type == StoreType::kBF16) x = static_cast<float>(bf16_at(got, static_cast<int64_t>(i)));
      const double share = std::fabs(static_cast<double>(x) - static_cast<double>(want[i])) /
                           (u * std::fabs(static_cast<double>(want[i])) + 0x1p-18 * largest);
      if (!(share <= c.worst)) c.worst = std::isnan(share) ? INFINITY : share;
    }
    return {};
  }
  template <typename Launch>
  Status time(SmallCase& c, const Launch& launch) {
    if (!(c.worst <= 1)) return fail(ErrorCode::kInternal, "wrong: {:.3g} of what rounding explains", c.worst);
    GALVANI_TRY(c.time, session_.time(copies, launch));
    return {};
  }

  const int64_t copies;

 private:
  DeviceBuffer* keep(DeviceBuffer buffer) {
    kept_.push_back(std::make_unique<DeviceBuffer>(std::move(buffer)));
    return kept_.back().get();
  }
  KernelSession& session_;
  std::vector<float> pattern_;
  std::vector<std::unique_ptr<DeviceBuffer>> kept_;
};

/// out = norm(x); of_sum: x += y before.
Status norm(KernelSession& session, SmallCase& c, bool of_sum) {
  const int64_t elements = int64_t{c.rows} * kDim;
  c.bytes = elements * (of_sum ? 14 : 6);
  SmallData data(session, c.bytes);
  GALVANI_TRY(float* x, data.floats(elements));
  const float* y = nullptr;
  if (of_sum) {
    GALVANI_TRY(y, data.floats(elements + 5));  // so that what is added is another part of the pattern
    y += 4;
  }
  GALVANI_TRY(char* out, data.output(elements * 2));
  GALVANI_TRY(const float* w, data.upload(data.values(17, kDim)));
  const auto launch = [&](int64_t copy) {
    return kernels::rms_norm_cuda(session.stream(), {.x = x + copy * elements,
                                                     .x_stride = kDim,
                                                     .rows = c.rows,
                                                     .dim = kDim,
                                                     .add = of_sum ? y + copy * elements : nullptr,
                                                     .add_stride = kDim,
                                                     .norm = {.w = w},
                                                     .out = out + copy * elements * 2,
                                                     .out_stride = kDim,
                                                     .out_type = StoreType::kBF16});
  };
  GALVANI_TRY_VOID(launch(0));
  for (const int64_t row : {int64_t{0}, int64_t{c.rows} - 1}) {
    std::vector<float> want(kDim);
    auto in = data.values(row * kDim, kDim);
    const auto added = data.values(row * kDim + 4, kDim), weights = data.values(17, kDim);
    if (of_sum) kernels::add(in.data(), added.data(), kDim);
    kernels::rms_norm(in.data(), 1, kDim, kDim, weights.data(), {}, want.data(), kDim);
    GALVANI_TRY_VOID(data.compare(c, out, StoreType::kBF16, row * kDim, want));
  }
  return data.time(c, launch);
}

/// Queries, keys and values of consecutive positions: rope, then to q and to pages.
Status qkv(KernelSession& session, SmallCase& c) {
  const int64_t elements = int64_t{c.rows} * kWidth, pages = (c.rows + kPage - 1) / kPage;
  const int64_t q_bytes = int64_t{c.rows} * kHeads * kHead * 2, side = pages * kKvHeads * kPage * kHead * 2;
  c.bytes = elements * 6;
  SmallData data(session, c.bytes);
  GALVANI_TRY(const float* x, data.floats(elements));
  GALVANI_TRY(char* q, data.output(q_bytes));
  GALVANI_TRY(char* kv, data.output(2 * side));
  GALVANI_TRY(char* table, data.output(int64_t{c.rows} * kPairs * 8));
  std::vector<float> inv_freq;
  for (int i = 0; i < kPairs; ++i) inv_freq.push_back(std::pow(500000.0f, -static_cast<float>(i) / kPairs));
  std::vector<int> positions, blocks;
  for (int i = 0; i < c.rows; ++i) positions.push_back(i);
  for (int64_t i = 0; i < pages; ++i) blocks.push_back(static_cast<int>(i));
  std::shuffle(blocks.begin(), blocks.end(), session.random());
  GALVANI_TRY(const float* frequencies, data.upload(inv_freq));
  GALVANI_TRY(const int* positions_on, data.upload(positions));
  GALVANI_TRY(const int* blocks_on, data.upload(blocks));
  GALVANI_TRY(const int* sequences_on, data.upload(std::vector<int>(positions.size(), 0)));
  GALVANI_TRY_VOID(kernels::rope_table_cuda(session.stream(), {.positions = positions_on,
                                                               .inv_freq = frequencies,
                                                               .rows = c.rows,
                                                               .pairs = kPairs,
                                                               .table = reinterpret_cast<float*>(table)}));
  const long long stride = int64_t{kKvHeads} * kPage * kHead * 2;
  const auto launch = [&](int64_t copy) {
    char* const k = kv + copy * 2 * side;
    return kernels::qkv_finish_cuda(session.stream(), {.x = x + copy * elements,
                                                       .x_stride = kWidth,
                                                       .k_column = kHeads * kHead,
                                                       .v_column = (kHeads + kKvHeads) * kHead,
                                                       .rows = c.rows,
                                                       .heads = kHeads,
                                                       .rope = reinterpret_cast<const float*>(table),
                                                       .rope_pairs = kPairs,
                                                       .q = q + copy * q_bytes,
                                                       .q_stride = kHeads * kHead,
                                                       .kv = {k, k + side, stride, stride, kKvHeads, kHead, kHead},
                                                       .type = StoreType::kBF16,
                                                       .tables = {blocks_on, static_cast<int>(pages)},
                                                       .positions = positions_on,
                                                       .sequence = sequences_on});
  };
  GALVANI_TRY_VOID(launch(0));
  for (const int row : {0, c.rows - 1}) {
    auto turned = data.values(int64_t{row} * kWidth, kWidth);
    kernels::rope_half_split(turned.data(), 1, kHeads + kKvHeads, kHead, kWidth, &positions[static_cast<size_t>(row)],
                             inv_freq.data(), kHead, 1);
    const auto part = [&](int head, int count) {
      return std::vector<float>(turned.begin() + head * kHead, turned.begin() + (head + count) * kHead);
    };
    GALVANI_TRY_VOID(data.compare(c, q, StoreType::kBF16, int64_t{row} * kHeads * kHead, part(0, kHeads)));
    const int64_t page = blocks[static_cast<size_t>(row / kPage)];
    for (int h = 0; h < kKvHeads; ++h) {
      const int64_t at = ((page * kKvHeads + h) * kPage + row % kPage) * kHead;
      GALVANI_TRY_VOID(data.compare(c, kv, StoreType::kBF16, at, part(kHeads + h, 1)));
      GALVANI_TRY_VOID(data.compare(c, kv + side, StoreType::kBF16, at, part(kHeads + kKvHeads + h, 1)));
    }
  }
  return data.time(c, launch);
}

Status gated(KernelSession& session, SmallCase& c) {
  const int64_t elements = int64_t{c.rows} * 2 * kHidden, out_bytes = int64_t{c.rows} * kHidden * 2;
  c.bytes = elements * 4 + out_bytes;
  SmallData data(session, c.bytes);
  GALVANI_TRY(const float* x, data.floats(elements));
  GALVANI_TRY(char* out, data.output(out_bytes));
  const auto launch = [&](int64_t copy) {
    return kernels::gated_cuda(session.stream(), {.gate = x + copy * elements,
                                                  .up = x + copy * elements + kHidden,
                                                  .gate_stride = 2 * kHidden,
                                                  .up_stride = 2 * kHidden,
                                                  .rows = c.rows,
                                                  .dim = kHidden,
                                                  .out = out + copy * out_bytes,
                                                  .out_stride = kHidden,
                                                  .out_type = StoreType::kBF16});
  };
  GALVANI_TRY_VOID(launch(0));
  for (const int64_t row : {int64_t{0}, int64_t{c.rows} - 1}) {
    std::vector<float> want(kHidden);
    const auto gate = data.values(row * 2 * kHidden, kHidden), up = data.values((row * 2 + 1) * kHidden, kHidden);
    kernels::swiglu(gate.data(), up.data(), 1, kHidden, kHidden, kHidden, want.data(), kHidden);
    GALVANI_TRY_VOID(data.compare(c, out, StoreType::kBF16, row * kHidden, want));
  }
  return data.time(c, launch);
}

/// Rows of a bf16 table, tokens at random.
Status embed(KernelSession& session, SmallCase& c) {
  const int64_t out_bytes = int64_t{c.rows} * kDim * 4;
  c.bytes = int64_t{c.rows} * kDim * (4 + 2);
  SmallData data(session, c.bytes);
  const std::vector<std::byte> pattern = session.normal16(kPattern, 1);
  GALVANI_TRY(const DeviceBuffer table, session.random_bytes(int64_t{kTable} * kDim * 2, pattern, "bench table"));
  GALVANI_TRY(char* out, data.output(out_bytes));
  std::vector<int> tokens(static_cast<size_t>(data.copies * c.rows));
  for (int& token : tokens) token = static_cast<int>(session.random()() % kTable);
  GALVANI_TRY(const int* tokens_on, data.upload(tokens));
  const auto launch = [&](int64_t copy) {
    return kernels::embed_cuda(session.stream(), {.tokens = tokens_on + copy * c.rows,
                                                  .rows = c.rows,
                                                  .dim = kDim,
                                                  .table = table.data(),
                                                  .type = StoreType::kBF16,
                                                  .out = reinterpret_cast<float*>(out + copy * out_bytes)});
  };
  GALVANI_TRY_VOID(launch(0));
  for (const int row : {0, c.rows - 1}) {
    std::vector<float> want;
    for (int64_t i = 0; i < kDim; ++i)
      want.push_back(
          static_cast<float>(bf16_at(pattern, (int64_t{tokens[static_cast<size_t>(row)]} * kDim + i) % kPattern)));
    GALVANI_TRY_VOID(data.compare(c, out, StoreType::kF32, int64_t{row} * kDim, want));
  }
  return data.time(c, launch);
}

/// One call of the sampler, from logits on the device to ids on the host: what a step waits for.
Status sample(KernelSession& session, SmallCase& c, const kernels::RowSampling& row) {
  c.bytes = int64_t{c.rows} * kVocab * 4;
  c.on_host = true;
  SmallData data(session, c.bytes);
  GALVANI_TRY(const float* logits, data.floats(int64_t{c.rows} * kVocab));
  GALVANI_TRY(auto sampler, kernels::CudaSampler::create(session.device()));
  const std::vector<kernels::RowSampling> rows(static_cast<size_t>(c.rows), row);
  std::vector<float> host = data.values(0, int64_t{c.rows} * kVocab);
  GALVANI_TRY(const auto want, kernels::sample(host.data(), c.rows, kVocab, kVocab, rows));
  constexpr int kUncounted = 3, kCounted = 21;
  for (int i = 0; i < kUncounted + kCounted; ++i) {
    const int64_t copy = i % data.copies;
    const auto start = std::chrono::steady_clock::now();
    GALVANI_TRY(const auto got,
                sampler.sample(session.stream(), logits + copy * c.rows * kVocab, c.rows, kVocab, kVocab, rows));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (copy == 0)
      for (size_t r = 0; r < want.size(); ++r)
        if (got[r].id != want[r].id)
          return fail(ErrorCode::kInternal, "wrong: row {} drew token {}, the CPU drew {}", r, got[r].id, want[r].id);
    if (i >= kUncounted) c.time.samples.push_back(took.count());
  }
  spread(c.time);
  return {};
}

}  // namespace

std::vector<SmallCase> small_tune_cases() {
  std::vector<SmallCase> cases;
  const auto add = [&](SmallCase::Operation operation, std::initializer_list<int> rows) {
    for (const int r : rows) {
      SmallCase c;
      c.operation = operation, c.rows = r;
      cases.push_back(std::move(c));
    }
  };
  using Operation = SmallCase::Operation;
  add(Operation::kNorm, {1, 256, 2048, 8192}), add(Operation::kNormOfSum, {1, 8192});
  add(Operation::kQkv, {1, 256, 2048, 8192}), add(Operation::kGated, {1, 8192}), add(Operation::kEmbed, {1, 8192});
  add(Operation::kGreedy, {1, 16}), add(Operation::kTopKTopP, {1, 16});
  return cases;
}

std::string small_name(const SmallCase& c) {
  switch (c.operation) {
    case SmallCase::Operation::kNorm: return fmt::format("norm of {} × {}", c.rows, kDim);
    case SmallCase::Operation::kNormOfSum: return fmt::format("x += y and norm of {} × {}", c.rows, kDim);
    case SmallCase::Operation::kQkv:
      return fmt::format("rope and append of {} × {} + 2 · {} heads of {}", c.rows, kHeads, kKvHeads, kHead);
    case SmallCase::Operation::kGated: return fmt::format("silu(gate) · up of {} × {}", c.rows, kHidden);
    case SmallCase::Operation::kEmbed: return fmt::format("embedding, {} rows of {} from bf16", c.rows, kDim);
    case SmallCase::Operation::kGreedy: return fmt::format("greedy, {} × {}", c.rows, kVocab);
    case SmallCase::Operation::kTopKTopP: return fmt::format("top-k 64, top-p 0.95, {} × {}", c.rows, kVocab);
  }
  return "";
}

Status tune_small(KernelSession& session, SmallCase& c) {
  const auto measure = [&]() -> Status {
    switch (c.operation) {
      case SmallCase::Operation::kNorm: return norm(session, c, false);
      case SmallCase::Operation::kNormOfSum: return norm(session, c, true);
      case SmallCase::Operation::kQkv: return qkv(session, c);
      case SmallCase::Operation::kGated: return gated(session, c);
      case SmallCase::Operation::kEmbed: return embed(session, c);
      case SmallCase::Operation::kGreedy: return sample(session, c, {.temperature = 0});
      case SmallCase::Operation::kTopKTopP: return sample(session, c, {.top_k = 64, .top_p = 0.95f, .seed = 7});
    }
    return {};
  };
  if (const Status status = measure(); !status) {
    c.failure = status.error().message;
    GALVANI_TRY_VOID(session.device().alive());
  }
  return {};
}

}  // namespace galvani::bench
