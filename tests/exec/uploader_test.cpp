// What arrives on a GPU is what stands in the files, byte for byte, whatever the pieces; errors come, and name their
// matrix. Skips where there is no GPU.
#include "exec/uploader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/parallel.h"
#include "cuda/device.h"
#include "exec/cuda_weights.h"
#include "formats/safetensors.h"
#include "kernels/qmatmul/a16_pack.h"
#include "quant/checkpoint.h"
#include "quant/row_select.h"

namespace galvani::exec {
namespace {

namespace fs = std::filesystem;
using kernels::StoreType;

std::vector<std::byte> noise(size_t count, uint64_t seed, std::byte mask = std::byte{0xff}) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(seed >> 56) & mask;
  }
  return bytes;
}

class CudaUploader : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const cuda::DriverState state = cuda::driver_state();
    if (state.kind != cuda::DriverState::Kind::kReady) GTEST_SKIP() << state.message;
    device_ = cuda::CudaDevice::open(0).value();
    stream_ = cuda::Stream::create(*device_).value();
    set_threads(GetParam());
    folder_ =
        fs::path(testing::TempDir()) / ("uploader_" + std::to_string(::getpid()) + "_" + std::to_string(GetParam()));
    fs::create_directory(folder_);
  }
  void TearDown() override {
    set_threads(0);
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  /// A module of 4-bit codes in groups of 64 and bf16 pairs, and one of bf16 elements.
  std::shared_ptr<quant::Checkpoint> files(int64_t rows, int64_t cols, int64_t bad_row = -1) {
    const auto count = static_cast<size_t>(rows * cols);
    codes_ = noise(count / 2, 1), elements_ = noise(2 * count, 4);
    // Without the upper exponent bits none is a NaN or infinity.
    scales_ = noise(count / 32, 2, std::byte{0x3f}), biases_ = noise(count / 32, 3, std::byte{0x3f});
    if (bad_row >= 0) {
      const auto at = static_cast<size_t>(bad_row * (cols / 64) * 2);
      scales_[at] = std::byte{0x80}, scales_[at + 1] = std::byte{0x7f};
    }
    std::ofstream(folder_ / "config.json") << R"({"quantization":{"group_size":64,"bits":4}})";
    const Status written = formats::write_safetensors(folder_ / "model.safetensors",
                                                      {{"m.weight", DType::kU32, Shape{rows, cols / 8}, codes_},
                                                       {"m.scales", DType::kBF16, Shape{rows, cols / 64}, scales_},
                                                       {"m.biases", DType::kBF16, Shape{rows, cols / 64}, biases_},
                                                       {"d.weight", DType::kBF16, Shape{rows, cols}, elements_}},
                                                      {{"format", "mlx"}});
    EXPECT_TRUE(written.has_value()) << written.error().message;
    auto opened = quant::Checkpoint::open(folder_.string());
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    return *opened;
  }
  /// Uploading fails with this, by finish() at the latest.
  void expect_failure(const quant::MatrixPtr& matrix, ErrorCode code, const char* words) {
    auto uploader = Uploader::create(stream_).value();
    const auto table = upload_table(uploader, matrix);
    const Status done = table.has_value() ? uploader.finish() : Status(tl::unexpected<Error>(table.error()));
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, code);
    EXPECT_NE(done.error().message.find(words), std::string::npos) << done.error().message;
  }
  std::vector<std::byte> back(const void* device, size_t bytes) {
    std::vector<std::byte> host(bytes);
    EXPECT_TRUE(stream_.to_host(host.data(), device, bytes).has_value());
    EXPECT_TRUE(stream_.synchronize().has_value());
    return host;
  }

  std::shared_ptr<cuda::CudaDevice> device_;
  cuda::Stream stream_;
  fs::path folder_;
  std::vector<std::byte> codes_, scales_, biases_, elements_;
};

