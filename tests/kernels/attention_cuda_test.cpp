// Attention on the GPU against f64, arm by arm, and what its results may not depend on.
#include "kernels/attention/attention_cuda.h"

#include "kernels/attention_testing.h"
#include "kernels/cuda_testing.h"

namespace galvani::kernels {
namespace {

enum class Arm { kDecode, kSimt, kFull, kHalf, kWgmma };
const char* arm_name(Arm arm) {
  return arm == Arm::kDecode ? "decode"
         : arm == Arm::kSimt ? "simt"
         : arm == Arm::kFull ? "tiles"
         : arm == Arm::kHalf ? "half tiles"
                             : "wgmma";
}
StoreType store_of(DType type) {
  return type == DType::kF32 ? StoreType::kF32 : type == DType::kF16 ? StoreType::kF16 : StoreType::kBF16;
}

class CudaAttention : public OnGpu {
 protected:
  /// Rows [first, first + count) of each sequence of `s` through one arm; other rows of the result stay NaN.
  std::vector<float> run(const PagedSequences& s, Arm arm, int first, int count, int segment,
                         StoreType out_type = StoreType::kF32, bool settled = false) {
    const AttentionCase& c = s.shape;
    const StoreType type = store_of(c.dtype);
    const auto pages_k = upload(s.k_pool), pages_v = upload(s.v_pool);
    const auto q = upload(stored_bytes(s.q, type));
    const auto sinks = upload(s.sinks);
    std::vector<int> blocks, positions, sequence, at;
    const auto wide = s.blocks[0].size();
    for (int n = 0; n < s.sequences; ++n) {
      blocks.insert(blocks.end(), s.blocks[static_cast<size_t>(n)].begin(), s.blocks[static_cast<size_t>(n)].end());
      for (int i = 0; i < c.length; ++i) positions.push_back(i), sequence.push_back(n);
      for (int i = 0; i < count; ++i) at.push_back(n * c.length + first + i);
    }
    const auto dblocks = upload(blocks), dpositions = upload(positions), dsequence = upload(sequence), dat = upload(at);
    auto out = poisoned(s.out_size(), out_type);
    const PagedKv kv{pages_k.as<char>(),
                     pages_v.as<char>(),
                     s.layer.k_page_stride,
                     s.layer.v_page_stride,
                     c.kv_heads,
                     c.k_dim,
                     c.v_dim};
    const BlockTables tables{dblocks.as<int>(), static_cast<int>(wide)};
    const ScoreArgs score{s.params.scale, c.softcap, c.window};
    const AttentionCudaShape shape{c.heads, c.kv_heads, c.k_dim, c.v_dim, c.dtype};
    const DeviceCaps& caps = device->caps();
    if (arm == Arm::kDecode || arm == Arm::kSimt) {
      const auto choice = arm == Arm::kDecode ? plan_attention_decode(caps, shape) : plan_attention_simt(caps, shape);
      if (choice.kernel == nullptr) return ADD_FAILURE() << choice.refusal, read(out, out_type);
      std::vector<int> mine(at.size()), schedule(at.size() + 2);
      for (size_t i = 0; i < at.size(); ++i) mine[i] = positions[static_cast<size_t>(at[i])];
      const int segments = attention_schedule(mine, c.window, segment, schedule.data());
      const auto dschedule = upload(schedule);
      const auto parts = static_cast<size_t>(segments * c.heads);
      auto part_out = poisoned(parts * static_cast<size_t>(c.v_dim), StoreType::kF32);
      auto part_stat = poisoned(parts * 2, StoreType::kF32);
      const AttentionRowsArgs args{.kv = kv,
                                   .tables = tables,
                                   .score = score,
                                   .rows = static_cast<int>(at.size()),
                                   .heads = c.heads,
                                   .at = dat.as<int>(),
                                   .q = q.data(),
                                   .q_stride = int64_t{c.heads} * c.k_dim,
                                   .positions = dpositions.as<int>(),
                                   .sequence = dsequence.as<int>(),
                                   .settled = settled,
                                   .sinks = c.sinks ? sinks.as<float>() : nullptr,
                                   .schedule = dschedule.as<int>(),
                                   .part_out = reinterpret_cast<float*>(part_out.data()),
                                   .part_stat = reinterpret_cast<float*>(part_stat.data()),
                                   .out = out.data(),
                                   .out_stride = s.out_width(),
                                   .out_type = out_type};
      ok(arm == Arm::kSimt ? attention_simt_cuda(*stream, choice, args) : attention_decode_cuda(*stream, choice, args));
      return read(out, out_type);
    }
    const auto choice = plan_attention_tiles(caps, shape, arm == Arm::kHalf ? 16 : 1000, arm == Arm::kWgmma);
    if (choice.kernel == nullptr) return ADD_FAILURE() << choice.refusal, read(out, out_type);
    std::vector<AttentionTileRows> tiles;
    for (int n = 0; n < s.sequences; ++n) attention_tiles(n * c.length + first, count, first, n, choice.rows, tiles);
    sort_attention_tiles(tiles, c.window);
    const auto dtiles = upload(tiles);
    ok(attention_tiles_cuda(*stream, choice,
                            {.kv = kv,
                             .tables = tables,
                             .score = score,
                             .heads = c.heads,
                             .q = q.data(),
                             .q_stride = int64_t{c.heads} * c.k_dim,
                             .tiles = dtiles.as<AttentionTileRows>(),
                             .sinks = c.sinks ? sinks.as<float>() : nullptr,
                             .out = out.data(),
                             .out_stride = s.out_width(),
                             .out_type = out_type},
                            static_cast<int>(tiles.size())));
    return read(out, out_type);
  }

