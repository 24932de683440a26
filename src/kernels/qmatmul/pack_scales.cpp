#include "kernels/qmatmul/pack_scales.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/dtype.h"
#include "core/parallel.h"

namespace galvani::kernels {
namespace {

/// |value| = odd · 2^power; odd is 0 for zero.
struct Significand {
  uint32_t odd = 0;
  int power = 0;
};

Significand significand(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  if (bits == 0) return {};
  const uint32_t field = bits >> 23;
  const uint32_t mantissa = (bits & 0x7fffffu) | (field != 0 ? 0x800000u : 0u);
  const int zeros = std::countr_zero(mantissa);
  return {mantissa >> zeros, static_cast<int>(std::max(field, 1u)) - 150 + zeros};
}

bool f16_exact(float value) { return f16_to_f32(f32_to_f16(value)) == value; }
bool bf16_exact(float value) { return bf16_to_f32(f32_to_bf16(value)) == value; }

/// True when test(row's values) holds for all rows.
template <typename Test>
bool all_rows(const GroupValues& v, const Test& test) {
  if (v.groups == 0) return true;
  std::atomic<bool> all{true};
  const int64_t rows = static_cast<int64_t>(v.values.size()) / v.groups;
  parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end && all.load(std::memory_order_relaxed); ++r)
      if (!test(r, v.values.subspan(static_cast<size_t>(r * v.groups), static_cast<size_t>(v.groups)))) all = false;
  });
  return all;
}

int64_t groups_in_super(const GroupValues& v) { return std::max<int64_t>(1, kSuperCols / v.group); }

}  // namespace

bool two_level_split(std::span<const float> values, float& top, int8_t* bytes) {
  uint32_t odd = 0;
  int power = 1000;
  for (const float v : values) {
    if (!std::isfinite(v)) return false;
    const Significand s = significand(v);
    if (s.odd == 0) continue;
    odd = std::gcd(odd, s.odd), power = std::min(power, s.power);
  }
  top = odd == 0 ? 0.0f : std::ldexp(static_cast<float>(odd), power);
  int low = 0, high = 0;
  int64_t multiples[kSuperCols];
  for (size_t i = 0; i < values.size(); ++i) {
    const Significand s = significand(values[i]);
    if (s.odd != 0 && s.power - power > 7) return false;
    const int64_t size = s.odd == 0 ? 0 : static_cast<int64_t>(s.odd / odd) << (s.power - power);
    if (size > 128) return false;
    multiples[i] = std::signbit(values[i]) ? -size : size;
    low = std::min(low, static_cast<int>(multiples[i])), high = std::max(high, static_cast<int>(multiples[i]));
  }
  const int sign = high > 127 ? -1 : 1;
  if (high > 127 && low < -127) return false;
  top *= static_cast<float>(sign);
  for (size_t i = 0; i < values.size(); ++i) {
    bytes[i] = static_cast<int8_t>(sign * multiples[i]);
    if (top * static_cast<float>(bytes[i]) != values[i]) return false;
  }
  return true;
}

ScaleForm scale_form_for(const GroupValues& v) {
  using Row = std::span<const float>;
  if (all_rows(v, [](int64_t, Row row) { return std::ranges::all_of(row, f16_exact); })) return ScaleForm::kF16;
  if (all_rows(v, [](int64_t, Row row) { return std::ranges::all_of(row, bf16_exact); })) return ScaleForm::kBF16;
  const auto per = static_cast<size_t>(groups_in_super(v));
  const auto splits = [&](int64_t, Row row) {
    for (size_t g = 0; g < row.size(); g += per) {
      float top;
      int8_t bytes[kSuperCols];
      if (!two_level_split(row.subspan(g, std::min(per, row.size() - g)), top, bytes)) return false;
    }
    return true;
  };
  return per > 2 && all_rows(v, splits) ? ScaleForm::kTwoLevel : ScaleForm::kF32;
}

bool bias_is_centre(const GroupValues& scales, const GroupValues& biases, int bits) {
  const float centre = -static_cast<float>(1 << (bits - 1));
  return all_rows(scales, [&](int64_t r, std::span<const float> row) {
    for (size_t g = 0; g < row.size(); ++g) {
      const float bias = biases.values[static_cast<size_t>(r * scales.groups) + g];
      if (bias != centre * row[g] || std::bit_width(significand(row[g]).odd) + bits > 24) return false;
    }
    return true;
  });
}

void pack_scales(const GroupValues& v, ScaleForm form, int64_t block, std::byte* at, std::byte* super) {
  if (form == ScaleForm::kNone) return;
  const int64_t rows = static_cast<int64_t>(v.values.size()) / v.groups, first = block * kBlockRows;
  for (int64_t i = 0; i < std::min(kBlockRows, rows - first); ++i) {
    const auto row = v.values.subspan(static_cast<size_t>((first + i) * v.groups), static_cast<size_t>(v.groups));
    if (form == ScaleForm::kTwoLevel) {
      const auto per = static_cast<size_t>(groups_in_super(v));
      for (size_t g = 0; g < row.size(); g += per) {
        float top = 0;
        int8_t bytes[kSuperCols];
        const auto part = row.subspan(g, std::min(per, row.size() - g));
        two_level_split(part, top, bytes);
        std::memcpy(super + (static_cast<int64_t>(g / per) * kBlockRows + i) * 4, &top, 4);
        for (size_t j = 0; j < part.size(); ++j)
          at[static_cast<int64_t>(g + j) * kBlockRows + i] = static_cast<std::byte>(bytes[j]);
      }
      continue;
    }
    for (size_t g = 0; g < row.size(); ++g) {
      const int64_t index = static_cast<int64_t>(g) * kBlockRows + i;
      if (form == ScaleForm::kF32) {
        std::memcpy(at + index * 4, &row[g], 4);
      } else {
        const uint16_t half = form == ScaleForm::kF16 ? f32_to_f16(row[g]) : f32_to_bf16(row[g]);
        std::memcpy(at + index * 2, &half, 2);
      }
    }
  }
}

}  // namespace galvani::kernels
