#pragma once
/// What the CUDA attention kernels take. Plain data for host and device, so that device code compiles alone (NVRTC).
/// All pointers are device memory; formula and page layout are attention.h's.
#include "kernels/common/store_type.h"

namespace galvani::kernels {

/// One layer's pages, as KvLayer has them.
struct PagedKv {
  const char* k = nullptr;
  const char* v = nullptr;
  long long k_page_stride = 0, v_page_stride = 0;  ///< bytes between pages
  int kv_heads = 0, k_dim = 0, v_dim = 0;
};

/// Page ids of the sequences of a step: blocks[sequence · max_blocks + position / 64].
struct BlockTables {
  const int* blocks = nullptr;
  int max_blocks = 0;
};

/// Scores: scale · q·k, capped when softcap > 0.
struct ScoreArgs {
  float scale = 1, softcap = 0;
  int window = 0;  ///< keys a row sees, itself included; 0 = all
};

/// Rows with one query position each: decode, and everything that no tile arm takes. Row i of the call is row `at[i]`
/// of q, positions, sequence and out (i itself when `at` is null). q: [rows, heads · k_dim] of the pages' type.
struct AttentionRowsArgs {
  PagedKv kv;
  BlockTables tables;
  ScoreArgs score;
  int rows = 0, heads = 0;
  const int* at = nullptr;
  const void* q = nullptr;
  long long q_stride = 0;          ///< elements
  const int* positions = nullptr;  ///< per row; below 0: no row, its output becomes 0
  const int* sequence = nullptr;   ///< per row: its block table
  /// Each sequence has one row at most, and its keys and values before that row's position were there before the chain
  /// of dependent kernels began: they may be asked for before the kernel before has ended.
  bool settled = false;
  const float* sinks = nullptr;  ///< [heads] or null
  /// Split of the keys, in device memory so that a captured graph follows growing sequences: [0] tokens of a segment
  /// (a multiple of 64; segments begin at multiples of it), [1] … [1 + rows]: segments of all rows before row r.
  const int* schedule = nullptr;
  float* part_out = nullptr;   ///< [segments][heads][v_dim], not divided by the sum
  float* part_stat = nullptr;  ///< [segments][heads][2]: largest score in units of log 2, and the sum
  void* out = nullptr;         ///< [rows, heads · v_dim]
  long long out_stride = 0;    ///< elements
  StoreType out_type = StoreType::kF32;
};

/// Consecutive rows of one sequence that one block works on.
struct AttentionTileRows {
  int row, count;  ///< rows of q and out
  int position;    ///< of the first row
  int sequence;    ///< its block table
  int length;      ///< positions of the sequence written so far; later ones hold anything
};

struct AttentionTilesArgs {
  PagedKv kv;
  BlockTables tables;
  ScoreArgs score;
  int heads = 0;
  const void* q = nullptr;
  long long q_stride = 0;
  const AttentionTileRows* tiles = nullptr;  ///< [grid.x]
  const float* sinks = nullptr;
  void* out = nullptr;
  long long out_stride = 0;
  StoreType out_type = StoreType::kF32;
};

}  // namespace galvani::kernels
