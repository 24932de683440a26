#include "kernels/qmatmul/a16_float_pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "core/parallel.h"
#include "quant/fp_codec.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kChunkTiles = 4;  // row tiles that one thread takes from the source at a time
/// Exponent of a group without a weight.
constexpr int16_t kNoScale = std::numeric_limits<int16_t>::min();
/// nvfp4's scales, E4M3, are at most 448 = 1.75 · 2^8; E5M3 ends at 1.875.
constexpr int kNvfp4Shift = 8;

/// Exponent of a positive double: v = 1.… · 2^exponent. Every f32 is a normal double.
int exponent_of(double v) { return static_cast<int>(std::bit_cast<uint64_t>(v) >> 52) - 1023; }
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

/// The code of magnitude r, or -1.
int e2m1_code(double r) {
  constexpr int8_t kCodes[13] = {0, 1, 2, 3, 4, -1, 5, -1, 6, -1, -1, -1, 7};
  const double twice = r * 2;
  if (!(twice <= 12)) return -1;
  const int whole = static_cast<int>(twice);
  return whole == twice ? kCodes[whole] : -1;
}
int e4m3_code(double r) {
  if (!(r <= 448)) return -1;
  const int exponent = r < 0x1p-6 ? -6 : exponent_of(r);
  const double eighths = r * power_of_two(3 - exponent);  // 8…15, below 8 for subnormals
  const int whole = static_cast<int>(eighths);
  if (whole != eighths) return -1;
  return whole < 8 ? whole : (exponent + 7) * 8 + whole - 8;
}

/// Codes of one group; false when a value is none times `scale`. The quotient of an f32 and a scale of at most four
/// significant bits is a code in f64 only when it is one exactly.
template <int (*kCode)(double)>
bool encode(std::span<const float> values, double scale, int sign_bit, uint8_t* codes) {
  bool good = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = kCode(std::fabs(double{values[i]}) / scale);
    good &= code >= 0;
    codes[i] = static_cast<uint8_t>(code | (std::signbit(values[i]) ? sign_bit : 0));
  }
  return good;
}

double largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::fabs(v));
  return largest;
}

/// mxfp4 and mxfp8: the exponent that gives the largest value the largest codes. When any scale fits, this one does: a
/// smaller scale means larger codes, which are spaced as finely or more.
bool encode_mx(const A16Format& format, std::span<const float> values, int16_t& exponent, uint8_t* codes) {
  const double largest = largest_of(values);
  if (largest == 0) {
    exponent = kNoScale;
    return encode<e2m1_code>(values, 1, 1 << (format.bits - 1), codes);
  }
  const int top = exponent_of(largest);
  int e = top - 2;
  if (format.code == A16Code::kE4M3)  // 1.875 · 2^8 would be E4M3's NaN
    e = top - (largest * power_of_two(-top) == 1.875 ? 7 : 8);
  exponent = static_cast<int16_t>(e);
  return format.code == A16Code::kE2M1 ? encode<e2m1_code>(values, power_of_two(e), 8, codes)
                                       : encode<e4m3_code>(values, power_of_two(e), 128, codes);
}

/// nvfp4: the largest value is one of E2M1's times an E4M3 scale; which, is tried.
bool encode_nv(std::span<const float> values, uint8_t& scale, uint8_t* codes) {
  const double largest = largest_of(values);
  scale = static_cast<uint8_t>(a16_float_padding(A16Scale::kE5M3));
  if (largest == 0) return encode<e2m1_code>(values, 1, 8, codes);
  for (const double code : {6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.5}) {
    const double s = largest / code;
    if (e4m3_code(s) < 0 || !encode<e2m1_code>(values, s, 8, codes)) continue;  // a quotient that rounds is no E4M3
    const int exponent = exponent_of(s);
    const int eighths = static_cast<int>(s * power_of_two(3 - exponent)) - 8;
    scale = static_cast<uint8_t>((exponent - kNvfp4Shift + 31) * 8 + eighths);
    return true;
  }
  return false;
}

