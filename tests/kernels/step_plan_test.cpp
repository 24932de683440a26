// How a decode step in one kernel is shared out, for every known part and the shapes of real models. No GPU.
#include "kernels/step/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/parts.h"
#include "kernels/qmatmul/a16_layout.h"

namespace galvani::kernels {
namespace {

struct Shape {
  const char* name;
  int hidden, inner, heads, kv_heads, dim, layers;
};
/// From the models' published configurations.
constexpr Shape kShapes[] = {
    {"Llama 3.1 8B", 4096, 14336, 32, 8, 128, 32}, {"Llama 3.1 70B", 8192, 28672, 64, 8, 128, 80},
    {"Qwen3 0.6B", 1024, 3072, 16, 8, 128, 28},    {"Qwen3 4B", 2560, 9728, 32, 8, 128, 36},
    {"Qwen3 8B", 4096, 12288, 32, 8, 128, 36},     {"Qwen3 32B", 5120, 25600, 64, 8, 128, 64},
};
constexpr A16Format kFormats[] = {{4, 64}, {4, 32}, {4, 16}, {4, 128, A16Scale::kF32}};

std::vector<Part> parts_with_bulk_copies() {
  std::vector<Part> parts;
  for (const Part& part : known_parts())
    if (part.caps.has(Feature::kBulkCopy)) parts.push_back(part);
  return parts;
}

StepProduct product(int n, int k, const A16Format& format, StepInput input, StepOutput output, int blocks) {
  StepProduct p{};
  p.n = n, p.k = k, p.input = input, p.output = output;
  p.units = static_cast<int>(a16_units(k)), p.unit_bytes = a16_unit_bytes(format);
  p.subgroups = a16_subgroups(format.group), p.scale = static_cast<int>(format.scale);
  step_share(p, blocks, output == StepOutput::kGated);
  return p;
}

/// The four products of a layer.
std::vector<StepProduct> products(const Shape& s, const A16Format& format, int blocks) {
  const int q = s.heads * s.dim;
  return {
      product(q + 2 * s.kv_heads * s.dim, s.hidden, format, StepInput::kNormed, StepOutput::kStore, blocks),
      product(s.hidden, q, format, StepInput::kHalf, StepOutput::kAdd, blocks),
      product(2 * s.inner, s.hidden, format, StepInput::kNormed, StepOutput::kGated, blocks),
      product(s.hidden, s.inner, format, StepInput::kHalf, StepOutput::kAdd, blocks),
  };
}

StepNeeds needs_of(const Shape& s, const A16Format& format, int blocks) {
  StepNeeds needs;
  for (const StepProduct& p : products(s, format, blocks)) step_need(needs, p);
  needs.attention = step_attention_bytes(s.heads, s.kv_heads, s.dim);
  needs.phases = 5 * s.layers;
  return needs;
}

/// __umulhi.
int divided(int x, unsigned inverse) { return static_cast<int>(uint64_t{static_cast<unsigned>(x)} * inverse >> 32); }

// Blocks have runs of row tiles one behind the other, as StepTiles has them.
TEST(StepPlan, EveryRowTileBelongsToOneBlock) {
  const std::vector<Part> parts = parts_with_bulk_copies();
  ASSERT_GE(parts.size(), 4u);
  for (const Part& part : parts)
    for (const Shape& shape : kShapes)
      for (const StepProduct& p : products(shape, kFormats[0], part.caps.sms)) {
        ASSERT_EQ(step_refusal(p), nullptr) << shape.name;
        std::vector<int> owners(static_cast<size_t>(p.n / kA16Rows), 0);
        int fewest = p.n, most = 0;
        for (int block = 0; block < part.caps.sms; ++block) {
          const int first = block * p.tiles + std::min(block, p.tiles_rest),
                    count = p.tiles + (block < p.tiles_rest ? 1 : 0);
          fewest = std::min(fewest, count), most = std::max(most, count);
          for (int tile = first; tile < first + count; ++tile) {
            ++owners.at(static_cast<size_t>(tile));
            if (p.pair > 0) ++owners.at(static_cast<size_t>(p.pair + tile));
          }
        }
        EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), static_cast<std::ptrdiff_t>(owners.size()))
            << shape.name << " on " << part.key << ", " << p.n << " x " << p.k;
        EXPECT_LE(most - fewest, 1);
        EXPECT_EQ(p.chunks * kFewChunk, p.units);
      }
}

