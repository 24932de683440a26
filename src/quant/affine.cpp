#include "quant/affine.h"

#include "core/error.h"
#include "quant/bit_pack.h"
#include "quant/float_bytes.h"

namespace galvani::quant {

uint32_t affine_code(const std::byte* row, int bits, int64_t c) noexcept {
  const int64_t bit = c * bits;
  uint32_t window = static_cast<uint32_t>(row[bit / 8]);
  if (bit % 8 + bits > 8) window |= static_cast<uint32_t>(row[bit / 8 + 1]) << 8;
  return (window >> (bit % 8)) & ((1u << bits) - 1u);
}

void affine_dequant_rows(const AffineView& view, int64_t r0, int64_t r1, float* out) {
  const int64_t groups = view.groups(), group = view.group;
  uint8_t codes[128];
  for (int64_t r = r0; r < r1; ++r) {
    const std::byte* row = view.codes + r * view.row_code_bytes();
    for (int64_t g = 0; g < groups; ++g) {
      unpack_codes(view.bits, row + g * group * view.bits / 8, group, codes);
      const float scale = load_float(view.scale_dtype, view.scales, r * groups + g);
      const float bias = load_float(view.scale_dtype, view.biases, r * groups + g);
      for (int64_t i = 0; i < group; ++i) out[i] = static_cast<float>(codes[i]) * scale + bias;
      out += group;
    }
  }
}

Status affine_check(const AffineView& view, size_t code_bytes, size_t scale_bytes, size_t bias_bytes) {
  const int b = view.bits, g = view.group;
  if (!(b == 2 || b == 3 || b == 4 || b == 5 || b == 6 || b == 8))
    return fail(ErrorCode::kUnsupported, "{}-bit codes are not supported; 2, 3, 4, 5, 6 and 8 are", b);
  if (!(g == 16 || g == 32 || g == 64 || g == 128))
    return fail(ErrorCode::kUnsupported, "groups of {} are not supported; 16, 32, 64 and 128 are", g);
  if (!is_float(view.scale_dtype))
    return fail(ErrorCode::kUnsupported, "scales of type {} are not supported; f32, f16 and bf16 are",
                dtype_name(view.scale_dtype));
  if (view.rows < 0 || view.cols < 0 || view.cols % g != 0)
    return fail(ErrorCode::kCorrupt, "a group of {} does not divide the {} columns", g, view.cols);
  int64_t codes = 0, scales = 0;
  if (__builtin_mul_overflow(view.cols, b, &codes) || codes % 32 != 0)
    return fail(ErrorCode::kCorrupt, "rows of {} codes of {} bits do not fill whole 32-bit words", view.cols, b);
  if (__builtin_mul_overflow(codes / 8, view.rows, &codes) ||
      __builtin_mul_overflow(view.groups(), view.rows, &scales) ||
      __builtin_mul_overflow(scales, dtype_bytes(view.scale_dtype), &scales))
    return fail(ErrorCode::kCorrupt, "the size of a {} x {} matrix overflows 63 bits", view.rows, view.cols);
  if (code_bytes != static_cast<size_t>(codes) || scale_bytes != static_cast<size_t>(scales) ||
      bias_bytes != scale_bytes)
    return fail(ErrorCode::kCorrupt,
                "{} x {} at {} bits in groups of {} takes {} bytes of codes and {} each of scales and biases, not {}, "
                "{} and {}",
                view.rows, view.cols, b, g, codes, scales, code_bytes, scale_bytes, bias_bytes);
  return {};
}

AffineTensor make_affine_tensor(int64_t rows, int64_t cols, int bits, int group, DType scale_dtype) {
  AffineTensor tensor;
  tensor.view = {rows, cols, bits, group, scale_dtype, nullptr, nullptr, nullptr};
  const auto aligned = [](int64_t bytes) { return static_cast<size_t>((bytes + 63) / 64 * 64); };
  const size_t codes = aligned(rows * tensor.view.row_code_bytes());
  const size_t scales = aligned(rows * tensor.view.groups() * dtype_bytes(scale_dtype));
  tensor.storage.resize(codes + 2 * scales);
  tensor.view.codes = tensor.storage.data();
  tensor.view.scales = tensor.view.codes + codes;
  tensor.view.biases = tensor.view.scales + scales;
  return tensor;
}

}  // namespace galvani::quant
