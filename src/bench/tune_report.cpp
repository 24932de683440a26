/// The tuning record as a table and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/kernel_tune.h"

namespace galvani::bench {
namespace {

constexpr size_t kShown = 4;

std::string what_of(const KernelCase& c) {
  const char* scale = c.format.scale == kernels::A16Scale::kBF16  ? "bf16"
                      : c.format.scale == kernels::A16Scale::kF16 ? "f16"
                                                                  : "f32";
  return fmt::format("{}×{} {} bit g{} {} M={}", c.n, c.k, c.format.bits, c.format.group, scale, c.m);
}

/// Microseconds that bytes and operations need at the ceilings of the run.
double limit_of(const KernelRecord& machine, const TuneCase& c) {
  const double operations =
      2.0 * static_cast<double>(c.what.n) * static_cast<double>(c.what.k) * static_cast<double>(c.what.m);
  const double compute = machine.cublas_tflops > 0 ? operations / machine.cublas_tflops * 1e-6 : 0;
  return std::max(c.read.median, compute);
}

std::string prefill_markdown(const TuneRecord& r) {
  if (r.prefill.empty()) return "";
  std::string text =
      "\n| causal prefill, bf16 | kernel | us (low–high) | TFLOPS | of cuBLAS 8192³ |\n|---|---|---|---|---|\n";
  for (const AttentionPrefillCase& c : r.prefill) {
    const std::string what = fmt::format("d{} {} tokens {}/{} heads", c.dim, c.length, c.heads, c.kv_heads);
    const double tflops = c.operations / c.time.median * 1e-6, peak = r.machine.cublas_tflops;
    if (c.failure.empty())
      text +=
          fmt::format("| {} | {} | {:.1f} ({:.1f}–{:.1f}) | {:.0f} | {} |\n", what, c.kernel, c.time.median, c.time.low,
                      c.time.high, tflops, peak > 0 ? fmt::format("{:.0f} %", 100 * tflops / peak) : "–");
    else
      text += fmt::format("| {} | {} | FAILED: {} | | |\n", what, c.kernel, c.failure);
  }
  return text;
}

std::string small_markdown(const TuneRecord& r) {
  if (r.small.empty()) return "";
  std::string text =
      "\n| between products, bf16 | us (low–high) | MB read and written | of the read ceiling |\n|---|---|---|---|\n";
  for (const SmallCase& c : r.small) {
    if (!c.failure.empty()) {
      text += fmt::format("| {} | FAILED: {} | | |\n", small_name(c), c.failure);
      continue;
    }
    const double mb = static_cast<double>(c.bytes) * 1e-6;
    // What L2 holds is not measured by a rate of memory.
    const bool memory = c.bytes > r.machine.l2_bytes;
    text += fmt::format("| {}{} | {:.2f} ({:.2f}–{:.2f}) | {:.2f} | {} |\n", small_name(c),
                        c.on_host ? ", called from the host" : "", c.time.median, c.time.low, c.time.high, mb,
                        memory ? fmt::format("{:.1f} %", 1e5 * mb / c.time.median / r.machine.read_ceiling_gbps) : "–");
  }
  return text;
}

nlohmann::json small_json(const TuneRecord& r) {
  nlohmann::json cases = nlohmann::json::array();
  for (const SmallCase& c : r.small) {
    nlohmann::json j{{"operation", small_name(c)},
                     {"rows", c.rows},
                     {"bytes", c.bytes},
                     {"on_host", c.on_host},
                     {"error_over_bound", c.worst}};
    if (c.failure.empty())
      j["samples_us"] = c.time.samples, j["median_us"] = c.time.median;
    else
      j["failure"] = c.failure;
    cases.push_back(std::move(j));
  }
  return cases;
}

nlohmann::json prefill_json(const TuneRecord& r) {
  nlohmann::json cases = nlohmann::json::array();
  for (const AttentionPrefillCase& c : r.prefill) {
    nlohmann::json j{{"dim", c.dim},       {"heads", c.heads},   {"kv_heads", c.kv_heads},
                     {"length", c.length}, {"kernel", c.kernel}, {"error_over_bound", c.worst}};
    if (c.failure.empty())
      j["samples_us"] = c.time.samples, j["median_us"] = c.time.median,
      j["tflops"] = c.operations / c.time.median * 1e-6;
    else
      j["failure"] = c.failure;
    cases.push_back(std::move(j));
  }
  return cases;
}

}  // namespace

std::string tune_record_markdown(const TuneRecord& r) {
  const KernelRecord& machine = r.machine;
  std::string text = fmt::format(
      "Device {}, {} SMs, driver {}, toolkit {}; long-run read {:.0f} GB/s, cuBLAS 8192³ {:.0f} TFLOP/s. Limit: the "
      "longer of a plain read of the weights in one launch and the operations at that rate. `=`: the plan's choice.\n\n"
      "| case | launch | us (low–high) | of the read ceiling | of the limit | cuBLAS time / ours "
      "|\n|---|---|---|---|---|---|\n",
      machine.device, machine.sms, machine.driver, machine.toolkit, machine.read_ceiling_gbps, machine.cublas_tflops);
  for (const TuneCase& c : r.cases) {
    std::vector<const TuneRow*> rows;
    size_t wrong = 0;
    for (const TuneRow& row : c.rows) {
      if (row.failure.empty())
        rows.push_back(&row);
      else
        text += wrong++ < kShown
                    ? fmt::format("| {} | {} | FAILED: {} | | | |\n", what_of(c.what), row.launch, row.failure)
                    : "";
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const TuneRow* a, const TuneRow* b) { return a->time.median < b->time.median; });
    for (size_t i = 0; i < rows.size(); ++i) {
      const TuneRow& row = *rows[i];
      if (i >= kShown && !row.chosen) continue;
      const double us = row.time.median;
      text += fmt::format("| {} | {}{} | {:.2f} ({:.2f}–{:.2f}) | {:.1f} % | {:.1f} % | {} |\n", what_of(c.what),
                          row.chosen ? "= " : "", row.launch, us, row.time.low, row.time.high,
                          1e-1 * static_cast<double>(c.bytes) / us / machine.read_ceiling_gbps,
                          100 * limit_of(machine, c) / us,
                          c.cublas.median > 0 ? fmt::format("{:.1f} %", 100 * c.cublas.median / us) : "–");
    }
    text += fmt::format("| {} | {} launches, {} wrong; plain read {:.2f} us | | | | |\n", what_of(c.what),
                        c.rows.size(), wrong, c.read.median);
  }
  if (r.attention.empty()) return text + prefill_markdown(r) + small_markdown(r);
  text +=
      "\n| decode, bf16 | kernel | segment | us (low–high) | of the read ceiling | of a plain read "
      "|\n|---|---|---|---|---|---|\n";
  for (const AttentionTuneCase& c : r.attention) {
    const std::string what = fmt::format("d{} {}×{} tokens {}/{} heads, {:.0f} MB", c.dim, c.batch, c.length, c.heads,
                                         c.kv_heads, static_cast<double>(c.bytes) * 1e-6);
    std::vector<const AttentionTuneRow*> rows;
    for (const AttentionTuneRow& row : c.rows) {
      if (row.failure.empty())
        rows.push_back(&row);
      else
        text += fmt::format("| {} | {} | {} | FAILED: {} | | |\n", what, row.kernel, row.segment, row.failure);
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto* a, const auto* b) { return a->time.median < b->time.median; });
    for (size_t i = 0; i < rows.size(); ++i) {
      const AttentionTuneRow& row = *rows[i];
      if (i >= kShown && !row.chosen) continue;
      text += fmt::format("| {} | {}{} | {} | {:.2f} ({:.2f}–{:.2f}) | {:.1f} % | {:.1f} % |\n", what,
                          row.chosen ? "= " : "", row.kernel, row.segment, row.time.median, row.time.low, row.time.high,
                          1e-1 * static_cast<double>(c.bytes) / row.time.median / machine.read_ceiling_gbps,
                          100 * c.read.median / row.time.median);
    }
  }
  return text + prefill_markdown(r) + small_markdown(r);
}

