#include "kernels/qmatmul/input.h"

#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "core/error.h"
#include "core/parallel.h"
#include "kernels/qmatmul/input_simd.h"

namespace galvani::kernels {
namespace {

constexpr int kSumGroups[] = {16, 32, 64, 128};

int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Grows `buffer` to `bytes`, keeping what it holds.
void grow(AlignedBuffer& buffer, int64_t bytes) {
  if (static_cast<int64_t>(buffer.size()) >= bytes) return;
  AlignedBuffer larger(static_cast<size_t>(bytes + bytes / 2));
  if (buffer.size() > 0) std::memcpy(larger.data(), buffer.data(), buffer.size());
  buffer = std::move(larger);
}

// Sums over 32, 64 and 128 columns from those over 16, which stand at the front of `sums`.
void add_sums(const CpuInput::Impl& in, float* sums) {
  const float* from = sums;
  int64_t count = in.padded_k / 16;
  for (const int group : {32, 64, 128}) {
    float* to = sums + in.sums_offset(group);
    const int64_t half = count;
    count = ceil_div(count, 2);
    for (int64_t g = 0; g < count; ++g) to[g] = from[2 * g] + (2 * g + 1 < half ? from[2 * g + 1] : 0.0f);
    from = to;
  }
}

void prepare_row(CpuInput::Impl& in, const float* x, int64_t t) {
  const int64_t k = in.k, pad = in.padded_k - k;
  float* sums = in.sums.data() + t * in.sums_stride;
  std::fill_n(sums + k / 16, in.padded_k / 16 - k / 16, 0.0f);
  if (in.arithmetic == Arithmetic::kBF16) {
    auto* halves = const_cast<uint16_t*>(in.bf16_row(t));
    std::fill_n(halves + k, pad, uint16_t{0});
    bf16_row(x, k, halves, sums);
  } else {
    auto* values = const_cast<float*>(in.f32_row(t));
    if (in.arithmetic == Arithmetic::kF16)
      for (int64_t i = 0; i < k; ++i) values[i] = f16_to_f32(f32_to_f16(x[i]));
    else
      std::copy_n(x, k, values);
    std::fill_n(values + k, pad, 0.0f);
    f32_row_sums(values, k, sums);
  }
  add_sums(in, sums);
}

}  // namespace

CpuInput::CpuInput() : impl_(std::make_unique<Impl>()) {}
CpuInput::~CpuInput() = default;
CpuInput::CpuInput(CpuInput&&) noexcept = default;
CpuInput& CpuInput::operator=(CpuInput&&) noexcept = default;

int64_t CpuInput::Impl::sums_offset(int group) const {
  int64_t offset = 0;
  for (const int g : kSumGroups) {
    if (g == group) break;
    offset += ceil_div(padded_k, g);
  }
  return offset;
}

namespace {

/// row_of(t): where row t of the input stands.
template <typename RowOf>
void prepare_input(CpuInput::Impl& in, int64_t m, int64_t k, Arithmetic arithmetic, const RowOf& row_of) {
  in.m = m, in.k = k, in.arithmetic = arithmetic;
  in.padded_k = ceil_div(k, kUnitCols) * kUnitCols;
  // A stride of a multiple of 4 KB would put all rows of a tile into one cache set.
  in.stride = in.padded_k + (in.padded_k % 512 == 0 ? 32 : 0);
  in.sums_stride = in.sums_offset(0);
  in.zeroed_rows = 0;
  in.has_f32 = arithmetic != Arithmetic::kBF16;
  in.require_rows(m <= 2 ? m : m <= 4 ? 4 : ceil_div(m, 8) * 8);
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(k, 1));
  parallel_for(m, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) prepare_row(in, row_of(t), t);
  });
}

}  // namespace

void CpuInput::prepare(const float* x, int64_t m, int64_t k, int64_t x_stride, Arithmetic arithmetic) {
  prepare_input(*impl_, m, k, arithmetic, [&](int64_t t) { return x + t * x_stride; });
}

void CpuInput::prepare_rows(const float* x, std::span<const int32_t> rows, int64_t k, int64_t x_stride,
                            Arithmetic arithmetic) {
  prepare_input(*impl_, static_cast<int64_t>(rows.size()), k, arithmetic,
                [&](int64_t t) { return x + rows[static_cast<size_t>(t)] * x_stride; });
}

void CpuInput::Impl::require_rows(int64_t rows) {
  sums.resize(std::max(sums.size(), static_cast<size_t>(rows * sums_stride)));
  const int64_t size = arithmetic == Arithmetic::kBF16 ? 2 : 4;
  AlignedBuffer& buffer = arithmetic == Arithmetic::kBF16 ? bf16 : f32;
  grow(buffer, rows * stride * size);
  const int64_t first = std::max(m, zeroed_rows);
  if (rows > first)
    std::memset(buffer.data() + first * stride * size, 0, static_cast<size_t>((rows - first) * stride * size));
  if (has_f32 && arithmetic == Arithmetic::kBF16) {
    grow(f32, rows * stride * 4);
    if (rows > first) std::memset(f32.data() + first * stride * 4, 0, static_cast<size_t>((rows - first) * stride * 4));
  }
  zeroed_rows = std::max(zeroed_rows, rows);
}

void CpuInput::Impl::require_f32() {
  if (has_f32) return;
  has_f32 = true;
  grow(f32, zeroed_rows * stride * 4);
  auto* to = reinterpret_cast<float*>(f32.data());
  const auto* from = reinterpret_cast<const uint16_t*>(bf16.data());
  for (int64_t t = 0; t < zeroed_rows; ++t)
    for (int64_t i = 0; i < padded_k; ++i) to[t * stride + i] = bf16_to_f32(from[t * stride + i]);
}

}  // namespace galvani::kernels
