#include "kernels/plan_tables.h"

#include <fmt/format.h>

#include "kernels/attention/attention_cuda.h"

namespace galvani::kernels {
namespace {

/// Attention: every width and type of real models, m = rows of a chunk.
PlanTable attention_plans() {
  struct Row {
    const char* name;
    AttentionCudaShape shape;
  };
  static const std::vector<Row> rows = [] {
    std::vector<Row> all;
    static std::vector<std::string> names;
    names.reserve(64);
    constexpr std::pair<int, int> kWidths[] = {{32, 32},   {64, 64},   {80, 80},   {128, 128},
                                               {192, 128}, {256, 256}, {512, 512}, {576, 512}};
    for (const DType kv : {DType::kF16, DType::kBF16, DType::kF32})
      for (const auto& [k_dim, v_dim] : kWidths) {
        names.push_back(std::string("kv=") + dtype_name(kv) + " dims=" + std::to_string(k_dim) + "/" +
                        std::to_string(v_dim));
        all.push_back({names.back().c_str(), {32, 8, k_dim, v_dim, kv}});
      }
    return all;
  }();
  PlanTable table{.operation = "attention", .ms = {1, 9, 15, 16, 63, 64, 65, 127, 128, 4096}};
  for (const Row& row : rows) table.rows.push_back(row.name);
  table.plan = [](const DeviceCaps& caps, size_t row, int64_t m) {
    return attention_cuda_plan_str(caps, rows[row].shape, m);
  };
  return table;
}

}  // namespace

std::vector<PlanTable> plan_tables() {
  // One operation a line, sorted.
  return {
      attention_plans(),
      qmatmul_cuda_plan_table(),
      step_plan_table(),
  };
}

namespace {
/// What no row of the tables selects: launches for measuring (`bench --kernels --tune`), and products of groups that
/// the rows have at 4 bits alone.
std::set<std::string> kernels_for_measuring() {
  std::set<std::string> names;
  for (const char* type : {"bf16", "f16"}) {
    for (const int bits : {2, 3, 6, 8}) names.insert(fmt::format("qmatmul_one_q{}_{}_c4_sm90", bits, type));
    names.insert(fmt::format("qmatmul_one_q4_{}_c8_sm90", type));
  }
  for (const int bits : {2, 3, 5, 6, 8}) names.insert(fmt::format("qmatmul_stream_q{}_bf16_t64_bf16_sm90a", bits));
  return names;
}

}  // namespace

std::set<std::string> kernels_without_a_choice() {
  std::set<std::string> names = kernels_for_measuring();
  names.merge(std::set<std::string>{
      // One kernel each (packing: one a width), on every part.
      "a16_pack_q2_sm70", "a16_pack_q3_sm70", "a16_pack_q4_sm70", "a16_pack_q5_sm70", "a16_pack_q6_sm70",
      "a16_pack_q8_sm70", "count_values_sm70", "embed_sm70", "finish_rows_sm70", "gated_sm70", "linear_dense_sm70",
      "qkv_finish_many_sm70", "qkv_finish_sm70", "rms_norm_many_sm70", "rms_norm_sm70", "rope_table_sm70",
      "sample_copy_sm70", "sample_edit_sm70", "sample_pick_sm70", "sample_scan_sm70",
      // Behind wgmma's kernels where a plan has parts.
      "qmatmul_parts_bf16_sm90a", "qmatmul_parts_f16_sm90a",
      // The ceilings of doctor and bench.
      "random_fill_sm70", "read_bulk_sm90", "read_plain_sm70", "read_sweep_sm70", "sm_clock_sm70"});
  return names;
}

}  // namespace galvani::kernels
