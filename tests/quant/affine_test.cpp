#include "quant/affine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "quant/bit_pack.h"

namespace galvani::quant {
namespace {

/// Codes of a row as one little-endian number, one bit at a time: slow and obvious.
uint32_t code_by_bits(const std::vector<uint8_t>& row, int bits, int64_t c) {
  uint32_t code = 0;
  for (int b = 0; b < bits; ++b) {
    const auto at = static_cast<size_t>(c * bits + b);
    code |= ((row[at / 8] >> (at % 8)) & 1u) << b;
  }
  return code;
}

TEST(Affine, CodesAndDequantForEveryWidthAndGroup) {
  std::mt19937 random(20240601);
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {16, 32, 64, 128})
      for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        const int64_t rows = 3, cols = 256;
        AffineTensor tensor = make_affine_tensor(rows, cols, bits, group, type);
        ASSERT_TRUE(affine_check(tensor.view, static_cast<size_t>(rows * cols * bits / 8),
                                 static_cast<size_t>(rows * cols / group * dtype_bytes(type)),
                                 static_cast<size_t>(rows * cols / group * dtype_bytes(type))));
        for (auto& byte : tensor.storage) byte = static_cast<std::byte>(random());
        std::vector<float> scale(static_cast<size_t>(rows * cols / group)), bias(scale.size());
        const auto put = [&](const std::byte* target, size_t i) {  // a finite value that `type` can hold
          const float value = static_cast<float>(static_cast<int>(random() % 255) - 127) / 64.0f;
          std::byte* at =
              tensor.storage.data() + (target - tensor.storage.data()) + static_cast<int64_t>(i) * dtype_bytes(type);
          const uint16_t half = type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
          if (type == DType::kF32)
            std::memcpy(at, &value, 4);
          else
            std::memcpy(at, &half, 2);
          return value;
        };
        for (size_t i = 0; i < scale.size(); ++i) scale[i] = put(tensor.view.scales, i);
        for (size_t i = 0; i < scale.size(); ++i) bias[i] = put(tensor.view.biases, i);

        std::vector<float> out(static_cast<size_t>(rows * cols));
        affine_dequant_rows(tensor.view, 0, rows, out.data());
        for (int64_t r = 0; r < rows; ++r) {
          std::vector<uint8_t> row(static_cast<size_t>(tensor.view.row_code_bytes()));
          std::memcpy(row.data(), tensor.view.codes + r * tensor.view.row_code_bytes(), row.size());
          for (int64_t c = 0; c < cols; ++c) {
            const uint32_t code = code_by_bits(row, bits, c);
            ASSERT_EQ(affine_code(tensor.view.codes + r * tensor.view.row_code_bytes(), bits, c), code)
                << bits << ' ' << c;
            const auto g = static_cast<size_t>(r * (cols / group) + c / group);
            const float expected = static_cast<float>(code) * scale[g] + bias[g];
            ASSERT_EQ(std::bit_cast<uint32_t>(out[static_cast<size_t>(r * cols + c)]),
                      std::bit_cast<uint32_t>(expected))
                << bits << ' ' << group << ' ' << dtype_name(type) << ' ' << r << ' ' << c;
          }
        }
        std::vector<float> one(static_cast<size_t>(cols));
        affine_dequant_rows(tensor.view, 1, 2, one.data());
        EXPECT_EQ(std::memcmp(one.data(), out.data() + cols, one.size() * 4), 0);
      }
}

TEST(Affine, PackUndoesUnpack) {
  std::mt19937 random(7);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<std::byte> stream(static_cast<size_t>(bits * 64)), again(stream.size());
    std::vector<uint8_t> codes(512);
    for (auto& byte : stream) byte = static_cast<std::byte>(random());
    unpack_codes(bits, stream.data(), 512, codes.data());
    for (auto code : codes) ASSERT_LT(code, 1 << bits);
    pack_codes(bits, codes.data(), 512, again.data());
    EXPECT_EQ(stream, again) << bits;
  }
}

TEST(Affine, ChecksSayWhatIsWrong) {
  AffineView view{4, 64, 4, 32, DType::kF16, nullptr, nullptr, nullptr};
  EXPECT_TRUE(affine_check(view, 128, 16, 16));
  const auto expect = [](AffineView bad, size_t codes, size_t scales, size_t biases, const char* words) {
    auto status = affine_check(bad, codes, scales, biases);
    ASSERT_FALSE(status) << words;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  expect(view, 127, 16, 16, "takes 128 bytes of codes");
  expect(view, 128, 16, 15, "16 and 15");
  auto bad = view;
  bad.bits = 7;
  expect(bad, 128, 16, 16, "7-bit");
  bad = view;
  bad.group = 0;
  expect(bad, 128, 16, 16, "groups of 0");
  bad = view;
  bad.cols = 48;
  expect(bad, 96, 16, 16, "does not divide the 48 columns");
  bad = view;
  bad.scale_dtype = DType::kU8;
  expect(bad, 128, 16, 16, "scales of type u8");
  bad = view;
  bad.rows = int64_t{1} << 60;
  expect(bad, 128, 16, 16, "overflows");
}

}  // namespace
}  // namespace galvani::quant