// Several pieces each, the last one cut off, more of them than blocks; a second upload through the same object.
TEST_P(CudaUploader, ManyPiecesArriveByteForByte) {
  const int64_t rows = 8200, cols = 2048;
  const auto checkpoint = files(rows, cols);
  const quant::MatrixPtr affine = checkpoint->matrix("m", rows, cols).value();
  const quant::MatrixPtr dense = checkpoint->matrix("d", rows, cols).value();
  auto uploader = Uploader::create(stream_).value();
  for (int round = 0; round < 2; ++round) {
    const auto table = upload_table(uploader, affine);
    const auto elements = upload_table(uploader, dense);
    ASSERT_TRUE(table.has_value() && elements.has_value());
    const std::vector<float> vector = {1, 2, 3};
    const auto small = uploader.upload(std::as_bytes(std::span(vector))).value();
    const Status done = uploader.finish();
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(table->bits, 4);
    EXPECT_EQ(table->group, 64);
    EXPECT_EQ(table->type, StoreType::kBF16);
    EXPECT_TRUE(back(table->codes.data(), codes_.size()) == codes_);
    EXPECT_TRUE(back(table->scales.data(), scales_.size()) == scales_);
    EXPECT_TRUE(back(table->biases.data(), biases_.size()) == biases_);
    EXPECT_EQ(elements->type, StoreType::kBF16);
    EXPECT_TRUE(back(elements->codes.data(), elements_.size()) == elements_);
    EXPECT_EQ(std::memcmp(back(small.data(), 12).data(), vector.data(), 12), 0);
    const size_t sent = codes_.size() + scales_.size() + biases_.size() + elements_.size() + 12;
    EXPECT_EQ(uploader.bytes(), static_cast<int64_t>(sent) * (round + 1));
  }
  EXPECT_GT(uploader.seconds(), 0);
  const UploadWaits& waits = uploader.waits();
  EXPECT_LE(waits.memory + waits.reading + waits.link, uploader.seconds() * 1.001);
}

// Packed on the device from several pieces, rows in the file's order and in another one.
TEST_P(CudaUploader, PackedRowsAreTheFilesOwn) {
  const int64_t rows = 5000, cols = 2048;
  const auto checkpoint = files(rows, cols);
  const quant::MatrixPtr whole = checkpoint->matrix("m", rows, cols).value();
  const quant::MatrixPtr turned =
      quant::select_rows(whole, {{.first = 40, .count = 24}, {.first = 63, .count = 31, .step = -2}}).value();
  auto uploader = Uploader::create(stream_).value();
  for (const quant::MatrixPtr& matrix : {whole, turned}) {
    const std::vector<LinearPart> parts = {{.matrix = matrix}};
    const auto linear = upload_linear(uploader, "m", parts);
    ASSERT_TRUE(linear.has_value()) << linear.error().message;
    ASSERT_TRUE(uploader.finish().has_value());
    const kernels::CudaMatrix& packed = *linear->segments.at(0).packed;
    std::vector<std::byte> wanted(static_cast<size_t>(packed.packed_bytes()));
    ASSERT_TRUE(kernels::a16_pack(*matrix, 0, matrix->rows(), wanted).has_value());
    EXPECT_TRUE(back(packed.data, wanted.size()) == wanted) << matrix->rows() << " rows";
  }
}

// Values of another type, and elements in another order than the file's, are converted by the team.
TEST_P(CudaUploader, ConvertedRowsHaveTheirValues) {
  const int64_t rows = 700, cols = 2048;
  const auto checkpoint = files(rows, cols);
  const quant::MatrixPtr affine = checkpoint->matrix("m", rows, cols).value();
  const auto values = static_cast<size_t>(rows * cols);
  auto uploader = Uploader::create(stream_).value();
  const auto buffer = uploader.allocate(values * 4).value();
  ASSERT_TRUE(uploader.dense(affine, StoreType::kF32, buffer.as<std::byte>()).has_value());
  ASSERT_TRUE(uploader.finish().has_value());
  std::vector<float> wanted(values);
  ASSERT_TRUE(affine->dequant_rows(0, rows, wanted.data()).has_value());
  EXPECT_EQ(std::memcmp(back(buffer.data(), values * 4).data(), wanted.data(), values * 4), 0);
}

