#pragma once
/// Weight matrices in memory for the qmatmul tests, with an unpacking of their own (from codes kept one a byte).
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "quant/fp_codec.h"
#include "quant/matrix_source.h"

namespace galvani::kernels::testing {

inline float round_to(DType type, float value) {
  if (type == DType::kF16) return f16_to_f32(f32_to_f16(value));
  if (type == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  return value;
}

/// How scales and biases are drawn.
enum class Scales {
  kFree,       ///< scale and bias as an MLX file has them
  kCentred,    ///< bias = -2^(bits-1) · scale (Q4_0, Q5_0, Q8_0)
  kKQuant,     ///< f16 times small integers, f32 products (Q4_K, Q5_K, Q2_K)
  kKQuantMid,  ///< the same with a centred bias (Q6_K, Q3_K)
};

class MemoryMatrix final : public quant::MatrixSource {
 public:
  static MemoryMatrix affine_random(int64_t rows, int64_t cols, int bits, int group, DType scale_type, Scales scales,
                                    uint64_t seed) {
    MemoryMatrix m(rows, cols, quant::MatrixKind::kAffine, bits, group, scale_type);
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<float> real(0.0f, 1.0f);
    m.codes_.resize(static_cast<size_t>(rows * cols));
    for (auto& code : m.codes_) code = static_cast<uint8_t>(rng() & ((1u << bits) - 1u));
    const int64_t groups = cols / group, per_super = std::max(1, 256 / group);
    const float half = static_cast<float>(1 << (bits - 1));
    float d = 0, dmin = 0;
    for (int64_t i = 0; i < rows * groups; ++i) {
      float scale, bias;
      if (scales == Scales::kKQuant || scales == Scales::kKQuantMid) {
        if (i % groups % per_super == 0) {
          d = f16_to_f32(f32_to_f16(0.001f * (0.2f + real(rng)))), dmin = f16_to_f32(f32_to_f16(0.004f * real(rng)));
        }
        const int sc = scales == Scales::kKQuant ? static_cast<int>(rng() % 64) : static_cast<int>(rng() % 256) - 128;
        scale = d * static_cast<float>(sc), bias = -dmin * static_cast<float>(rng() % 64);
      } else {
        scale = round_to(scale_type, (rng() & 1 ? 0.02f : -0.02f) * (0.3f + real(rng)));
        bias = round_to(scale_type, -scale * half * (0.7f + 0.6f * real(rng)));
      }
      if (scales == Scales::kCentred || scales == Scales::kKQuantMid) bias = -half * scale;
      m.scales_.push_back(scale), m.biases_.push_back(bias);
    }
    return m;
  }

  static MemoryMatrix dense_random(int64_t rows, int64_t cols, DType type, uint64_t seed) {
    MemoryMatrix m(rows, cols, quant::MatrixKind::kDense, static_cast<int>(dtype_bytes(type)) * 8, 0, type);
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * cols; ++i) m.values_.push_back(round_to(type, normal(rng)));
    return m;
  }

  /// `table` times a scale a group: a power of two for kMxfp4, f16 otherwise.
  static MemoryMatrix table_random(int64_t rows, int64_t cols, quant::MatrixKind kind, int group,
                                   const std::vector<float>& table, uint64_t seed) {
    MemoryMatrix m(rows, cols, kind, 4, group, DType::kF32);
    std::mt19937_64 rng(seed);
    float scale = 0;
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (i % group == 0) {
        scale = kind == quant::MatrixKind::kMxfp4 ? std::ldexp(1.0f, static_cast<int>(rng() % 9) - 8)
                                                  : round_to(DType::kF16, static_cast<float>(rng() % 1000) * 1e-4f);
        if (rng() % 16 == 0) scale = 0;
      }
      m.values_.push_back(scale * table[rng() % table.size()]);
    }
    return m;
  }

  /// How float codes are drawn: every code alike (in E4M3 that is every power of two alike, and a sum is mostly its
  /// largest terms), or as normal weights are encoded.
  enum class Codes { kUniform, kNormal };