  /// Weights are rounded to the pages' type before they meet the values: u_p · Σ p|v|; scores and sums are f32.
  void check(const AttentionCase& c, Arm arm, std::mt19937_64& random) {
    SCOPED_TRACE(testing::Message() << c << ", " << arm_name(arm));
    PagedSequences s(c, 2, random);
    const StoreType type = store_of(c.dtype);
    for (float& x : s.q) x = rounded(x, type);
    s.append(s.whole());
    std::vector<double> exact(s.out_size()), size(s.out_size());
    const auto chunks = s.whole();
    attention_ref(s.layer, s.params, chunks, s.q.data(), int64_t{c.heads} * c.k_dim, exact.data(), s.out_width());
    PagedSequences positive = s;
    positive.layer.k = positive.k_pool.data(), positive.layer.v = positive.v_pool.data();
    positive.params.sinks = c.sinks ? positive.sinks.data() : nullptr;
    for (float& x : positive.v) x = std::fabs(x);
    positive.append(chunks);
    attention_ref(positive.layer, positive.params, chunks, s.q.data(), int64_t{c.heads} * c.k_dim, size.data(),
                  s.out_width());
    const double weight_unit = arm == Arm::kSimt ? 0 : store_unit(type);
    for (const int segment : {64, 192, 256}) {
      for (const StoreType out_type : {StoreType::kF32, StoreType::kBF16}) {
        const auto got = run(s, arm, 0, c.length, segment, out_type);
        double worst = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          const double bound =
              1.05 * store_unit(out_type) * std::fabs(exact[i]) + (1.05 * weight_unit + 0x1p-16) * size[i];
          const double share = std::fabs(got[i] - exact[i]) / bound;
          if (!(share <= worst)) worst = share;
          ASSERT_LE(std::fabs(got[i] - exact[i]), bound) << "element " << i << ", segment " << segment;
        }
        if (c.length > 1) {
          EXPECT_GT(worst, 0) << "nothing was compared";
        }
      }
      if (arm != Arm::kDecode) break;
    }
  }
};

TEST_F(CudaAttention, MatrixArmsMatchTheReference) {
  std::mt19937_64 random(fresh_seed());
  for (const int dim : {64, 128, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      if (dtype == DType::kBF16 && !device->caps().has(Feature::kBf16)) continue;  // RefusedLayersAreErrors
      for (const Arm arm : {Arm::kDecode, Arm::kFull, Arm::kHalf, Arm::kWgmma}) {
        if (arm != Arm::kDecode && device->caps().smem_optin < (64 + 2 * 64) * dim * 2) {
          // Not even half a tile's queries and a page of keys and values: 7.5 at the greatest width.
          ASSERT_EQ(plan_attention_tiles(device->caps(), {2, 1, dim, dim, dtype}, 1000).kernel, nullptr);
          continue;
        }
        // The f64 reference is slow: one head of a group, and lengths around a page and a tile.
        for (const int length : {1, 64, 65, 200}) {
          AttentionCase c{.heads = 2, .kv_heads = 1, .k_dim = dim, .v_dim = dim, .dtype = dtype, .length = length};
          c.window = length == 65 ? 5 : length == 200 && dim == 64 ? 70 : 0;
          check(c, arm, random);
        }
        check({.heads = 6,
               .kv_heads = 2,
               .k_dim = dim,
               .v_dim = dim,
               .softcap = 5,
               .sinks = true,
               .dtype = dtype,
               .length = 90},
              arm, random);
        check({.heads = 12,
               .kv_heads = 1,
               .k_dim = dim,
               .v_dim = dim,
               .window = 64,
               .sinks = true,
               .dtype = dtype,
               .length = 67},
              arm, random);
      }
    }
  }
}

// What a plan has refused is an error by name when somebody launches it all the same.
TEST_F(CudaAttention, RefusedLayersAreErrors) {
  const DeviceCaps& caps = device->caps();
  std::vector<AttentionCudaShape> shapes = {{2, 1, 80, 80, DType::kF16}, {2, 1, 64, 64, DType::kF32}};
  if (!caps.has(Feature::kBf16)) shapes.push_back({2, 1, 64, 64, DType::kBF16});
  for (const AttentionCudaShape& shape : shapes) {
    const auto decode = plan_attention_decode(caps, shape), tiles = plan_attention_tiles(caps, shape, 1000);
    ASSERT_EQ(decode.kernel, nullptr);
    ASSERT_EQ(tiles.kernel, nullptr);
    for (const Status& status :
         {attention_decode_cuda(*stream, decode, {}), attention_tiles_cuda(*stream, tiles, {}, 1)}) {
      ASSERT_FALSE(status.has_value());
      EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(status.error().message.find(decode.refusal), std::string::npos) << status.error().message;
    }
  }
  const auto simt = plan_attention_simt(caps, {2, 1, 64, 1024, DType::kF32});
  ASSERT_EQ(simt.kernel, nullptr);
  const Status status = attention_simt_cuda(*stream, simt, {});
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find(simt.refusal), std::string::npos) << status.error().message;
}

