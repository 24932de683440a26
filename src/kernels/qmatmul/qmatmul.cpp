#include "kernels/qmatmul/qmatmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/qmatmul/arms.h"
#include "kernels/qmatmul/self_test.h"

namespace galvani::kernels {
namespace {

using Arm = void (*)(const ArmCall&);

Arm entry(QmatmulVariant variant) {
  switch (variant) {
    case QmatmulVariant::kRef: return qmatmul_ref;
    case QmatmulVariant::kRowsF32: return qmatmul_rows_f32;
    case QmatmulVariant::kRowsBf16Avx512: return qmatmul_rows_bf16_avx512;
    case QmatmulVariant::kPanelF32: return qmatmul_panel_f32;
    case QmatmulVariant::kPanelBf16Avx512: return qmatmul_panel_bf16_avx512;
    case QmatmulVariant::kPanelBf16Amx: return qmatmul_panel_bf16_amx;
  }
  return nullptr;
}

bool reads_f32(QmatmulVariant variant) {
  return variant == QmatmulVariant::kRef || variant == QmatmulVariant::kRowsF32 || variant == QmatmulVariant::kPanelF32;
}

/// A matrix with its kernel, its rows of the input and its place in y.
struct Job {
  const PackedMatrix* w = nullptr;
  Arm arm = nullptr;
  int64_t x_row = 0, m = 0;
  float* y = nullptr;
  int64_t block_cost = 0;

  int64_t cost() const { return block_cost * w->blocks; }
  /// First block whose start is at or beyond `cost` into the matrix.
  int64_t block_at(int64_t cost) const {
    return std::clamp<int64_t>((cost + block_cost / 2) / block_cost, 0, w->blocks);
  }
};

/// Rows that tiles of `variant` may read of an input of m rows.
int64_t rows_read(QmatmulVariant variant, int64_t m) {
  switch (variant) {
    case QmatmulVariant::kPanelBf16Amx: return (m + 31) / 32 * 32;
    case QmatmulVariant::kPanelBf16Avx512:
    case QmatmulVariant::kPanelF32: return (m + 7) / 8 * 8;
    default: return m <= 2 ? m : m <= 4 ? 4 : (m + 7) / 8 * 8;
  }
}

/// Chooses the kernel and makes the input ready for it (serial section).
Job make_job(const CpuMatrix& matrix, CpuInput::Impl& x, int64_t x_row, int64_t m, float* y, QmatmulArm arm) {
  const auto& w = static_cast<const PackedMatrix&>(matrix);
  GALVANI_CHECK(w.cols == x.k, "{} columns, the input has {}", w.cols, x.k);
  const QmatmulPlan plan = qmatmul_plan_for(w, m, x.arithmetic, arm);
  GALVANI_CHECK(plan.ok, "no kernel: {}", plan.reason);
  if (reads_f32(plan.variant)) x.require_f32();
  x.require_rows(x_row + rows_read(plan.variant, m));
  // Reading a block costs about as much as multiplying one token by it.
  return {&w, entry(plan.variant), x_row, m, y, w.packed_bytes / w.blocks * (m + 1)};
}

std::atomic<uint64_t> bytes_walked{0};

/// Threads take equal shares of the cost; each share is a run of blocks that may span matrices.
void run_jobs(std::span<const Job> jobs, const CpuInput::Impl& x, int64_t y_stride) {
  int64_t total = 0, blocks = 0;
  for (const Job& job : jobs) total += job.cost(), blocks += job.w->blocks;
  const int64_t team = std::min<int64_t>(threads(), blocks);
  parallel_for(team, 1, [&](int64_t begin, int64_t end, int) {
    const int64_t first = total * begin / team, last = total * end / team;
    int64_t start = 0, bytes = 0;
    for (const Job& job : jobs) {
      const int64_t b0 = job.block_at(first - start), b1 = job.block_at(last - start);
      if (b0 < b1) {
        job.arm({*job.w, b0, b1, {x, job.x_row, job.m}, job.y, y_stride});
        bytes += job.w->packed_bytes * b1 / job.w->blocks - job.w->packed_bytes * b0 / job.w->blocks;
      }
      start += job.cost();
      if (start >= last) break;
    }
    bytes_walked.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
  });
}

}  // namespace

uint64_t qmatmul_bytes_walked() noexcept { return bytes_walked.load(std::memory_order_relaxed); }

std::optional<QmatmulArm> qmatmul_arm_from_name(std::string_view name) {
  for (const QmatmulArm arm : {QmatmulArm::kAuto, QmatmulArm::kRef, QmatmulArm::kRows, QmatmulArm::kPanel})
    if (name == qmatmul_arm_name(arm)) return arm;
  return std::nullopt;
}

const char* qmatmul_arm_name(QmatmulArm arm) {
  switch (arm) {
    case QmatmulArm::kAuto: return "auto";
    case QmatmulArm::kRef: return "ref";
    case QmatmulArm::kRows: return "rows";
    case QmatmulArm::kPanel: return "panel";
  }
  return "?";
}

std::string qmatmul_explain(const CpuCaps& caps, const QmatmulProblem& p, const Crossovers& crossovers) {
  std::string text;
  for (const QmatmulVariant variant : kQmatmulOrder) {
    const char* reason = qmatmul_declines(variant, caps, p, crossovers);
    text += fmt::format("{}: {}\n", qmatmul_variant_name(variant), reason == nullptr ? "can run" : reason);
  }
  return text;
}

QmatmulPlan qmatmul_plan_for(const CpuMatrix& w, int64_t m, Arithmetic arithmetic, QmatmulArm arm) {
  const auto& packed = static_cast<const PackedMatrix&>(w);
  return qmatmul_plan(checked_caps(), {m, w.rows, w.cols, packed.kind, arithmetic, arm});
}

std::byte* arm_scratch(int slot, int64_t bytes) {
  thread_local AlignedBuffer buffers[2];
  AlignedBuffer& buffer = buffers[slot];
  if (static_cast<int64_t>(buffer.size()) < bytes) buffer = AlignedBuffer(static_cast<size_t>(bytes));
  return buffer.data();
}

void store_tile(const float* tile, int64_t tile_stride, int64_t tokens, int64_t columns, bool add, float* y,
                int64_t y_stride) {
  for (int64_t t = 0; t < tokens; ++t) {
    const float* from = tile + t * tile_stride;
    float* to = y + t * y_stride;
    if (!add) {
      std::memcpy(to, from, static_cast<size_t>(columns) * 4);
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c] += from[c];
    }
  }
}