/// Bits of every code in every field, the even column's; the odd one's are the same turned by 16.
template <int kInstance>
struct SpreadTable {
  static constexpr int kFields = a16_float_fields(kInstance), kCodes = 1 << a16_bits(kInstance);
  std::array<std::array<uint32_t, kCodes>, kFields> bits{};
};
template <int kInstance>
constexpr SpreadTable<kInstance> make_spread() {
  SpreadTable<kInstance> table;
  for (int field = 0; field < table.kFields; ++field)
    for (int code = 0; code < table.kCodes; ++code)
      for (int bit = 0; bit < a16_bits(kInstance); ++bit)
        if ((code >> bit & 1) != 0)
          table.bits[static_cast<size_t>(field)][static_cast<size_t>(code)] |= 1u
                                                                               << a16_float_from(kInstance, field, bit);
  return table;
}

/// The 16 × 64 codes of a unit (rows `stride` apart) to its words.
template <int kInstance>
void put_words(const uint8_t* codes, int64_t stride, std::byte* unit) {
  static constexpr SpreadTable<kInstance> kSpread = make_spread<kInstance>();
  constexpr int kBits = a16_bits(kInstance), kFields = kSpread.kFields;
  for (int lane = 0; lane < kA16Lanes; ++lane) {
    uint32_t words[kBits] = {};
    const uint8_t* at = codes + lane / 4 * stride + lane % 4 * 2;
    for (int pair = 0; pair < kA16Pairs; ++pair) {
      const int step = pair / 4, reg = pair % 4;
      const uint8_t* two = at + reg % 2 * 8 * stride + step * 16 + reg / 2 * 8;
      const auto& spread = kSpread.bits[static_cast<size_t>(pair % kFields)];
      words[pair / kFields] |= spread[two[0]] | std::rotl(spread[two[1]], 16);
    }
    for (int w = 0; w < kBits; ++w) std::memcpy(unit + a16_word_at(kBits, w, lane), &words[w], 4);
  }
}

struct Packing {
  const quant::MatrixSource& source;
  A16Format format;
  int64_t r0, rows, cols, units, groups;
  std::byte* out;
  std::vector<int16_t> exponents;  ///< [rows, groups], E8M0 alone: written to the units when the shift is known

  std::byte* unit(int64_t tile, int64_t u) const { return out + (tile * units + u) * a16_unit_bytes(format); }
  /// The scale bytes of (row, group).
  void put_scale(int64_t row, int64_t group, unsigned byte) const {
    const int64_t col = group * format.group;
    unit(row / kA16Rows,
         col / kA16Cols)[a16_scale_at(format, static_cast<int>(row % kA16Rows), static_cast<int>(col % kA16Cols))] =
        static_cast<std::byte>(byte);
  }
};

Status refuse(const Packing& p, int64_t row, int64_t group, std::span<const float> values) {
  for (const float v : values)
    if (!std::isfinite(v))
      return fail(ErrorCode::kCorrupt, "{}: a weight of row {}, columns {} to {} is {}; the file is damaged",
                  p.source.name(), p.r0 + row, group * p.format.group, (group + 1) * p.format.group - 1, v);
  return fail(ErrorCode::kUnsupported, "{}: the weights of row {}, columns {} to {} are no {} codes times one scale",
              p.source.name(), p.r0 + row, group * p.format.group, (group + 1) * p.format.group - 1,
              quant::matrix_kind_name(p.source.kind()));
}

