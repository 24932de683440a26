/// Hugging Face's block-scaled fp8 matrices (DeepSeek V3 and others): E4M3 codes, one f32 scale per 128 × 128 block,
/// in the tensor `weight_scale_inv`; value = code · scale, one f32 product.
#include <array>
#include <cstring>

#include "core/error.h"
#include "quant/float_bytes.h"
#include "quant/fp_codec.h"
#include "quant/sources.h"

namespace galvani::quant {
namespace {

constexpr int64_t blocks(int64_t n) { return (n + kFp8Block - 1) / kFp8Block; }

/// Dense to whoever reads it: no product works on these codes, so that a kernel packs the values, as f32.
class Fp8BlockSource final : public MatrixSource {
 public:
  Fp8BlockSource(std::string name, MappedBytes codes, MappedBytes scales, int64_t rows, int64_t cols)
      : codes_(std::move(codes)), scales_(std::move(scales)) {
    name_ = std::move(name);
    format_ = "fp8 e4m3, 128x128 blocks";
    rows_ = rows;
    cols_ = cols;
    bits_ = 32;
    file_bytes_ = static_cast<int64_t>(codes_.bytes.size() + scales_.bytes.size());
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    GALVANI_TRY_VOID(codes_.check());
    if (scales_.map != codes_.map) GALVANI_TRY_VOID(scales_.check());
    static const std::array<float, 256> kValues = [] {
      std::array<float, 256> table{};
      for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = e4m3(static_cast<uint8_t>(i));
      return table;
    }();
    const auto* code = reinterpret_cast<const uint8_t*>(codes_.bytes.data()) + r0 * cols_;
    for (int64_t r = r0; r < r1; ++r) {
      for (int64_t b = 0; b < blocks(cols_); ++b) {
        const float scale = load_float(DType::kF32, scales_.bytes.data(), r / kFp8Block * blocks(cols_) + b);
        const int64_t end = std::min(cols_, (b + 1) * kFp8Block);
        for (int64_t c = b * kFp8Block; c < end; ++c) *out++ = kValues[*code++] * scale;
      }
    }
    return {};
  }

 private:
  MappedBytes codes_, scales_;
};

}  // namespace

Result<MatrixPtr> make_fp8_block_source(std::string name, MappedBytes codes, MappedBytes scales, int64_t rows,
                                        int64_t cols) {
  const auto taken = static_cast<int64_t>(codes.bytes.size()), scale_bytes = static_cast<int64_t>(scales.bytes.size());
  if (rows < 1 || cols < 1 || taken / cols != rows || taken % cols != 0 || scale_bytes % 4 != 0 ||
      scale_bytes / 4 != blocks(rows) * blocks(cols))
    return fail(ErrorCode::kCorrupt, "{}: fp8 [{}, {}] does not take {} bytes of codes and {} of scales", name, rows,
                cols, taken, scale_bytes);
  return std::make_shared<Fp8BlockSource>(std::move(name), std::move(codes), std::move(scales), rows, cols);
}

}  // namespace galvani::quant
