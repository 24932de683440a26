/// Attention of a whole prompt in `galvani bench --kernels --tune`: as an engine's prefill of one chunk has it, pages
/// in random order.
#include <algorithm>

#include "bench/attention_reference.h"
#include "bench/kernel_session.h"
#include "bench/kernel_tune.h"
#include "kernels/attention/attention_cuda.h"

namespace galvani::bench {
namespace {

using kernels::AttentionCudaChoice;
using kernels::AttentionCudaShape;
using kernels::AttentionTileRows;
using kernels::AttentionTilesArgs;

constexpr int kPage = 64;
constexpr int64_t kPattern = 1 << 20;  ///< random elements that pages and queries repeat

/// Device memory of one case: pages of all copies (keys, then values, of each), queries, tables, the result.
class PrefillData {
 public:
  static Result<PrefillData> make(KernelSession& session, const AttentionPrefillCase& c, int tile_rows) {
    PrefillData d;
    const int pages = (c.length + kPage - 1) / kPage;
    d.side_ = int64_t{pages} * kPage * c.kv_heads * c.dim * 2;
    d.copies = session.copies_for(2 * d.side_);
    d.elements_of_row_ = int64_t{c.heads} * c.dim;
    const int64_t elements = c.length * d.elements_of_row_;
    d.pattern_ = session.normal16(kPattern, 1), d.query_ = session.normal16(std::min(kPattern, elements), 1);
    GALVANI_TRY(d.pages_, session.random_bytes(2 * d.side_ * d.copies, d.pattern_, "prefill pages"));
    GALVANI_TRY(d.q_, session.random_bytes(2 * elements, d.query_, "prefill queries"));
    GALVANI_TRY(d.out, DeviceBuffer::allocate(session.device(), static_cast<size_t>(2 * elements), "prefill result"));
    for (int i = 0; i < pages; ++i) d.blocks_.push_back(i);
    std::shuffle(d.blocks_.begin(), d.blocks_.end(), session.random());
    std::vector<AttentionTileRows> tiles;
    kernels::attention_tiles(0, c.length, 0, 0, tile_rows, tiles);
    kernels::sort_attention_tiles(tiles, 0);
    d.tiles = static_cast<int>(tiles.size());
    GALVANI_TRY(d.tables_, d.upload(session, d.blocks_));
    GALVANI_TRY(d.tiles_, d.upload(session, tiles));
    d.compute_reference(session, c);
    return d;
  }

  AttentionTilesArgs args(const AttentionPrefillCase& c, int64_t copy) const {
    const char* const k = pages_.as<char>() + copy * 2 * side_;
    const int64_t stride = int64_t{c.kv_heads} * kPage * c.dim * 2;
    return {.kv = {k, k + side_, stride, stride, c.kv_heads, c.dim, c.dim},
            .tables = {tables_.as<int>(), static_cast<int>(blocks_.size())},
            .score = {scale(c), 0, 0},
            .heads = c.heads,
            .q = q_.data(),
            .q_stride = elements_of_row_,
            .tiles = tiles_.as<AttentionTileRows>(),
            .out = out.data(),
            .out_stride = elements_of_row_,
            .out_type = kernels::StoreType::kBF16};
  }

  double worst(const std::vector<std::byte>& got) const {
    return attention_worst(elements_, [&](int64_t at) { return bf16_at(got, at); });
  }

  int64_t copies = 0;
  int tiles = 0;
  DeviceBuffer out;

 private:
  /// f64 of the first and the last row, and of some between them, each of any head, of copy 0.
  void compute_reference(KernelSession& session, const AttentionPrefillCase& c) {
    const auto any = [&](int n) { return static_cast<int>(session.random()() % static_cast<unsigned>(n)); };
    for (int draw = 0; draw < 8; ++draw) {
      const int row = draw == 0 ? 0 : draw == 1 ? c.length - 1 : any(c.length), head = any(c.heads);
      const int64_t q0 = row * elements_of_row_ + int64_t{head} * c.dim;
      const auto element = [&](int64_t base, int token, int i) {  // of this head's kv head; base in elements
        const int64_t page = blocks_[static_cast<size_t>(token / kPage)];
        const int64_t at = (page * c.kv_heads + head / (c.heads / c.kv_heads)) * kPage + token % kPage;
        return bf16_at(pattern_, (base + at * c.dim + i) % kPattern);
      };
      const auto count = static_cast<int64_t>(query_.size() / 2);
      attention_reference(
          row + 1, c.dim, static_cast<double>(scale(c)), 0x1p-8, q0,
          [&](int i) { return bf16_at(query_, (q0 + i) % count); }, [&](int t, int i) { return element(0, t, i); },
          [&](int t, int i) { return element(side_ / 2, t, i); }, elements_);
    }
  }

