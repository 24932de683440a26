/// Attention decode in `galvani bench --kernels --tune`, with segments of many sizes.
#include <fmt/format.h>

#include <algorithm>

#include "bench/attention_reference.h"
#include "bench/kernel_session.h"
#include "bench/kernel_tune.h"
#include "kernels/attention/attention_cuda.h"

namespace galvani::bench {
namespace {

using kernels::AttentionCudaChoice;
using kernels::AttentionCudaShape;
using kernels::AttentionRowsArgs;

constexpr int kPage = 64;
constexpr int64_t kPattern = 1 << 20;  ///< random elements that pages repeat

/// Device memory of one case: pages of all copies (keys, then values, of each), the queries, the tables, the results.
class DecodeData {
 public:
  static Result<DecodeData> make(KernelSession& session, const AttentionTuneCase& c) {
    DecodeData d;
    d.side_ = int64_t{c.batch} * c.length * c.kv_heads * c.dim * 2;
    d.copies = session.copies_for(2 * d.side_);
    d.pattern_ = session.normal16(kPattern, 1);
    d.query_ = session.normal16(int64_t{c.batch} * c.heads * c.dim, 1);
    GALVANI_TRY(d.pages, session.random_bytes(2 * d.side_ * d.copies, d.pattern_, "tune pages"));
    GALVANI_TRY(d.q_, session.random_bytes(static_cast<int64_t>(d.query_.size()), d.query_, "tune queries"));
    const int per_sequence = c.length / kPage;
    for (int i = 0; i < c.batch * per_sequence; ++i) d.blocks_.push_back(i);
    std::shuffle(d.blocks_.begin(), d.blocks_.end(), session.random());
    for (int r = 0; r < c.batch; ++r) d.positions_.push_back(c.length - 1), d.sequences_.push_back(r);
    GALVANI_TRY(d.tables_, d.upload(session, d.blocks_));
    GALVANI_TRY(d.positions_on_, d.upload(session, d.positions_));
    GALVANI_TRY(d.sequences_on_, d.upload(session, d.sequences_));
    GALVANI_TRY(d.out,
                DeviceBuffer::allocate(session.device(), static_cast<size_t>(c.batch) * c.heads * c.dim * 4, "tune"));
    d.compute_reference(session, c);
    return d;
  }

  /// Room and schedule for segments of `segment` tokens.
  Status cut(KernelSession& session, const AttentionTuneCase& c, int segment) {
    std::vector<int> schedule(static_cast<size_t>(c.batch) + 2);
    const int segments = kernels::attention_schedule(positions_, 0, segment, schedule.data());
    GALVANI_TRY(schedule_, upload(session, schedule));
    const size_t parts = static_cast<size_t>(segments) * static_cast<size_t>(c.heads);
    GALVANI_TRY(part_out_, DeviceBuffer::allocate(session.device(), parts * static_cast<size_t>(c.dim) * 4, "tune"));
    GALVANI_TRY(part_stat_, DeviceBuffer::allocate(session.device(), parts * 8, "tune"));
    return {};
  }

  AttentionRowsArgs args(const AttentionTuneCase& c, int64_t copy) const {
    const char* const k = pages.as<char>() + copy * 2 * side_;
    const int64_t stride = int64_t{c.kv_heads} * kPage * c.dim * 2;
    return {.kv = {k, k + side_, stride, stride, c.kv_heads, c.dim, c.dim},
            .tables = {tables_.as<int>(), c.length / kPage},
            .score = {scale(c), 0, 0},
            .rows = c.batch,
            .heads = c.heads,
            .q = q_.data(),
            .q_stride = int64_t{c.heads} * c.dim,
            .positions = positions_on_.as<int>(),
            .sequence = sequences_on_.as<int>(),
            .settled = true,
            .schedule = schedule_.as<int>(),
            .part_out = part_out_.as<float>(),
            .part_stat = part_stat_.as<float>(),
            .out = out.data(),
            .out_stride = int64_t{c.heads} * c.dim};
  }

  /// Largest difference from f64 over its bound.
  double worst(const std::vector<float>& got) const {
    return attention_worst(elements_, [&](int64_t at) { return got[static_cast<size_t>(at)]; });
  }

  int64_t copies = 0;
  DeviceBuffer pages, out;
  int64_t bytes() const { return 2 * side_; }