void qmatmul_multi(std::span<const CpuMatrix* const> segments, const CpuInput& input, float* y, int64_t y_stride,
                   QmatmulArm arm) {
  constexpr size_t kMaxSegments = 16;
  CpuInput::Impl& x = input.impl();
  GALVANI_CHECK(segments.size() <= kMaxSegments, "{} segments, at most {}", segments.size(), kMaxSegments);
  if (x.m < 1 || segments.empty()) return;
  Job jobs[kMaxSegments];
  int64_t column = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    jobs[i] = make_job(*segments[i], x, 0, x.m, y + column, arm);
    column += segments[i]->rows;
  }
  run_jobs({jobs, segments.size()}, x, y_stride);
}

void qmatmul_grouped(std::span<const QmatmulItem> items, const CpuInput& input, float* y, int64_t y_stride,
                     QmatmulArm arm) {
  CpuInput::Impl& x = input.impl();
  thread_local std::vector<Job> jobs;
  jobs.clear();
  for (const QmatmulItem& item : items) {
    if (item.m < 1) continue;
    GALVANI_CHECK(item.x_row >= 0 && item.x_row + item.m <= x.m, "rows {} to {} of {}", item.x_row,
                  item.x_row + item.m - 1, x.m);
    float* to = y + item.y_row * y_stride + item.y_column;
    for (const CpuMatrix* segment : item.segments) {
      jobs.push_back(make_job(*segment, x, item.x_row, item.m, to, arm));
      to += segment->rows;
    }
  }
  if (!jobs.empty()) run_jobs(jobs, x, y_stride);
}

void qmatmul(const CpuMatrix& w, const float* x, int64_t m, int64_t x_stride, float* y, int64_t y_stride,
             Arithmetic arithmetic, QmatmulArm arm) {
  thread_local CpuInput input;
  input.prepare(x, m, w.cols, x_stride, arithmetic);
  const CpuMatrix* const one[] = {&w};
  qmatmul_multi(one, input, y, y_stride, arm);
}

}  // namespace galvani::kernels