TEST_F(CudaAttention, TheArmWithoutMatricesTakesEveryWidth) {
  std::mt19937_64 random(fresh_seed());
  const std::pair<int, int> widths[] = {{16, 16},   {32, 32},   {80, 80},   {96, 96},
                                        {128, 128}, {192, 128}, {576, 512}, {512, 512}};
  for (const auto& [k_dim, v_dim] : widths) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      check({.heads = 4, .kv_heads = 1, .k_dim = k_dim, .v_dim = v_dim, .dtype = dtype, .length = 70}, Arm::kSimt,
            random);
      check({.heads = 6,
             .kv_heads = 3,
             .k_dim = k_dim,
             .v_dim = v_dim,
             .window = 9,
             .softcap = 20,
             .sinks = true,
             .dtype = dtype,
             .length = 67},
            Arm::kSimt, random);
    }
  }
}

// A row's bits depend on its own past and, for decode, on the segment: not on the other rows of the call, nor on how
// the sequence was cut into chunks; and two runs agree.
TEST_F(CudaAttention, RowsAreIndependentBitForBit) {
  std::mt19937_64 random(fresh_seed());
  for (const Arm arm : {Arm::kDecode, Arm::kSimt, Arm::kFull, Arm::kHalf, Arm::kWgmma}) {
    for (const int window : {0, 90}) {
      PagedSequences s({.heads = 4,
                        .kv_heads = 2,
                        .k_dim = 128,
                        .v_dim = 128,
                        .window = window,
                        .dtype = device->caps().has(Feature::kBf16) ? DType::kBF16 : DType::kF16,
                        .length = 333},
                       3, random);
      s.append(s.whole());
      const auto whole = run(s, arm, 0, 333, 64), again = run(s, arm, 0, 333, 64);
      ASSERT_EQ(std::memcmp(whole.data(), again.data(), whole.size() * 4), 0) << arm_name(arm) << ": two runs differ";
      for (const auto& [first, count] : {std::pair{332, 1}, {100, 33}, {63, 130}}) {
        const auto part = run(s, arm, first, count, 64);
        for (int n = 0; n < 3; ++n)
          for (int64_t i = 0; i < int64_t{count} * s.out_width(); ++i) {
            const auto index = static_cast<size_t>((int64_t{n} * 333 + first) * s.out_width() + i);
            ASSERT_EQ(part[index], whole[index]) << arm_name(arm) << " rows from " << first << ", element " << i;
          }
      }
    }
  }
}