/// Row tiles [tile0, tile1): codes to words; scales to `exponents` or, for E5M3, to their place.
Status pack_tiles(Packing& p, int64_t tile0, int64_t tile1) {
  const int64_t first = tile0 * kA16Rows, last = std::min(p.rows, tile1 * kA16Rows), padded = p.units * kA16Cols;
  std::vector<float> values(static_cast<size_t>((last - first) * p.cols));
  GALVANI_TRY_VOID(p.source.dequant_rows(p.r0 + first, p.r0 + last, values.data()));
  std::vector<uint8_t> codes(static_cast<size_t>(kA16Rows * padded));
  const auto padding = static_cast<int>(a16_float_padding(p.format.scale));
  for (int64_t tile = tile0; tile < tile1; ++tile) {
    std::fill(codes.begin(), codes.end(), uint8_t{0});
    for (int64_t u = 0; u < p.units; ++u)
      std::memset(p.unit(tile, u) + a16_word_bytes(p.format.bits), padding,
                  static_cast<size_t>(a16_scale_bytes(p.format)));
    for (int64_t row = tile * kA16Rows; row < std::min(p.rows, (tile + 1) * kA16Rows); ++row)
      for (int64_t g = 0; g < p.groups; ++g) {
        const std::span<const float> group(values.data() + (row - first) * p.cols + g * p.format.group,
                                           static_cast<size_t>(p.format.group));
        uint8_t* const to = codes.data() + row % kA16Rows * padded + g * p.format.group;
        uint8_t scale = 0;
        if (p.format.scale == A16Scale::kE5M3) {
          if (!encode_nv(group, scale, to)) return refuse(p, row, g, group);
          p.put_scale(row, g, scale);
        } else if (!encode_mx(p.format, group, p.exponents[static_cast<size_t>(row * p.groups + g)], to)) {
          return refuse(p, row, g, group);
        }
      }
    for (int64_t u = 0; u < p.units; ++u) {
      if (p.format.code == A16Code::kE2M1)
        put_words<kA16E2M1>(codes.data() + u * kA16Cols, padded, p.unit(tile, u));
      else
        put_words<kA16E4M3>(codes.data() + u * kA16Cols, padded, p.unit(tile, u));
    }
  }
  return {};
}

/// 2^shift is a normal f32.
constexpr int kLeastShift = -126, kMostShift = 127;

/// The power of two that is taken out of all scales. Steps of 8 from one fixed place, so that matrices of one layer get
/// the same one and can be multiplied together; only where f16's window is too narrow for any step, the largest scale
/// goes to its top.
int shift_for(int instance, int lowest, int highest) {
  const A16Window window = a16_float_window(instance, false);
  const int base = instance == kA16E4M3 ? -8 : 0;  // mxfp8 scales are about weight / 448
  for (int step = 0; step < 64; ++step) {
    const int shift = base + (step % 2 == 0 ? step / 2 : -(step / 2 + 1)) * 8;
    if (shift != std::clamp(shift, kLeastShift, kMostShift)) continue;
    if (lowest - shift >= window.lowest && highest - shift <= window.highest) return shift;
  }
  return std::clamp(highest - window.highest, kLeastShift, kMostShift);
}

Result<A16FloatForm> place_exponents(Packing& p) {
  int lowest = std::numeric_limits<int>::max(), highest = std::numeric_limits<int>::min();
  for (const int16_t e : p.exponents)
    if (e != kNoScale) lowest = std::min<int>(lowest, e), highest = std::max<int>(highest, e);
  A16FloatForm form;
  if (lowest > highest) return form;  // zeros alone; the padding is in place
  const int instance = a16_instance(p.format), shift = shift_for(instance, lowest, highest);
  if (lowest - shift + 127 < 1)
    return fail(ErrorCode::kUnsupported,
                "{}: scales from 2^{} to 2^{} do not fit into one byte beside one factor of the matrix",
                p.source.name(), lowest, highest);
  const auto fits = [&](bool bf16) {
    const A16Window window = a16_float_window(instance, bf16);
    return lowest - shift >= window.lowest && highest - shift <= window.highest;
  };
  form.factor = static_cast<float>(power_of_two(shift));
  form.exact_f16 = fits(false), form.exact_bf16 = fits(true);
  parallel_for(p.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t g = 0; g < p.groups; ++g)
        if (const int16_t e = p.exponents[static_cast<size_t>(row * p.groups + g)]; e != kNoScale)
          p.put_scale(row, g, static_cast<unsigned>(e - shift + 127));
  });
  return form;
}

}  // namespace

