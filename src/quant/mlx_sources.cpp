/// Dense matrices and MLX's quantised formats.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "quant/float_bytes.h"
#include "quant/fp_codec.h"
#include "quant/sources.h"

namespace galvani::quant {
namespace {

/// rows·cols·bits/8, or -1 when it overflows.
int64_t packed_bytes(int64_t rows, int64_t cols, int64_t bits) {
  int64_t total = 0;
  if (rows < 0 || cols < 0 || __builtin_mul_overflow(rows, cols, &total) || __builtin_mul_overflow(total, bits, &total))
    return -1;
  return total / 8;
}

/// Whether `count` elements hold a NaN or an infinity. Element type Bits, all of whose exponent bits are `exponent`.
template <typename Bits>
bool any_not_finite(const std::byte* base, int64_t count, Bits exponent) {
  Bits any = 0;  // no early way out: so that it becomes vector code, as fast as the copy beside it
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, base + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    any = static_cast<Bits>(any | static_cast<Bits>((bits & exponent) == exponent));
  }
  return any != 0;
}

/// Index of the first NaN or infinity of `count` elements, or -1.
int64_t first_not_finite(DType type, const std::byte* base, int64_t count) {
  const bool found = type == DType::kF32
                         ? any_not_finite<uint32_t>(base, count, 0x7f800000u)
                         : any_not_finite<uint16_t>(base, count, type == DType::kBF16 ? 0x7f80 : 0x7c00);
  if (!found) return -1;
  int64_t i = 0;
  const auto bad = [&](const std::byte* at) {
    return type == DType::kF32 ? any_not_finite<uint32_t>(at, 1, 0x7f800000u)
                               : any_not_finite<uint16_t>(at, 1, type == DType::kBF16 ? 0x7f80 : 0x7c00);
  };
  while (!bad(base + i * dtype_bytes(type))) ++i;
  return i;
}

class DenseSource final : public MatrixSource {
 public:
  DenseSource(std::string name, MappedBytes bytes, DType dtype, int64_t rows, int64_t cols, RowMap map)
      : data_(std::move(bytes)), map_(map) {
    name_ = std::move(name);
    format_ = dtype_name(dtype);
    rows_ = rows;
    cols_ = cols;
    dtype_ = dtype;
    bits_ = static_cast<int>(8 * dtype_bytes(dtype));
    file_bytes_ = static_cast<int64_t>(data_.bytes.size());
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    GALVANI_TRY_VOID(data_.check());
    const int64_t row_bytes = cols_ * dtype_bytes(dtype_);
    if (map_.in_order()) {
      load_floats(dtype_, data_.bytes.data() + r0 * row_bytes, (r1 - r0) * cols_, out);
      return {};
    }
    for (int64_t r = r0; r < r1; ++r)
      load_floats(dtype_, data_.bytes.data() + map_.file_row(r) * row_bytes, cols_, out + (r - r0) * cols_);
    return {};
  }

  std::span<const std::byte> dense_rows(int64_t r0, int64_t r1) const override {
    if (!map_.in_order() || !check_rows(r0, r1) || !data_.check()) return {};
    const auto row_bytes = static_cast<size_t>(cols_ * dtype_bytes(dtype_));
    return data_.bytes.subspan(static_cast<size_t>(r0) * row_bytes, static_cast<size_t>(r1 - r0) * row_bytes);
  }

  Result<bool> read_dense(int64_t r0, int64_t r1, std::byte* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    if (!map_.in_order()) return false;
    const auto row_bytes = static_cast<size_t>(cols_ * dtype_bytes(dtype_));
    GALVANI_TRY_VOID(data_.read(static_cast<size_t>(r0) * row_bytes, {out, static_cast<size_t>(r1 - r0) * row_bytes}));
    return true;
  }

 private:
  MappedBytes data_;
  RowMap map_;
};

class AffineSource final : public MatrixSource {
 public:
  AffineSource(std::string name, MappedBytes codes, MappedBytes scales, MappedBytes biases, AffineView view)
      : codes_(std::move(codes)), scales_(std::move(scales)), biases_(std::move(biases)), view_(view) {
    name_ = std::move(name);
    kind_ = MatrixKind::kAffine;
    format_ = fmt::format("affine {}-bit g{}", view.bits, view.group);
    rows_ = view.rows;
    cols_ = view.cols;
    bits_ = view.bits;
    group_ = view.group;
    dtype_ = view.scale_dtype;
    file_bytes_ = static_cast<int64_t>(codes_.bytes.size() + scales_.bytes.size() + biases_.bytes.size());
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    GALVANI_TRY_VOID(check_files());
    GALVANI_TRY_VOID(check_scales(r0, r1, 0, view_.groups()));
    affine_dequant_rows(view_, r0, r1, out);
    return {};
  }