TEST(StepPlan, ARowTileOfTheLastRowsCountsWhole) {
  const StepProduct p = product(1000, 512, kFormats[0], StepInput::kHalf, StepOutput::kStore, 132);
  EXPECT_EQ(p.tiles * 132 + p.tiles_rest, 63);
}

// x / chunks of every chunk that a block can number, and of the end of its list. One chunk a tile is not divided.
TEST(StepPlan, TheInverseDividesExactly) {
  for (const Part& part : parts_with_bulk_copies())
    for (const Shape& shape : kShapes)
      for (const StepProduct& p : products(shape, kFormats[0], part.caps.sms)) {
        const int tiles = (p.tiles + (p.tiles_rest > 0)) * (p.pair > 0 ? 2 : 1);
        if (p.chunks == 1) continue;
        int wrong = 0;
        for (int x = 0; x <= tiles * p.chunks; ++x) wrong += divided(x, p.chunks_inverse) != x / p.chunks;
        EXPECT_EQ(wrong, 0) << shape.name << " on " << part.key << ", " << p.n << " x " << p.k;
      }
  // As far as step_refusal lets a list of chunks become long: at the multiples of chunks and beside them.
  for (int chunks = 2; chunks <= 4096; ++chunks) {
    const StepProduct p =
        product(16, chunks * kFewChunk * kA16Cols, kFormats[0], StepInput::kHalf, StepOutput::kStore, 1);
    ASSERT_EQ(p.chunks, chunks);
    const int64_t end = std::min<int64_t>(0xffffffffll / chunks, 0x7fffffffll / kStepWarps);
    const int64_t stride = std::max<int64_t>(1, end / chunks / 500) * chunks;
    int wrong = 0;
    for (int64_t at = 0; at <= end; at += stride)
      for (int64_t x = std::max<int64_t>(0, at - 1); x <= std::min(end, at + 1); ++x)
        wrong += divided(static_cast<int>(x), p.chunks_inverse) != x / chunks;
    EXPECT_EQ(wrong, 0) << chunks << " chunks";
  }
}

/// Parts of shared memory by their beginnings, with what must fit before the next.
void expect_apart(const StepLayout& l, const StepNeeds& needs, const std::string& what) {
  const StepArgs& a = l.args;
  struct Piece {
    const char* name;
    int at, bytes, alignment;
  };
  const int rings = kStepWarps * a.stages;
  const std::vector<Piece> pieces = {
      {"rings", 0, rings * a.slot_bytes, 128},
      {"x", a.x_at, kStepColumnBytes * needs.columns, 128},
      {"sums", a.sum_at, kStepSumBytes * needs.sums, 128},
      {"red", a.red_at, kStepWarps * 2 * kA16Rows * 4, 128},
      {"parts", a.part_at, 4 * needs.rows, 128},
      {"squares", a.square_at, 4 * (kStepWarps + 1), 4},
      {"phases", a.phase_at, 2 * kStepPhaseBytes, 128},
      {"ring states", a.ring_at, kStepWarps * kStepRingBytes, 16},
      {"asks", a.ask_at, kStepWarps * kStepAskBytes, 16},
      {"runs", a.run_at, needs.phases * static_cast<int>(sizeof(StepRun)), 16},
      {"barriers", a.barrier_at, 8 * rings, 8},
  };
  int end = 0;
  for (const Piece& piece : pieces) {
    EXPECT_GE(piece.at, end) << what << ": " << piece.name << " begins in what is before it";
    EXPECT_EQ(piece.at % piece.alignment, 0) << what << ": " << piece.name;
    end = piece.at + piece.bytes;
  }
  EXPECT_LE(end, l.smem) << what;
  // Attention has the place of x and all behind it up to the phases.
  EXPECT_LE(a.x_at + needs.attention, a.phase_at) << what;
  EXPECT_EQ(a.slot_bytes % 16, 0) << what;
  EXPECT_GE(a.slot_bytes, needs.chunk_bytes) << what;
}

