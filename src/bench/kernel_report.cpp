/// The kernel record as a table and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/kernel_bench.h"

namespace galvani::bench {
namespace {

const char* scale_name(kernels::A16Scale scale) {
  switch (scale) {
    case kernels::A16Scale::kBF16: return "bf16";
    case kernels::A16Scale::kF16: return "f16";
    case kernels::A16Scale::kF32: return "f32";
    case kernels::A16Scale::kE8M0: return "e8m0";
    case kernels::A16Scale::kE5M3: return "e5m3";
  }
  return "?";
}

std::string what_of(const KernelCase& c) {
  return fmt::format("{} bit g{} {}", c.format.bits, c.format.group, scale_name(c.format.scale));
}

std::string share(double part, double whole) {
  return part > 0 && whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "–";
}
std::string number(double value, const char* form = "{:.2f}") {
  return value > 0 ? fmt::format(fmt::runtime(form), value) : "–";
}

double tflops(const KernelRow& row, double us) {
  return 2.0 * static_cast<double>(row.what.n) * static_cast<double>(row.what.k) * static_cast<double>(row.what.m) /
         us * 1e-6;
}

}  // namespace

std::string kernel_record_markdown(const KernelRecord& r) {
  std::string text = fmt::format(
      "Device {}, {} SMs, L2 {} MiB, driver {}, toolkit {}. Random data, weights rotated past five times the L2, graph "
      "replays{}{}.\nLong-run read {:.0f} GB/s; cuBLAS 8192³ {}.\n\n"
      "| N × K | format | M | kernel | us (low–high) | GB/s | of read ceiling | plain read of this size, us | of it | "
      "TFLOP/s | cuBLAS 16-bit, us | cuBLAS time / ours | SM clock after, MHz "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      r.device, r.sms, r.l2_bytes >> 20, r.driver, r.toolkit,
      r.dependent_launch ? ", programmatic dependent launch" : "", engine::forced_arms_text(r.arms),
      r.read_ceiling_gbps, r.cublas_tflops > 0 ? fmt::format("{:.0f} TFLOP/s", r.cublas_tflops) : "not measured");
  for (const KernelRow& row : r.rows) {
    const std::string shape = fmt::format("{}×{} | {} | {}", row.what.n, row.what.k, what_of(row.what), row.what.m);
    if (!row.failure.empty()) {
      text += fmt::format("| {} | {} | – | – | – | – | – | – | – | – | – |\n", shape, row.failure);
      continue;
    }
    const double us = row.time.median, rate = static_cast<double>(row.bytes) / us * 1e-3;
    text += fmt::format("| {} | {}{} | {:.2f} ({:.2f}–{:.2f}) | {:.0f} | {} | {} | {} | {:.1f} | {} | {} | {} |\n",
                        shape, row.kernel, row.split > 1 ? fmt::format(" ×{}", row.split) : "", us, row.time.low,
                        row.time.high, rate, share(rate, r.read_ceiling_gbps), number(row.read.median),
                        share(row.read.median, us), tflops(row, us), number(row.cublas.median),
                        share(row.cublas.median, us), number(row.time.sm_mhz, "{:.0f}"));
  }
  return text;
}

std::string kernel_record_json(const KernelRecord& r) {
  using nlohmann::json;
  const auto timing = [](const Timing& t) {
    return json{{"median_us", t.median},
                {"low_us", t.low},
                {"high_us", t.high},
                {"samples_us", t.samples},
                {"sm_mhz", t.sm_mhz}};
  };
  json rows = json::array();
  for (const KernelRow& row : r.rows) {
    json j{{"n", row.what.n},
           {"k", row.what.k},
           {"m", row.what.m},
           {"bits", row.what.format.bits},
           {"group", row.what.format.group},
           {"scale", scale_name(row.what.format.scale)},
           {"kernel", row.kernel},
           {"blocks_sharing_k", row.split},
           {"bytes", row.bytes}};
    if (row.failure.empty()) {
      j["time"] = timing(row.time), j["read"] = timing(row.read);
      if (row.cublas.median > 0) j["cublas"] = timing(row.cublas);
    } else {
      j["failure"] = row.failure;
    }
    rows.push_back(std::move(j));
  }
  return json{{"kind", "kernels"},
              {"device", r.device},
              {"sms", r.sms},
              {"l2_bytes", r.l2_bytes},
              {"driver", r.driver},
              {"toolkit", r.toolkit},
              {"dependent_launch", r.dependent_launch},
              {"arms", engine::forced_arms_json(r.arms)},
              {"read_ceiling_gbps", r.read_ceiling_gbps},
              {"cublas_tflops", r.cublas_tflops},
              {"rows", std::move(rows)}}
      .dump(1);
}

}  // namespace galvani::bench