 private:
  /// f64 of the first, the last and one more (row, head), of copy 0.
  void compute_reference(KernelSession& session, const AttentionTuneCase& c) {
    const auto any = [&](int n) { return static_cast<int>(session.random()() % static_cast<unsigned>(n)); };
    for (int draw = 0; draw < 3; ++draw) {
      const int row = draw == 0 ? 0 : draw == 1 ? c.batch - 1 : any(c.batch);
      const int head = draw == 0 ? 0 : draw == 1 ? c.heads - 1 : any(c.heads);
      const int64_t q0 = (int64_t{row} * c.heads + head) * c.dim;
      const auto element = [&](int64_t base, int token, int i) {  // of this head's kv head; base in elements
        const int64_t page = blocks_[static_cast<size_t>(row * (c.length / kPage) + token / kPage)];
        const int64_t at = (page * c.kv_heads + head / (c.heads / c.kv_heads)) * kPage + token % kPage;
        return bf16_at(pattern_, (base + at * c.dim + i) % kPattern);
      };
      attention_reference(
          c.length, c.dim, static_cast<double>(scale(c)), 0, q0, [&](int i) { return bf16_at(query_, q0 + i); },
          [&](int t, int i) { return element(0, t, i); }, [&](int t, int i) { return element(side_ / 2, t, i); },
          elements_);
    }
  }

  static float scale(const AttentionTuneCase& c) { return 1.0f / std::sqrt(static_cast<float>(c.dim)); }
  static Result<DeviceBuffer> upload(KernelSession& session, const std::vector<int>& values) {
    GALVANI_TRY(DeviceBuffer buffer, DeviceBuffer::allocate(session.device(), values.size() * 4, "tune"));
    GALVANI_TRY_VOID(session.stream().to_device(buffer.data(), values.data(), values.size() * 4));
    GALVANI_TRY_VOID(session.stream().synchronize());
    return buffer;
  }

  int64_t side_ = 0;  ///< bytes of the keys of a copy, and of the values
  std::vector<std::byte> pattern_, query_;
  std::vector<int> blocks_, positions_, sequences_;
  std::vector<AttentionElement> elements_;
  DeviceBuffer q_, tables_, positions_on_, sequences_on_, schedule_, part_out_, part_stat_;
};

Status tune_row(KernelSession& session, const AttentionTuneCase& c, DecodeData& data, const AttentionCudaChoice& choice,
                AttentionTuneRow& row) {
  GALVANI_TRY_VOID(data.cut(session, c, row.segment));
  const auto launch = [&](int64_t copy) {
    return kernels::attention_decode_cuda(session.stream(), choice, data.args(c, copy));
  };
  GALVANI_TRY_VOID(session.stream().fill(data.out.data(), 0xff, data.out.size()));
  GALVANI_TRY_VOID(launch(0));
  std::vector<float> got(data.out.size() / 4);
  GALVANI_TRY_VOID(session.stream().to_host(got.data(), data.out.data(), data.out.size()));
  GALVANI_TRY_VOID(session.stream().synchronize());
  row.worst = data.worst(got);
  if (!(row.worst <= 1)) return fail(ErrorCode::kInternal, "wrong: {:.3g} of the error bound", row.worst);
  GALVANI_TRY(row.time, session.time(data.copies, launch));
  return {};
}

}  // namespace

std::vector<AttentionTuneCase> attention_tune_cases() {
  std::vector<AttentionTuneCase> cases;
  const auto add = [&](int dim, int batch, int heads, int kv_heads, int length) {
    AttentionTuneCase c;
    c.dim = dim, c.batch = batch, c.heads = heads, c.kv_heads = kv_heads, c.length = length;
    cases.push_back(std::move(c));
  };
  add(128, 3, 32, 8, 4096), add(64, 8, 9, 3, 8192);  // 50 MB, where the goal begins
  add(128, 4, 32, 8, 4096), add(128, 1, 64, 8, 32768), add(64, 16, 9, 3, 8192), add(256, 8, 4, 1, 16384);
  add(128, 1, 32, 8, 8192), add(128, 16, 32, 8, 4096);
  return cases;
}

Status tune_attention(KernelSession& session, AttentionTuneCase& c) {
  const AttentionCudaShape shape{c.heads, c.kv_heads, c.dim, c.dim, DType::kBF16};
  const DeviceCaps& caps = session.device().caps();
  GALVANI_TRY(DecodeData data, DecodeData::make(session, c));
  c.bytes = data.bytes();
  GALVANI_TRY(c.read, session.time_read(data.pages, c.bytes, data.copies));
  const std::vector<int> positions(static_cast<size_t>(c.batch), c.length - 1);
  const int own = kernels::plan_attention_segment(caps, shape, positions.data(), c.batch, 0, false);
  const AttentionCudaChoice planned = kernels::plan_attention_decode(caps, shape);
  if (planned.kernel == nullptr) return {};
  std::vector<int> segments = {128, 192, 256, 320, 384, 448, 512, 640, 704, 768, 1024, 1536, 2048};
  if (std::find(segments.begin(), segments.end(), own) == segments.end()) segments.push_back(own);
  for (const int segment : segments) {
    if (segment > c.length && segment != own) continue;
    AttentionTuneRow row;
    row.kernel = planned.kernel, row.segment = segment, row.chosen = segment == own;
    if (const Status status = tune_row(session, c, data, planned, row); !status) {
      row.failure = status.error().message;
      GALVANI_TRY_VOID(session.device().alive());
    }
    c.rows.push_back(std::move(row));
  }
  return {};
}

}  // namespace galvani::bench