  Result<AffineTensor> affine(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const override {
    GALVANI_TRY_VOID(check_block(r0, r1, c0, c1));
    GALVANI_TRY_VOID(check_files());
    GALVANI_TRY_VOID(check_scales(r0, r1, c0 / group_, c1 / group_));
    AffineTensor out = make_affine_tensor(r1 - r0, c1 - c0, bits_, group_, dtype_);
    if (out.storage.empty()) return out;
    copy_columns(view_.codes, view_.row_code_bytes(), c0 * bits_ / 8, out.view.row_code_bytes(), r0, r1, out,
                 out.view.codes);
    const int64_t size = dtype_bytes(dtype_), stride = view_.groups() * size;
    copy_columns(view_.scales, stride, c0 / group_ * size, out.view.groups() * size, r0, r1, out, out.view.scales);
    copy_columns(view_.biases, stride, c0 / group_ * size, out.view.groups() * size, r0, r1, out, out.view.biases);
    return out;
  }

  Result<AffineView> affine_in_place(int64_t r0, int64_t r1) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    GALVANI_TRY_VOID(check_files());
    GALVANI_TRY_VOID(check_scales(r0, r1, 0, view_.groups()));
    const int64_t pairs = r0 * view_.groups() * dtype_bytes(dtype_);
    AffineView view = view_;
    view.rows = r1 - r0;
    view.codes += r0 * view_.row_code_bytes();
    view.scales += pairs, view.biases += pairs;
    return view;
  }

  Status read_affine(int64_t r0, int64_t r1, std::byte* codes, std::byte* scales, std::byte* biases) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    const auto first = static_cast<size_t>(r0), rows = static_cast<size_t>(r1 - r0);
    const auto code_bytes = static_cast<size_t>(view_.row_code_bytes());
    const auto pair_bytes = static_cast<size_t>(view_.groups() * dtype_bytes(dtype_));
    GALVANI_TRY_VOID(codes_.read(first * code_bytes, {codes, rows * code_bytes}));
    GALVANI_TRY_VOID(scales_.read(first * pair_bytes, {scales, rows * pair_bytes}));
    GALVANI_TRY_VOID(biases_.read(first * pair_bytes, {biases, rows * pair_bytes}));
    return check_pairs(r0, r1, scales, biases);
  }

 private:
  Status check_files() const {
    GALVANI_TRY_VOID(codes_.check());
    if (scales_.map != codes_.map) GALVANI_TRY_VOID(scales_.check());
    if (biases_.map != codes_.map) GALVANI_TRY_VOID(biases_.check());
    return {};
  }

  /// A NaN or infinity among these rows' scales and biases is an error: it would spread to everything.
  Status check_scales(int64_t r0, int64_t r1, int64_t g0, int64_t g1) const {
    const int64_t groups = view_.groups(), size = dtype_bytes(dtype_);
    if (g0 == 0 && g1 == groups)
      return check_pairs(r0, r1, view_.scales + r0 * groups * size, view_.biases + r0 * groups * size);
    for (const auto& [data, what] : {std::pair{view_.scales, "scale"}, std::pair{view_.biases, "bias"}})
      for (int64_t r = r0; r < r1; ++r)
        if (const int64_t bad = first_not_finite(dtype_, data + (r * groups + g0) * size, g1 - g0); bad >= 0)
          return not_finite(what, r, g0 + bad);
    return {};
  }

  /// The same of whole rows' scales and biases, wherever they are.
  Status check_pairs(int64_t r0, int64_t r1, const std::byte* scales, const std::byte* biases) const {
    const int64_t groups = view_.groups();
    for (const auto& [data, what] : {std::pair{scales, "scale"}, std::pair{biases, "bias"}})
      if (const int64_t bad = first_not_finite(dtype_, data, (r1 - r0) * groups); bad >= 0)
        return not_finite(what, r0 + bad / groups, bad % groups);
    return {};
  }

  tl::unexpected<Error> not_finite(const char* what, int64_t row, int64_t group) const {
    return fail(ErrorCode::kCorrupt, "{}: the {} of row {}, group {} is not a finite number; the file is damaged",
                name_, what, row, group);
  }

  static void copy_columns(const std::byte* from, int64_t stride, int64_t offset, int64_t width, int64_t r0, int64_t r1,
                           AffineTensor& out, const std::byte* target) {
    std::byte* to = out.storage.data() + (target - out.storage.data());
    if (width == stride) {
      std::memcpy(to, from + r0 * stride, static_cast<size_t>((r1 - r0) * stride));
      return;
    }
    for (int64_t r = r0; r < r1; ++r)
      std::memcpy(to + (r - r0) * width, from + r * stride + offset, static_cast<size_t>(width));
  }

  MappedBytes codes_, scales_, biases_;
  AffineView view_;
};

