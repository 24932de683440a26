#include "kernels/qmatmul/self_test.h"

#include <vector>

#include "core/dtype.h"
#include "core/log.h"
#include "kernels/qmatmul/arms.h"

namespace galvani::kernels {
namespace {

// Odd sizes, more than one tile and more than one stretch of columns.
constexpr int64_t kRows = 70, kCols = 1350, kTokens = 45;

/// Integers from -8 to 8: sums of kCols products stay far below 2^24.
float small_integer(int64_t i) { return static_cast<float>((i * 7 + i / 13) % 17 - 8); }

class IntegerSource final : public quant::MatrixSource {
 public:
  IntegerSource() {
    name_ = "self-test";
    rows_ = kRows;
    cols_ = kCols;
    kind_ = quant::MatrixKind::kDense;
    bits_ = 16;
    dtype_ = DType::kBF16;
    file_bytes_ = kRows * kCols * 2;
    for (int64_t i = 0; i < kRows * kCols; ++i) values_.push_back(f32_to_bf16(small_integer(i)));
  }
  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    for (int64_t i = r0 * kCols; i < r1 * kCols; ++i) *out++ = bf16_to_f32(values_[static_cast<size_t>(i)]);
    return {};
  }
  std::span<const std::byte> dense_rows(int64_t r0, int64_t r1) const override {
    return std::as_bytes(std::span(values_))
        .subspan(static_cast<size_t>(r0 * kCols * 2), static_cast<size_t>((r1 - r0) * kCols * 2));
  }

 private:
  std::vector<uint16_t> values_;
};

CpuCaps check() {
  CpuCaps caps = cpu_caps();
  if (caps.amx_bf16 && caps.avx512_bf16 && !computes_integers_exactly(qmatmul_panel_bf16_amx)) {
    log_warn("the AMX kernel does not give exact products on this machine; the AVX-512 one is used instead");
    caps.amx_bf16 = false;
  }
  return caps;
}

}  // namespace

bool computes_integers_exactly(void (*arm)(const ArmCall&)) {
  const auto matrix = qmatmul_pack(IntegerSource(), 0, kRows);
  if (!matrix) return false;
  const auto& packed = static_cast<const PackedMatrix&>(**matrix);
  std::vector<float> x;
  for (int64_t i = 0; i < kTokens * kCols; ++i) x.push_back(small_integer(i * 3 + 1));
  CpuInput input;
  input.prepare(x.data(), kTokens, kCols, kCols, Arithmetic::kBF16);
  input.impl().require_rows((kTokens + 31) / 32 * 32);
  std::vector<float> y(kTokens * kRows, -1.0f);
  arm({packed, 0, packed.blocks, input.impl(), y.data(), kRows});
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t r = 0; r < kRows; ++r) {
      float sum = 0;
      for (int64_t c = 0; c < kCols; ++c) sum += small_integer(r * kCols + c) * x[static_cast<size_t>(t * kCols + c)];
      if (y[static_cast<size_t>(t * kRows + r)] != sum) return false;
    }
  }
  return true;
}

const CpuCaps& checked_caps() {
  static const CpuCaps caps = check();
  return caps;
}

}  // namespace galvani::kernels
