#include "kernels/plan_tables.h"

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
  };
}

std::set<std::string> kernels_without_a_choice() {
  return {
      // One kernel each (packing: one a width), on every part.
      "a16_pack_q2_sm70",
      "a16_pack_q3_sm70",
      "a16_pack_q4_sm70",
      "a16_pack_q5_sm70",
      "a16_pack_q6_sm70",
      "a16_pack_q8_sm70",
      "count_values_sm70",
      "embed_sm70",
      "finish_rows_sm70",
      "gated_sm70",
      "linear_dense_sm70",
      "qkv_finish_sm70",
      "rms_norm_sm70",
      "rope_table_sm70",
      "sample_copy_sm70",
      "sample_edit_sm70",
      "sample_pick_sm70",
      "sample_scan_sm70",
      // For measuring alone.
      "attention_decode_ring_bf16_d128_sm90",
      "attention_decode_ring_bf16_d256_sm90",
      "attention_decode_ring_bf16_d64_sm90",
      "attention_decode_ring_f16_d128_sm90",
      "attention_decode_ring_f16_d256_sm90",
      "attention_decode_ring_f16_d64_sm90",
      // For QmatmulCudaTuning alone, until they have been measured.
      "qmatmul_one_q2_bf16_c4_sm90",
      "qmatmul_one_q2_f16_c4_sm90",
      "qmatmul_one_q3_bf16_c4_sm90",
      "qmatmul_one_q3_f16_c4_sm90",
      "qmatmul_one_q4_bf16_c8_sm90",
      "qmatmul_one_q4_f16_c8_sm90",
      "qmatmul_few_stream_q2_bf16_sm90",
      "qmatmul_few_stream_q2_f16_sm90",
      "qmatmul_few_stream_q3_bf16_sm90",
      "qmatmul_few_stream_q3_f16_sm90",
      "qmatmul_few_stream_q4_bf16_sm90",
      "qmatmul_few_stream_q4_f16_sm90",
      "qmatmul_few_stream_q5_bf16_sm90",
      "qmatmul_few_stream_q5_f16_sm90",
      "qmatmul_few_stream_q6_bf16_sm90",
      "qmatmul_few_stream_q6_f16_sm90",
      "qmatmul_few_stream_q8_bf16_sm90",
      "qmatmul_few_stream_q8_f16_sm90",
      "qmatmul_stream_q4_bf16_t32_bf16_sm90a",
      // The ceilings of doctor and bench.
      "random_fill_sm70",
      "read_bulk_sm90",
      "read_plain_sm70",
      "read_sweep_sm70",
  };
}

}  // namespace galvani::kernels