std::string tune_record_json(const TuneRecord& r) {
  using nlohmann::json;
  json cases = json::array();
  for (const TuneCase& c : r.cases) {
    json rows = json::array();
    for (const TuneRow& row : c.rows) {
      const kernels::QmatmulCudaTuning& t = row.tuning;
      json j{{"arm", kernels::qmatmul_cuda_arm_name(row.arm)},
             {"launch", row.launch},
             {"chosen", row.chosen},
             {"split_log2", t.split_log2},
             {"stages", t.stages},
             {"ahead", t.ahead},
             {"chunk", t.chunk},
             {"one", t.one},
             {"tokens", t.tokens},
             {"step", t.step},
             {"error_over_bound", row.worst}};
      if (row.failure.empty())
        j["median_us"] = row.time.median, j["low_us"] = row.time.low, j["high_us"] = row.time.high,
        j["sm_mhz"] = row.time.sm_mhz;
      else
        j["failure"] = row.failure;
      rows.push_back(std::move(j));
    }
    cases.push_back({{"n", c.what.n},
                     {"k", c.what.k},
                     {"m", c.what.m},
                     {"bits", c.what.format.bits},
                     {"group", c.what.format.group},
                     {"bytes", c.bytes},
                     {"read_us", c.read.median},
                     {"cublas_us", c.cublas.median},
                     {"rows", std::move(rows)}});
  }
  json attention = json::array();
  for (const AttentionTuneCase& c : r.attention) {
    json rows = json::array();
    for (const AttentionTuneRow& row : c.rows) {
      json j{{"kernel", row.kernel}, {"segment", row.segment}, {"chosen", row.chosen}, {"error_over_bound", row.worst}};
      if (row.failure.empty())
        j["median_us"] = row.time.median, j["low_us"] = row.time.low, j["high_us"] = row.time.high;
      else
        j["failure"] = row.failure;
      rows.push_back(std::move(j));
    }
    attention.push_back({{"dim", c.dim},
                         {"batch", c.batch},
                         {"heads", c.heads},
                         {"kv_heads", c.kv_heads},
                         {"length", c.length},
                         {"bytes", c.bytes},
                         {"read_us", c.read.median},
                         {"rows", std::move(rows)}});
  }
  const KernelRecord& m = r.machine;
  return json{{"kind", "kernel_tuning"},
              {"device", m.device},
              {"sms", m.sms},
              {"driver", m.driver},
              {"toolkit", m.toolkit},
              {"dependent_launch", m.dependent_launch},
              {"read_ceiling_gbps", m.read_ceiling_gbps},
              {"cublas_tflops", m.cublas_tflops},
              {"cases", std::move(cases)},
              {"attention", std::move(attention)},
              {"attention_prefill", prefill_json(r)},
              {"small", small_json(r)}}
      .dump(1);
}

}  // namespace galvani::bench
