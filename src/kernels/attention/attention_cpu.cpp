#include <algorithm>
#include <atomic>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/attention/attention_tile.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kTileBytes = 256 * 1024;  // queries and sums of a tile, beside a page of K and V, stay in L2
constexpr int64_t kMaxTileRows = 192;

struct Item {
  int tile = 0;
  int segment = -1;  ///< −1: all
  int64_t cost = 0;
};

/// One call's tiles and work items. Kept per calling thread, so that a decode step allocates nothing.
struct Plan {
  std::vector<AttentionTile> tiles;
  std::vector<Item> items;
  std::vector<int64_t> part_offset;  ///< per tile: index of its first part
  std::vector<AttentionSums> parts;
  std::vector<float> part_memory;
};

int64_t tile_cost(const AttentionCall& call, const AttentionTile& tile) {
  const int64_t first = call.first_visible(tile.first_position) / kPageTokens;
  const int64_t last = (tile.first_position + tile.count - 1) / kPageTokens;
  return (last - first + 1) * (int64_t{tile.count} * call.group + 4);  // 4: a page's conversion, in rows
}

/// Positions of a tile: a power of two up to a page, small enough for the cache and for every thread to get work.
int tile_positions(const AttentionCall& call, std::span<const AttentionChunk> chunks) {
  const int64_t row_bytes = 4 * (call.layer->k_dim + 2 * call.padded_v());
  const int64_t rows = std::min<int64_t>(kMaxTileRows, kTileBytes / row_bytes);
  int64_t total = 0;
  for (const AttentionChunk& chunk : chunks) total += chunk.count;
  int positions = kPageTokens;
  while (positions > 1 && positions * call.group > std::max<int64_t>(rows, call.group)) positions /= 2;
  while (positions > 1 && positions * call.group > 2 * kBlockRows &&
         total / positions * call.layer->kv_heads < 4 * int64_t{threads()})
    positions /= 2;
  return positions;
}

void make_tiles(const AttentionCall& call, std::span<const AttentionChunk> chunks, Plan& plan) {
  const int positions = tile_positions(call, chunks);
  plan.tiles.clear();
  for (const AttentionChunk& chunk : chunks) {
    for (int32_t i = 0; i < chunk.count;) {
      const int32_t position = chunk.first_position + i;
      const int32_t count = std::min(chunk.count - i, positions - position % positions);
      for (int head = 0; head < call.layer->kv_heads; ++head)
        plan.tiles.push_back({chunk.blocks, head, position, count, chunk.row + i});
      i += count;
    }
  }
}

void make_items(const AttentionCall& call, bool split, Plan& plan) {
  plan.items.clear();
  plan.part_offset.clear();
  int64_t parts = 0, part_rows = 0;
  for (size_t t = 0; t < plan.tiles.size(); ++t) {
    const AttentionTile& tile = plan.tiles[t];
    const int64_t cost = tile_cost(call, tile), rows = int64_t{tile.count} * call.group;
    plan.part_offset.push_back(parts);
    if (!split) {
      plan.items.push_back({static_cast<int>(t), -1, cost});
      continue;
    }
    const int first = call.first_segment(tile), last = call.last_segment(tile);
    for (int s = first; s <= last; ++s) plan.items.push_back({static_cast<int>(t), s, cost / (last - first + 1)});
    parts += last - first + 1;
    part_rows += (last - first + 1) * rows;
  }
  // Largest first, so that the last ones to be taken are small.
  std::sort(plan.items.begin(), plan.items.end(), [](const Item& a, const Item& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    return a.tile != b.tile ? a.tile < b.tile : a.segment < b.segment;
  });
  if (!split) return;
  plan.parts.resize(static_cast<size_t>(parts));
  const int64_t padded = call.padded_v();
  plan.part_memory.resize(static_cast<size_t>(part_rows * (padded + 2)));
  float* next = plan.part_memory.data();
  for (size_t t = 0; t < plan.tiles.size(); ++t) {
    const AttentionTile& tile = plan.tiles[t];
    const int64_t rows = int64_t{tile.count} * call.group;
    const int count = call.last_segment(tile) - call.first_segment(tile) + 1;
    for (int s = 0; s < count; ++s, next += rows * (padded + 2))
      plan.parts[static_cast<size_t>(plan.part_offset[t] + s)] = {next, next + rows, next + 2 * rows};
  }
}

/// body(i) for i < n, each once, taken by whichever thread is free: results do not depend on who computes what.
template <typename Body>
void for_items(size_t n, const Body& body) {
  std::atomic<size_t> next{0};
  parallel_for(std::min<int64_t>(threads(), static_cast<int64_t>(n)), 1, [&](int64_t, int64_t, int) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(i);
  });
}