Result<A16Format> a16_float_format_of(const quant::MatrixSource& source) {
  A16Format format;
  switch (source.kind()) {
    case quant::MatrixKind::kMxfp4: format = kA16Mxfp4; break;
    case quant::MatrixKind::kNvfp4: format = kA16Nvfp4; break;
    case quant::MatrixKind::kMxfp8: format = kA16Mxfp8; break;
    default:
      return fail(ErrorCode::kUnsupported, "{} is {} ({}), which has no float codes", source.name(), source.format(),
                  quant::matrix_kind_name(source.kind()));
  }
  if (source.group() != format.group || source.cols() % format.group != 0)
    return fail(ErrorCode::kUnsupported,
                "{}: {} in groups of {}, {} columns; the GPU kernels take groups of {} that "
                "divide the columns",
                source.name(), quant::matrix_kind_name(source.kind()), source.group(), source.cols(), format.group);
  return format;
}

Result<A16FloatForm> a16_float_pack(const quant::MatrixSource& source, int64_t r0, int64_t r1,
                                    std::span<std::byte> out) {
  GALVANI_TRY(const A16Format format, a16_float_format_of(source));
  if (r0 < 0 || r0 >= r1 || r1 > source.rows())
    return fail(ErrorCode::kOutOfRange, "{}: rows [{}, {}) are not a part of [0, {})", source.name(), r0, r1,
                source.rows());
  const int64_t bytes = a16_bytes(format, r1 - r0, source.cols());
  if (static_cast<int64_t>(out.size()) != bytes)
    return fail(ErrorCode::kInvalidArgument, "{}: packed rows [{}, {}) take {} bytes, the buffer has {}", source.name(),
                r0, r1, bytes, out.size());
  const bool e8m0 = format.scale == A16Scale::kE8M0;
  Packing p{source,     format, r0, r1 - r0, source.cols(), a16_units(source.cols()), source.cols() / format.group,
            out.data(), {}};
  if (e8m0) p.exponents.resize(static_cast<size_t>(p.rows * p.groups));
  std::mutex mutex;
  Status result;
  parallel_for(a16_row_tiles(p.rows), kChunkTiles, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; t += kChunkTiles) {
      Status part = pack_tiles(p, t, std::min(end, t + kChunkTiles));
      if (part) continue;
      const std::lock_guard lock(mutex);
      if (result) result = std::move(part);
      return;
    }
  });
  GALVANI_TRY_VOID(std::move(result));
  if (e8m0) return place_exponents(p);
  return A16FloatForm{.factor = static_cast<float>(1 << kNvfp4Shift)};
}

A16FloatWeight a16_float_unpack(const A16Format& format, int64_t cols, std::span<const std::byte> packed, int64_t row,
                                int64_t col) {
  const int r = static_cast<int>(row % kA16Rows), c = static_cast<int>(col % kA16Cols);
  const std::byte* unit = packed.data() + (row / kA16Rows * a16_units(cols) + col / kA16Cols) * a16_unit_bytes(format);
  const A16Place place = a16_place(r, c);
  A16FloatWeight weight;
  for (int bit = 0; bit < format.bits; ++bit) {
    const A16Bit from = a16_float_bit(a16_instance(format), place.pair, place.half, bit);
    uint32_t word;
    std::memcpy(&word, unit + a16_word_at(format.bits, from.word, place.lane), 4);
    weight.code |= ((word >> from.at) & 1u) << bit;
  }
  weight.scale = static_cast<uint32_t>(unit[a16_scale_at(format, r, c)]);
  return weight;
}

double a16_float_value(const A16Format& format, const A16FloatWeight& weight) {
  const double code = format.code == A16Code::kE2M1 ? quant::kE2M1Doubled[weight.code] / 2.0
                                                    : quant::e4m3(static_cast<uint8_t>(weight.code));
  const int e = static_cast<int>(weight.scale);
  const double scale =
      format.scale == A16Scale::kE8M0 ? std::ldexp(1.0, e - 127) : std::ldexp(1.0 + e % 8 / 8.0, e / 8 - 31);
  return scale * code;
}

}  // namespace galvani::kernels