class FpSource final : public MatrixSource {
 public:
  FpSource(std::string name, MatrixKind kind, MappedBytes codes, MappedBytes scales, int64_t rows, int64_t cols)
      : codes_(std::move(codes)), scales_(std::move(scales)) {
    name_ = std::move(name);
    kind_ = kind;
    format_ = matrix_kind_name(kind);
    rows_ = rows;
    cols_ = cols;
    bits_ = kind == MatrixKind::kMxfp8 ? 8 : 4;
    group_ = kind == MatrixKind::kNvfp4 ? 16 : 32;
    dtype_ = DType::kU8;
    file_bytes_ = static_cast<int64_t>(codes_.bytes.size() + scales_.bytes.size());
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    GALVANI_TRY_VOID(codes_.check());
    if (scales_.map != codes_.map) GALVANI_TRY_VOID(scales_.check());
    static const std::array<float, 256> kE4M3 = [] {
      std::array<float, 256> table{};
      for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = e4m3(static_cast<uint8_t>(i));
      return table;
    }();
    const int64_t groups = cols_ / group_, half = group_ / 2;
    const auto* codes = reinterpret_cast<const uint8_t*>(codes_.bytes.data()) + r0 * cols_ * bits_ / 8;
    const auto* scales = reinterpret_cast<const uint8_t*>(scales_.bytes.data()) + r0 * groups;
    for (int64_t g = 0; g < (r1 - r0) * groups; ++g)  // E8M0's NaN is 255, E4M3's are 0x7f and 0xff
      if (kind_ == MatrixKind::kNvfp4 ? (scales[g] & 0x7f) == 0x7f : scales[g] == 0xff)
        return fail(ErrorCode::kCorrupt, "{}: the scale of row {}, group {} is NaN; the file is damaged", name_,
                    r0 + g / groups, g % groups);
    for (int64_t g = 0; g < (r1 - r0) * groups; ++g) {
      if (kind_ == MatrixKind::kMxfp8) {
        const float scale = e8m0(scales[g]);
        for (int64_t i = 0; i < group_; ++i) out[i] = kE4M3[codes[i]] * scale;
        codes += group_;
      } else {
        const float scale = kind_ == MatrixKind::kMxfp4 ? e8m0_half(scales[g]) : 0.5f * kE4M3[scales[g]];
        for (int64_t i = 0; i < half; ++i) {
          out[2 * i] = kE2M1Doubled[codes[i] & 15] * scale;
          out[2 * i + 1] = kE2M1Doubled[codes[i] >> 4] * scale;
        }
        codes += half;
      }
      out += group_;
    }
    return {};
  }

 private:
  MappedBytes codes_, scales_;
};

}  // namespace

Status MappedBytes::read(size_t offset, std::span<std::byte> out) const {
  if (map != nullptr) return map->read(static_cast<size_t>(bytes.data() - map->bytes().data()) + offset, out);
  if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
  return {};
}

Result<MatrixPtr> make_dense_source(std::string name, MappedBytes bytes, DType dtype, int64_t rows, int64_t cols,
                                    RowMap map) {
  if (!is_float(dtype))
    return fail(ErrorCode::kUnsupported, "{} holds {} elements; a weight matrix must be f32, f16 or bf16", name,
                dtype_name(dtype));
  if (packed_bytes(rows, cols, 8 * dtype_bytes(dtype)) != static_cast<int64_t>(bytes.bytes.size()))
    return fail(ErrorCode::kCorrupt, "{}: [{}, {}] {} does not take {} bytes", name, rows, cols, dtype_name(dtype),
                bytes.bytes.size());
  if (map.head_dim != 0 && (map.head_dim < 0 || map.head_dim % 2 != 0 || rows % map.head_dim != 0))
    return fail(ErrorCode::kCorrupt, "{}: {} rows are not whole heads of an even dimension {}", name, rows,
                map.head_dim);
  return std::make_shared<DenseSource>(std::move(name), std::move(bytes), dtype, rows, cols, map);
}

Result<MatrixPtr> make_affine_source(std::string name, MappedBytes codes, MappedBytes scales, MappedBytes biases,
                                     int64_t rows, int64_t cols, int bits, int group, DType scale_dtype) {
  const AffineView view{
      rows, cols, bits, group, scale_dtype, codes.bytes.data(), scales.bytes.data(), biases.bytes.data()};
  if (auto status = affine_check(view, codes.bytes.size(), scales.bytes.size(), biases.bytes.size()); !status)
    return wrap(std::move(status).error(), name);
  return std::make_shared<AffineSource>(std::move(name), std::move(codes), std::move(scales), std::move(biases), view);
}

Result<MatrixPtr> make_fp_source(std::string name, MatrixKind kind, MappedBytes codes, MappedBytes scales, int64_t rows,
                                 int64_t cols) {
  const int bits = kind == MatrixKind::kMxfp8 ? 8 : 4, group = kind == MatrixKind::kNvfp4 ? 16 : 32;
  if (cols % group != 0)
    return fail(ErrorCode::kCorrupt, "{}: {} groups of {} do not divide the {} columns", name, matrix_kind_name(kind),
                group, cols);
  if (packed_bytes(rows, cols, bits) != static_cast<int64_t>(codes.bytes.size()) ||
      packed_bytes(rows, cols / group, 8) != static_cast<int64_t>(scales.bytes.size()))
    return fail(ErrorCode::kCorrupt, "{}: {} [{}, {}] does not take {} bytes of codes and {} of scales", name,
                matrix_kind_name(kind), rows, cols, codes.bytes.size(), scales.bytes.size());
  return std::make_shared<FpSource>(std::move(name), kind, std::move(codes), std::move(scales), rows, cols);
}

}  // namespace galvani::quant