TEST(StepPlan, TheLayoutFitsAndNothingOverlaps) {
  int fitted = 0, refused = 0;
  for (const Part& part : parts_with_bulk_copies())
    for (const Shape& shape : kShapes)
      for (const A16Format& format : kFormats) {
        const StepNeeds needs = needs_of(shape, format, part.caps.sms);
        const StepLayout l = step_layout(needs, part.caps.smem_optin);
        const std::string what = std::string(shape.name) + " on " + part.key;
        if (!l.ok) {
          ++refused;
          EXPECT_LT(l.args.stages, 2) << what << ": refused though two slots a warp fit";
          continue;
        }
        ++fitted;
        EXPECT_GE(l.args.stages, 2) << what;
        EXPECT_LE(l.args.stages, kStepMostStages) << what;
        EXPECT_LE(l.smem, part.caps.smem_optin) << what;
        expect_apart(l, needs, what);
      }
  EXPECT_GT(fitted, 0);
  EXPECT_GT(refused, 0) << "parts with little shared memory do not fit a 70B model's phases";
}

// The goals are for these: four bits in groups of 64 on a part with 227 KiB.
TEST(StepPlan, AllTheseModelsFitAnH200) {
  const Part* h200 = find_part("h200");
  for (const Shape& model : kShapes) {
    const StepLayout layout = step_layout(needs_of(model, kFormats[0], h200->caps.sms), h200->caps.smem_optin);
    EXPECT_TRUE(layout.ok) << model.name;
    EXPECT_GE(layout.args.stages, 3) << model.name << ": two slots a warp lose time (kernels/step/README.md)";
  }
}

// At whatever limit: never above it, and refused only where two slots a warp would be.
TEST(StepPlan, TheLayoutKeepsToAnyLimit) {
  const StepNeeds needs = needs_of(kShapes[0], kFormats[0], 132);
  int first = 0;
  for (int limit = 0; limit <= 256 * 1024; limit += 4) {
    const StepLayout l = step_layout(needs, limit);
    if (!l.ok) {
      ASSERT_EQ(first, 0) << "refused at " << limit << " bytes and not at " << first;
      continue;
    }
    if (first == 0) first = limit;
    ASSERT_LE(l.smem, limit);
  }
  EXPECT_GT(first, 2 * kStepWarps * needs.chunk_bytes);
  EXPECT_LT(first, 227 * 1024);
}

TEST(StepPlan, RefusesWhatTheKernelCannotDo) {
  const auto refusal = [](int n, int k, StepInput input, StepOutput output) {
    const char* reason = step_refusal(product(n, k, kFormats[0], input, output, 132));
    return std::string(reason == nullptr ? "" : reason);
  };
  const StepInput half = StepInput::kHalf, normed = StepInput::kNormed;
  EXPECT_EQ(refusal(4096, 4096, half, StepOutput::kAdd), "");
  for (const int k : {64, 128, 192, 4096 + 64, 4096 + 128})
    EXPECT_EQ(refusal(4096, k, half, StepOutput::kAdd), "columns are no multiple of 256") << k;
  EXPECT_EQ(refusal(4096, 8192, normed, StepOutput::kStore), "");
  EXPECT_EQ(refusal(4096, 8192 + 256, normed, StepOutput::kStore), "a normed row of more than 8192 elements");
  EXPECT_EQ(refusal(4096, 8192 + 256, half, StepOutput::kStore), "");
  EXPECT_EQ(refusal(2 * 768, 4096, normed, StepOutput::kGated), "");
  for (const int inner : {8, 760, 769})
    EXPECT_EQ(refusal(2 * inner, 4096, normed, StepOutput::kGated), "gate and up rows are no multiple of 16") << inner;
  EXPECT_EQ(refusal(1000, 4096, half, StepOutput::kStore), "");
  EXPECT_EQ(refusal(1 << 30, 1 << 16, half, StepOutput::kStore), "more weights than a block can number");
}

}  // namespace
}  // namespace galvani::kernels