  /// kMxfp4, kMxfp8, kNvfp4: codes (no NaN) times a scale a group, 2^lowest to 2^highest; nvfp4's have a mantissa and
  /// must lie in [2^-9, 2^8]. Some groups are zeros.
  static MemoryMatrix float_random(int64_t rows, int64_t cols, quant::MatrixKind kind, int lowest, int highest,
                                   Codes codes, uint64_t seed) {
    const bool mxfp8 = kind == quant::MatrixKind::kMxfp8, nvfp4 = kind == quant::MatrixKind::kNvfp4;
    MemoryMatrix m(rows, cols, kind, mxfp8 ? 8 : 4, nvfp4 ? 16 : 32, DType::kU8);
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    float scale = 0;
    bool zeros = false;
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (i % m.group_ == 0) {
        const int exponent = lowest + static_cast<int>(rng() % static_cast<uint64_t>(highest - lowest + 1));
        scale = std::ldexp(1.0f, exponent);
        // E4M3: eighths from 2^-6 on, below that multiples of 2^-9; at most 448.
        if (nvfp4 && exponent >= -6) scale *= 1.0f + static_cast<float>(rng() % (exponent == 8 ? 7 : 8)) / 8.0f;
        zeros = rng() % 16 == 0;
      }
      const auto code = static_cast<uint8_t>(rng());
      float value =
          mxfp8 ? quant::e4m3((code & 0x7f) == 0x7f ? uint8_t{0x7e} : code) : quant::kE2M1Doubled[code & 15] * 0.5f;
      if (codes == Codes::kNormal) {
        const float wanted = normal(rng) * (mxfp8 ? 100.0f : 2.0f);
        const int exponent = std::max(std::ilogb(wanted), mxfp8 ? -6 : 0), bits = mxfp8 ? 3 : 1;
        value = std::ldexp(std::nearbyint(std::ldexp(wanted, bits - exponent)), exponent - bits);
        value = std::clamp(value, mxfp8 ? -448.0f : -6.0f, mxfp8 ? 448.0f : 6.0f);
      }
      if (zeros) value *= 0.0f;
      m.values_.push_back(scale * value);
    }
    return m;
  }

  float weight(int64_t r, int64_t c) const {
    if (codes_.empty()) return values_[static_cast<size_t>(r * cols_ + c)];
    const auto g = static_cast<size_t>((r * cols_ + c) / group_);
    const float product = scales_[g] * static_cast<float>(codes_[static_cast<size_t>(r * cols_ + c)]);
    return product + biases_[g];
  }
  /// The same with one rounding, as panels compute it.
  float weight_fused(int64_t r, int64_t c) const {
    if (codes_.empty()) return weight(r, c);
    const auto g = static_cast<size_t>((r * cols_ + c) / group_);
    return std::fma(scales_[g], static_cast<float>(codes_[static_cast<size_t>(r * cols_ + c)]), biases_[g]);
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    for (int64_t r = r0; r < r1; ++r)
      for (int64_t c = 0; c < cols_; ++c) *out++ = weight(r, c);
    return {};
  }

  Result<quant::AffineTensor> affine(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const override {
    if (codes_.empty() || c0 != 0 || c1 != cols_) return fail(ErrorCode::kUnsupported, "not in this test");
    quant::AffineTensor t;
    const int64_t code_bytes = (r1 - r0) * cols_ * bits_ / 8, groups = (r1 - r0) * (cols_ / group_);
    const int64_t size = dtype_bytes(dtype_);
    // One byte of offset: files promise no alignment.
    t.storage.resize(static_cast<size_t>(1 + code_bytes + 2 * groups * size));
    std::byte* codes = t.storage.data() + 1;
    for (int64_t r = r0; r < r1; ++r)
      for (int64_t c = 0; c < cols_; ++c)
        for (int bit = 0; bit < bits_; ++bit) {
          const int64_t at = (r - r0) * cols_ * bits_ + c * bits_ + bit;
          if ((codes_[static_cast<size_t>(r * cols_ + c)] >> bit) & 1)
            codes[at / 8] |= static_cast<std::byte>(1 << (at % 8));
        }
    const auto put = [&](std::byte* to, const std::vector<float>& from) {
      for (int64_t i = 0; i < groups; ++i) {
        const float value = from[static_cast<size_t>(r0 * (cols_ / group_) + i)];
        const uint16_t half = dtype_ == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        if (dtype_ == DType::kF32) std::memcpy(to + i * 4, &value, 4);
        if (dtype_ != DType::kF32) std::memcpy(to + i * 2, &half, 2);
      }
    };
    std::byte *scales = codes + code_bytes, *biases = scales + groups * size;
    put(scales, scales_), put(biases, biases_);
    t.view = {r1 - r0, cols_, bits_, group_, dtype_, codes, scales, biases};
    return t;
  }

  std::vector<uint8_t> codes_;
  std::vector<float> scales_, biases_, values_;

 private:
  MemoryMatrix(int64_t rows, int64_t cols, quant::MatrixKind kind, int bits, int group, DType dtype) {
    name_ = "memory", rows_ = rows, cols_ = cols, kind_ = kind, bits_ = bits, group_ = group, dtype_ = dtype;
  }
};

}  // namespace galvani::kernels::testing