TEST_P(CudaUploader, ADamagedScaleIsNamedByFinishAtTheLatest) {
  const int64_t rows = 8200, cols = 2048;
  const auto checkpoint = files(rows, cols, 8111);
  const quant::MatrixPtr affine = checkpoint->matrix("m", rows, cols).value();
  expect_failure(affine, ErrorCode::kCorrupt, "m: the scale of row 8111, group 0 is not a finite number");
}

TEST_P(CudaUploader, AFileThatBecomesShorterIsAnError) {
  const int64_t rows = 8200, cols = 2048;
  const auto checkpoint = files(rows, cols);
  const quant::MatrixPtr dense = checkpoint->matrix("d", rows, cols).value();
  fs::resize_file(folder_ / "model.safetensors", 100000);
  expect_failure(dense, ErrorCode::kIo, "do not change a model file while it is loaded");
}

// Pieces on their way when everything ends: nothing hangs, nothing is written afterwards.
TEST_P(CudaUploader, MayEndInTheMiddle) {
  const int64_t rows = 4100, cols = 2048;
  const auto checkpoint = files(rows, cols);
  auto uploader = Uploader::create(stream_).value();
  const auto table = upload_table(uploader, checkpoint->matrix("d", rows, cols).value());
  EXPECT_TRUE(table.has_value());
}

TEST_P(CudaUploader, WeightsAreCutFromWhatWasExpected) {
  const int64_t rows = 512, cols = 2048;
  const auto checkpoint = files(rows, cols);
  RecordingOps recorded;
  const std::vector<LinearPart> parts = {{.matrix = checkpoint->matrix("m", rows, cols).value()}};
  const quant::MatrixPtr dense = checkpoint->matrix("d", rows, cols).value();
  const std::vector<float> vector(100, 1.0f);
  ASSERT_TRUE(recorded.load_linear("m", parts).has_value());
  ASSERT_TRUE(recorded.load_embedding(dense).has_value());
  ASSERT_TRUE(recorded.load_embedding(parts[0].matrix).has_value());
  ASSERT_TRUE(recorded.load_vector(vector).has_value());
  const int64_t expected = expected_weight_bytes(recorded);
  EXPECT_LT(expected, rows * cols / 2 * 9 / 8 * 2 + rows * cols * 2 + (2 << 20));

  auto uploader = Uploader::create(stream_, int64_t{32} << 20).value();
  const auto linear = upload_linear(uploader, "m", parts);
  const auto table = upload_table(uploader, dense), codes = upload_table(uploader, parts[0].matrix);
  const auto small = uploader.upload(std::as_bytes(std::span(vector)));
  ASSERT_TRUE(linear.has_value() && table.has_value() && codes.has_value() && small.has_value());
  ASSERT_TRUE(uploader.finish().has_value());
  EXPECT_LE(linear->bytes + table->bytes + codes->bytes + static_cast<int64_t>(small->size()), expected);
  EXPECT_EQ(device_->memory_by_tag().at("weights"), int64_t{32} << 20) << "one block holds them all";
  EXPECT_EQ(device_->memory_by_tag().at("upload"), 0);
  for (const void* data : {linear->segments.at(0).packed->owner.data(), table->codes.data(), codes->scales.data()})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
}

TEST_P(CudaUploader, WhatDoesNotFitIsSaidAtOnce) {
  auto uploader = Uploader::create(stream_, int64_t{1} << 42).value();
  const std::vector<float> vector = {1};
  const auto refused = uploader.upload(std::as_bytes(std::span(vector)));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("'weights' needs 4096.00 GiB"), std::string::npos) << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(Threads, CudaUploader, testing::Values(1, 2, 5));

}  // namespace
}  // namespace galvani::exec