bool should_split(const AttentionCall& call, const Plan& plan, AttentionArm arm) {
  if (arm == AttentionArm::kSplit) return true;
  if (arm == AttentionArm::kTiles || threads() == 1) return false;
  if (plan.tiles.size() >= 8 * static_cast<size_t>(threads())) return false;
  return std::any_of(plan.tiles.begin(), plan.tiles.end(),
                     [&](const AttentionTile& tile) { return call.first_segment(tile) < call.last_segment(tile); });
}

void run(const AttentionCall& call, std::span<const AttentionChunk> chunks, AttentionArm arm) {
  thread_local Plan own_plan;
  Plan& plan = own_plan;  // a reference to the caller's: workers would each see their own thread_local
  make_tiles(call, chunks, plan);
  const bool split = should_split(call, plan, arm);
  make_items(call, split, plan);
  int64_t rows = 0;
  for (const AttentionTile& tile : plan.tiles) rows = std::max(rows, int64_t{tile.count} * call.group);
  const auto scratch = [&]() -> AttentionScratch& {
    thread_local AttentionScratch own;
    own.reserve(call, rows);
    return own;
  };
  for_items(plan.items.size(), [&](size_t i) {
    const Item& item = plan.items[i];
    const size_t t = static_cast<size_t>(item.tile);
    const AttentionTile& tile = plan.tiles[t];
    if (!split) return attention_tile(call, tile, scratch());
    const int64_t part = plan.part_offset[t] + item.segment - call.first_segment(tile);
    attention_tile_segment(call, tile, item.segment, scratch(), plan.parts[static_cast<size_t>(part)]);
  });
  if (!split) return;
  for_items(plan.tiles.size(), [&](size_t t) {
    attention_tile_merge(call, plan.tiles[t], plan.parts.data() + plan.part_offset[t], scratch());
  });
}

void run_ref(const AttentionCall& call, std::span<const AttentionChunk> chunks) {
  const int64_t width = int64_t{call.params->heads} * call.layer->v_dim;
  std::vector<double> exact(static_cast<size_t>(width));
  for (const AttentionChunk& chunk : chunks) {
    for (int32_t i = 0; i < chunk.count; ++i) {
      const AttentionChunk one{0, 1, chunk.first_position + i, chunk.blocks};
      const int64_t row = chunk.row + i;
      attention_ref(*call.layer, *call.params, {&one, 1}, call.q + row * call.q_stride, call.q_stride, exact.data(),
                    width);
      std::transform(exact.begin(), exact.end(), call.out + row * call.out_stride,
                     [](double value) { return static_cast<float>(value); });
    }
  }
}

}  // namespace

void kv_append(const KvLayer& layer, std::span<const AttentionChunk> chunks, const float* k, int64_t k_stride,
               const float* v, int64_t v_stride) {
  const int64_t bytes = dtype_bytes(layer.dtype);
  for (const AttentionChunk& chunk : chunks) {
    parallel_for(chunk.count, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t position = chunk.first_position + i, row = chunk.row + i;
        const int64_t block = chunk.blocks[position / kPageTokens];
        for (int h = 0; h < layer.kv_heads; ++h) {
          const int64_t token = int64_t{h} * kPageTokens + position % kPageTokens;
          attention_store(layer.k + block * layer.k_page_stride + token * layer.k_dim * bytes, layer.dtype,
                          k + row * k_stride + h * layer.k_dim, layer.k_dim);
          if (layer.v_in_k) continue;
          attention_store(layer.v + block * layer.v_page_stride + token * layer.v_dim * bytes, layer.dtype,
                          v + row * v_stride + h * layer.v_dim, layer.v_dim);
        }
      }
    });
  }
}

void attention(const KvLayer& layer, const AttentionParams& params, std::span<const AttentionChunk> chunks,
               const float* q, int64_t q_stride, float* out, int64_t out_stride, AttentionArm arm) {
  GALVANI_CHECK(layer.kv_heads > 0 && params.heads > 0 && params.heads % layer.kv_heads == 0,
                "{} query heads over {} kv heads", params.heads, layer.kv_heads);
  GALVANI_CHECK(!layer.v_in_k || layer.v_dim <= layer.k_dim, "V of {} columns inside K of {}", layer.v_dim,
                layer.k_dim);
  const AttentionCall call{&layer, &params, q, out, q_stride, out_stride, params.heads / layer.kv_heads};
  if (arm == AttentionArm::kRef) {
    run_ref(call, chunks);
  } else {
    run(call, chunks, arm);
  }
}

}  // namespace galvani::kernels