// A decode step's batch: a long row among many short ones, and rows that are none, whose results are zeros. Each row
// has the bits that it has in a call of all rows.
TEST_F(CudaAttention, ALongRowAmongShortOnesAndNone) {
  std::mt19937_64 random(fresh_seed());
  for (const int heads : {1, 6, 16}) {
    AttentionCase c{.heads = heads, .kv_heads = 1, .k_dim = 128, .v_dim = 128, .softcap = 30, .sinks = true};
    c.dtype = DType::kF16, c.length = 450;
    PagedSequences s(c, 3, random);
    s.append(s.whole());
    const auto whole = run(s, Arm::kDecode, 0, c.length, 128);
    // (sequence, position); q of row i is that of its token.
    std::vector<std::pair<int, int>> rows = {{0, 449}, {1, -1}, {2, 0}};
    for (int i = 0; i < 36; ++i) rows.emplace_back(1, static_cast<int>(random() % 70) - (i % 7 == 3 ? 70 : 0));
    std::vector<int> positions, sequence, blocks;
    std::vector<float> q;
    const auto width = static_cast<int64_t>(heads) * c.k_dim;
    for (const auto& [n, position] : rows) {
      positions.push_back(position < 0 ? -1 : position), sequence.push_back(n);
      const int64_t token = (int64_t{n} * c.length + std::max(position, 0)) * width;
      q.insert(q.end(), s.q.begin() + token, s.q.begin() + token + width);
    }
    for (const auto& table : s.blocks) blocks.insert(blocks.end(), table.begin(), table.end());
    std::vector<int> schedule(rows.size() + 2);
    const int segments = attention_schedule(positions, 0, 128, schedule.data());
    const auto k = upload(s.k_pool), v = upload(s.v_pool), dq = upload(stored_bytes(q, StoreType::kF16));
    const auto dblocks = upload(blocks), dpositions = upload(positions), dsequence = upload(sequence),
               dschedule = upload(schedule);
    const auto sinks = upload(s.sinks);
    const auto parts = static_cast<size_t>(segments * heads);
    auto part_out = poisoned(parts * 128, StoreType::kF32), part_stat = poisoned(parts * 2, StoreType::kF32);
    auto out = poisoned(q.size(), StoreType::kF32);
    const auto choice = plan_attention_decode(device->caps(), {heads, 1, 128, 128, c.dtype});
    ASSERT_NE(choice.kernel, nullptr) << choice.refusal;
    ok(attention_decode_cuda(
        *stream, choice,
        {.kv = {k.as<char>(), v.as<char>(), s.layer.k_page_stride, s.layer.v_page_stride, 1, 128, 128},
         .tables = {dblocks.as<int>(), static_cast<int>(s.blocks[0].size())},
         .score = {s.params.scale, c.softcap, 0},
         .rows = static_cast<int>(rows.size()),
         .heads = heads,
         .q = dq.data(),
         .q_stride = width,
         .positions = dpositions.as<int>(),
         .sequence = dsequence.as<int>(),
         .settled = true,
         .sinks = sinks.as<float>(),
         .schedule = dschedule.as<int>(),
         .part_out = reinterpret_cast<float*>(part_out.data()),
         .part_stat = reinterpret_cast<float*>(part_stat.data()),
         .out = out.data(),
         .out_stride = width}));
    const auto got = read(out, StoreType::kF32);
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto& [n, position] = rows[r];
      for (int64_t i = 0; i < width; ++i) {
        const float want =
            position < 0 ? 0.0f : whole[static_cast<size_t>((int64_t{n} * c.length + position) * width + i)];
        ASSERT_EQ(got[r * static_cast<size_t>(width) + static_cast<size_t>(i)], want)
            << heads << " heads, row " << r << " at " << position << ", element " << i;
      }
    }
  }
}

// Asking for settled keys before the wait changes no bit, whatever the segments, the window and the rows (here many
// rows of a sequence; its keys were all there before).
TEST_F(CudaAttention, SettledKeysChangeNoBit) {
  std::mt19937_64 random(fresh_seed());
  for (const int dim : {64, 128, 256}) {
    for (const int window : {0, 70}) {
      PagedSequences s({.heads = 5,
                        .kv_heads = 1,
                        .k_dim = dim,
                        .v_dim = dim,
                        .window = window,
                        .sinks = window > 0,
                        .dtype = dim == 64 || !device->caps().has(Feature::kBf16) ? DType::kF16 : DType::kBF16,
                        .length = 290},
                       2, random);
      s.append(s.whole());
      for (const int segment : {64, 192}) {
        const auto late = run(s, Arm::kDecode, 0, 290, segment),
                   early = run(s, Arm::kDecode, 0, 290, segment, StoreType::kF32, true);
        ASSERT_EQ(std::memcmp(late.data(), early.data(), late.size() * 4), 0)
            << "dim " << dim << ", window " << window << ", segment " << segment;
        for (const float x : early) ASSERT_FALSE(std::isnan(x));
      }
    }
  }
}

}  // namespace
}  // namespace galvani::kernels
