#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/check_rig.h"
#include "kernels/op_checks.h"

namespace galvani::kernels {
namespace {

constexpr int kLength = 70, kHeads = 2, kKvHeads = 1, kPages = 2;

/// One sequence of 70 tokens over two pages, with f64 results and Σ p|v| for the bounds.
struct Sequence {
  AttentionCudaShape shape;
  StoreType type = StoreType::kF32;
  std::vector<std::byte> k_pool, v_pool;
  std::vector<float> q;
  std::vector<int32_t> blocks = {1, 0};
  KvLayer layer;
  AttentionParams params;
  std::vector<double> exact, size;

  size_t out_size() const { return static_cast<size_t>(kLength * kHeads * shape.v_dim); }
};

void reference(Sequence& s, const std::vector<float>& k, std::vector<float> v, std::vector<double>& out) {
  const AttentionChunk chunk{0, kLength, 0, s.blocks.data()};
  const std::span<const AttentionChunk> chunks(&chunk, 1);
  kv_append(s.layer, chunks, k.data(), kKvHeads * s.shape.k_dim, v.data(), kKvHeads * s.shape.v_dim);
  out.resize(s.out_size());
  attention_ref(s.layer, s.params, chunks, s.q.data(), kHeads * s.shape.k_dim, out.data(), kHeads * s.shape.v_dim);
}

Result<Sequence> make_sequence(CheckRig& rig, int dim, DType kv) {
  Sequence s;
  s.shape = {.heads = kHeads, .kv_heads = kKvHeads, .k_dim = dim, .v_dim = dim, .kv = kv};
  s.type = kv == DType::kF32 ? StoreType::kF32 : kv == DType::kF16 ? StoreType::kF16 : StoreType::kBF16;
  const int64_t page = int64_t{kKvHeads} * kPageTokens * dim * store_bytes(s.type);
  s.k_pool.assign(static_cast<size_t>(kPages * page), std::byte{0xff});
  s.v_pool = s.k_pool;
  s.layer = {s.k_pool.data(), s.v_pool.data(), page, page, kKvHeads, dim, dim, kv};
  s.params = {.heads = kHeads, .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
  s.q = rig.normal(static_cast<size_t>(kLength * kHeads * dim));
  GALVANI_TRY_VOID(rig.upload_as(s.q, s.type));  // rounds them to what the pages' type holds
  const auto k = rig.normal(static_cast<size_t>(kLength * kKvHeads * dim));
  auto v = rig.normal(k.size()), positive = v;
  for (float& x : positive) x = std::fabs(x);
  reference(s, k, positive, s.size);
  reference(s, k, v, s.exact);
  return s;
}

/// What the two kinds of launch share, on the device.
struct Uploaded {
  PagedKv kv;
  BlockTables tables;
  const void* q = nullptr;
  void* out = nullptr;
};

Result<Uploaded> upload(CheckRig& rig, Sequence& s) {
  Uploaded u;
  GALVANI_TRY(const std::byte* k, rig.upload(s.k_pool));
  GALVANI_TRY(const std::byte* v, rig.upload(s.v_pool));
  u.kv = {reinterpret_cast<const char*>(k),
          reinterpret_cast<const char*>(v),
          s.layer.k_page_stride,
          s.layer.v_page_stride,
          kKvHeads,
          s.shape.k_dim,
          s.shape.v_dim};
  GALVANI_TRY(u.tables.blocks, rig.upload(s.blocks));
  u.tables.max_blocks = kPages;
  GALVANI_TRY(u.q, rig.upload_as(s.q, s.type));
  GALVANI_TRY(u.out, rig.output(s.out_size(), StoreType::kF32));
  return u;
}

/// Weights are rounded to the pages' type before they meet the values, scores and sums are f32.
Result<double> judge(CheckRig& rig, const Sequence& s, const void* out, bool rounds_weights) {
  GALVANI_TRY(const auto got, rig.read(out, s.out_size(), StoreType::kF32));
  const double unit = rounds_weights ? store_roundoff(s.type) : 0;
  return worst_share(got, s.exact, [&](size_t i) {
    return 1.05 * 0x1p-24 * std::fabs(s.exact[i]) + (1.05 * unit + 0x1p-16) * s.size[i];
  });
}

Result<double> run_rows(CheckRig& rig, Sequence& s, const AttentionCudaChoice& choice, bool decode) {
  GALVANI_TRY(const Uploaded u, upload(rig, s));
  std::vector<int> positions(kLength), sequence(kLength, 0), schedule(kLength + 2);
  for (int i = 0; i < kLength; ++i) positions[static_cast<size_t>(i)] = i;
  const int segments = attention_schedule(positions, 0, kSmallestSegment, schedule.data());
  const auto parts = static_cast<size_t>(segments * kHeads);
  AttentionRowsArgs args{.kv = u.kv, .tables = u.tables, .score = {s.params.scale, 0, 0}};
  args.rows = kLength, args.heads = kHeads, args.q = u.q, args.q_stride = int64_t{kHeads} * s.shape.k_dim;
  args.out = u.out, args.out_stride = int64_t{kHeads} * s.shape.v_dim;
  GALVANI_TRY(args.positions, rig.upload(positions));
  GALVANI_TRY(args.sequence, rig.upload(sequence));
  GALVANI_TRY(args.schedule, rig.upload(schedule));
  GALVANI_TRY(void* part_out, rig.output(parts * static_cast<size_t>(s.shape.v_dim), StoreType::kF32));
  GALVANI_TRY(void* part_stat, rig.output(parts * 2, StoreType::kF32));
  args.part_out = static_cast<float*>(part_out), args.part_stat = static_cast<float*>(part_stat);
  GALVANI_TRY_VOID(decode ? attention_decode_cuda(rig.stream(), choice, args)
                          : attention_simt_cuda(rig.stream(), choice, args));
  return judge(rig, s, u.out, decode);
}

Result<double> run_tiles(CheckRig& rig, Sequence& s, const AttentionCudaChoice& choice) {
  GALVANI_TRY(const Uploaded u, upload(rig, s));
  std::vector<AttentionTileRows> tiles;
  attention_tiles(0, kLength, 0, 0, choice.rows, tiles);
  AttentionTilesArgs args{.kv = u.kv, .tables = u.tables, .score = {s.params.scale, 0, 0}};
  args.heads = kHeads, args.q = u.q, args.q_stride = int64_t{kHeads} * s.shape.k_dim;
  args.out = u.out, args.out_stride = int64_t{kHeads} * s.shape.v_dim;
  GALVANI_TRY(args.tiles, rig.upload(tiles));
  GALVANI_TRY_VOID(attention_tiles_cuda(rig.stream(), choice, args, static_cast<int>(tiles.size())));
  return judge(rig, s, u.out, true);
}

/// One kernel on one kind of layer.
struct Case {
  enum class Arm { kSimt, kDecode, kTiles };
  Arm arm = Arm::kSimt;
  DType kv = DType::kF32;
  int dim = 64;
  AttentionCudaChoice choice;
};

/// Everything that this part runs; simt takes any width, so that one is enough.
std::vector<Case> cases_of(const DeviceCaps& caps) {
  std::vector<Case> cases;
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16})
    for (const int dim : {64, 128, 256}) {
      const AttentionCudaShape shape{.heads = kHeads, .kv_heads = kKvHeads, .k_dim = dim, .v_dim = dim, .kv = kv};
      const auto add = [&](Case::Arm arm, const AttentionCudaChoice& choice) {
        if (choice.kernel != nullptr) cases.push_back({arm, kv, dim, choice});
      };
      if (dim == 64) add(Case::Arm::kSimt, plan_attention_simt(caps, shape));
      add(Case::Arm::kDecode, plan_attention_decode(caps, shape));
      for (const auto& [longest, wgmma] : {std::pair{16, false}, {1000, false}, {1000, true}})
        add(Case::Arm::kTiles, plan_attention_tiles(caps, shape, longest, wgmma));
    }
  return cases;
}

constexpr const char* kMerge = "attention_merge_sm75";

}  // namespace

std::vector<std::string> checked_attention(const DeviceCaps& caps) {
  std::vector<std::string> names;
  for (const Case& c : cases_of(caps)) {
    names.emplace_back(c.choice.kernel);
    if (c.arm == Case::Arm::kDecode) names.emplace_back(kMerge);
  }
  return names;
}

Result<std::vector<KernelVerdict>> check_attention(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  std::vector<KernelVerdict> verdicts;
  for (const Case& c : cases_of(device.caps())) {
    GALVANI_TRY(Sequence s, make_sequence(rig, c.dim, c.kv));
    double worst = 0;
    if (c.arm == Case::Arm::kTiles) {
      GALVANI_TRY(worst, run_tiles(rig, s, c.choice));
    } else {
      GALVANI_TRY(worst, run_rows(rig, s, c.choice, c.arm == Case::Arm::kDecode));
    }
    verdicts.push_back({c.choice.kernel, worst, "2 heads, 70 tokens"});
    if (c.arm == Case::Arm::kDecode) verdicts.push_back({kMerge, worst, "after " + std::string(c.choice.kernel)});
  }
  return verdicts;
}

}  // namespace galvani::kernels