  static float scale(const AttentionPrefillCase& c) { return 1.0f / std::sqrt(static_cast<float>(c.dim)); }
  template <typename T>
  static Result<DeviceBuffer> upload(KernelSession& session, const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    GALVANI_TRY(DeviceBuffer buffer, DeviceBuffer::allocate(session.device(), bytes, "prefill tables"));
    GALVANI_TRY_VOID(session.stream().to_device(buffer.data(), values.data(), bytes));
    GALVANI_TRY_VOID(session.stream().synchronize());
    return buffer;
  }

  int64_t side_ = 0;  ///< bytes of the keys of a copy, and of the values
  int64_t elements_of_row_ = 0;
  std::vector<std::byte> pattern_, query_;
  std::vector<int> blocks_;
  std::vector<AttentionElement> elements_;
  DeviceBuffer pages_, q_, tables_, tiles_;
};

Status check_and_time(KernelSession& session, const AttentionCudaChoice& choice, AttentionPrefillCase& c) {
  GALVANI_TRY(PrefillData data, PrefillData::make(session, c, choice.rows));
  const auto launch = [&](int64_t copy) {
    return kernels::attention_tiles_cuda(session.stream(), choice, data.args(c, copy), data.tiles);
  };
  GALVANI_TRY_VOID(session.stream().fill(data.out.data(), 0xff, data.out.size()));
  GALVANI_TRY_VOID(launch(0));
  std::vector<std::byte> got(data.out.size());
  GALVANI_TRY_VOID(session.stream().to_host(got.data(), data.out.data(), got.size()));
  GALVANI_TRY_VOID(session.stream().synchronize());
  c.worst = data.worst(got);
  if (!(c.worst <= 1)) return fail(ErrorCode::kInternal, "wrong: {:.3g} of the error bound", c.worst);
  for (size_t i = 0; i < got.size() / 2; ++i)
    if (!std::isfinite(bf16_at(got, static_cast<int64_t>(i))))
      return fail(ErrorCode::kInternal, "wrong: element {} of the result was left unwritten", i);
  GALVANI_TRY(c.time, session.time(data.copies, launch));
  return {};
}

}  // namespace

std::vector<AttentionPrefillCase> attention_prefill_cases() {
  std::vector<AttentionPrefillCase> cases;
  const auto add = [&](int dim, int heads, int kv_heads, int length) {
    AttentionPrefillCase c;
    c.dim = dim, c.heads = heads, c.kv_heads = kv_heads, c.length = length;
    cases.push_back(std::move(c));
  };
  add(128, 32, 8, 8192), add(256, 16, 8, 8192), add(64, 32, 8, 8192), add(128, 32, 8, 2048);
  return cases;
}

Status time_attention_prefill(KernelSession& session, AttentionPrefillCase& c) {
  const AttentionCudaShape shape{c.heads, c.kv_heads, c.dim, c.dim, DType::kBF16};
  const AttentionCudaChoice choice = kernels::plan_attention_tiles(session.device().caps(), shape, c.length);
  c.operations = 2.0 * c.heads * c.dim * c.length * (c.length + 1.0);
  if (choice.kernel == nullptr) {
    c.failure = choice.refusal;
    return {};
  }
  c.kernel = choice.kernel;
  if (const Status status = check_and_time(session, choice, c); !status) {
    c.failure = status.error().message;
    GALVANI_TRY_VOID(session.device().alive());  // nothing more to learn from a dead device
  }
  return {};
}

}  // namespace galvani::bench
