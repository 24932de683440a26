#include "kernels/qmatmul/qmatmul.h"

#include <algorithm>
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

/// A matrix with its kernel and its place in y.
struct Job {
  const PackedMatrix* w;
  Arm arm;
  int64_t column;
};

/// First block of `w` whose start is at or beyond `bytes` into the matrix.
int64_t block_at(const PackedMatrix& w, int64_t bytes) {
  const int64_t each = w.packed_bytes / w.blocks;
  return std::clamp<int64_t>((bytes + each / 2) / each, 0, w.blocks);
}

}  // namespace

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
  int64_t column = 0, total = 0, most_blocks = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto* w = static_cast<const PackedMatrix*>(segments[i]);
    GALVANI_CHECK(w->cols == x.k, "{} columns, the input has {}", w->cols, x.k);
    const QmatmulPlan plan = qmatmul_plan_for(*w, x.m, x.arithmetic, arm);
    GALVANI_CHECK(plan.ok, "no kernel: {}", plan.reason);
    if (reads_f32(plan.variant)) x.require_f32();
    if (plan.variant == QmatmulVariant::kPanelBf16Amx) x.require_rows((x.m + 31) / 32 * 32);
    if (plan.variant == QmatmulVariant::kPanelBf16Avx512 || plan.variant == QmatmulVariant::kPanelF32)
      x.require_rows((x.m + 7) / 8 * 8);
    jobs[i] = {w, entry(plan.variant), column};
    column += w->rows, total += w->packed_bytes, most_blocks += w->blocks;
  }
  // Threads take equal shares of the bytes; each share is a run of blocks that may span matrices.
  const int64_t team = std::min<int64_t>(threads(), most_blocks);
  parallel_for(team, 1, [&](int64_t begin, int64_t end, int) {
    const int64_t first = total * begin / team, last = total * end / team;
    int64_t start = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      const Job& job = jobs[i];
      const int64_t b0 = block_at(*job.w, first - start), b1 = block_at(*job.w, last - start);
      if (b0 < b1) job.arm({*job.w, b0, b1, x, y + job.column, y_stride});
      start += job.w->packed_bytes;
    }
  });
}

void qmatmul(const CpuMatrix& w, const float* x, int64_t m, int64_t x_stride, float* y, int64_t y_stride,
             Arithmetic arithmetic, QmatmulArm arm) {
  thread_local CpuInput input;
  input.prepare(x, m, w.cols, x_stride, arithmetic);
  const CpuMatrix* const one[] = {&w};
  qmatmul_multi(one, input, y, y_stride, arm);
}

}  // namespace galvani::kernels
