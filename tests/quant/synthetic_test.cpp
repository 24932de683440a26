// Synthetic weights: a function of name, row and column, the same in memory and in the folder that is saved.
#include "quant/synthetic_checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "core/error.h"

namespace galvani::quant {
namespace {

namespace fs = std::filesystem;

class Synthetic : public testing::Test {
 protected:
  Synthetic() {
    std::string name = (fs::temp_directory_path() / "galvani-synthetic-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    std::ofstream(folder / "config.json") << R"({"model_type": "llama", "quantization_config": {"quant_method": "gptq"},
      "eos_token_id": 7})";
  }
  ~Synthetic() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  std::shared_ptr<SyntheticCheckpoint> open(int bits) const {
    auto opened = SyntheticCheckpoint::open("synthetic:" + std::to_string(bits) + ":" + folder.string());
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    return *opened;
  }
  fs::path folder;
};

std::vector<std::byte> bytes_of(const MatrixSource& matrix, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const auto tensor = matrix.affine(r0, r1, c0, c1);
  EXPECT_TRUE(tensor.has_value());
  const AffineView& view = tensor->view;
  std::vector<std::byte> bytes(view.codes, view.codes + view.rows * view.row_code_bytes());
  bytes.insert(bytes.end(), view.scales, view.scales + view.rows * view.groups() * 2);
  bytes.insert(bytes.end(), view.biases, view.biases + view.rows * view.groups() * 2);
  return bytes;
}

TEST_F(Synthetic, NamesSayWhatIsWrongWithThem) {
  for (const char* bad : {"synthetic:", "synthetic:4", "synthetic:7:x", "synthetic:4x:y", "synthetic::x"}) {
    const auto opened = SyntheticCheckpoint::open(bad);
    ASSERT_FALSE(opened.has_value()) << bad;
    EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(opened.error().message.find("synthetic:BITS:CONFIG"), std::string::npos);
    EXPECT_FALSE(synthetic_folder(bad).has_value());
  }
  EXPECT_FALSE(SyntheticCheckpoint::open("synthetic:4:" + (folder / "nothing").string()).has_value());
  EXPECT_EQ(synthetic_folder("synthetic:4:a/config.json"), fs::path("a"));
  EXPECT_EQ(synthetic_folder("synthetic:4:config.json"), fs::path("."));
  EXPECT_TRUE(SyntheticCheckpoint::open("synthetic:4:" + (folder / "config.json").string()).has_value());
  EXPECT_FALSE(open(4)->matrix("m", 64, 96).has_value()) << "96 columns are no groups of 64";
}

TEST_F(Synthetic, ABlockHoldsWhatTheWholeHoldsAndGainIsAboutOne) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const auto checkpoint = open(bits);
    const auto matrix = checkpoint->matrix("model.layers.0.mlp.up_proj", 100, 256);
    ASSERT_TRUE(matrix.has_value());
    std::vector<float> whole(100 * 256), part(10 * 256);
    ASSERT_TRUE((*matrix)->dequant_rows(0, 100, whole.data()).has_value());
    ASSERT_TRUE((*matrix)->dequant_rows(37, 47, part.data()).has_value());
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + 37 * 256, part.size() * 4), 0);
    const auto block = (*matrix)->affine(37, 47, 64, 192);
    ASSERT_TRUE(block.has_value());
    std::vector<float> values(10 * 128);
    affine_dequant_rows(block->view, 0, 10, values.data());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], whole[(37 + i / 128) * 256 + 64 + i % 128]) << i;
    double squares = 0;
    for (const float w : whole) squares += double{w} * w;
    // 2^bits levels on ±√(3 / cols): the variance of L even levels is (L + 1) / (L − 1) of the uniform one's.
    const double levels = 1 << bits;
    EXPECT_NEAR(squares / 100, (levels + 1) / (levels - 1), 0.08) << bits;
    EXPECT_NE(bytes_of(**checkpoint->matrix("another", 100, 256), 0, 100, 0, 256), bytes_of(**matrix, 0, 100, 0, 256));
  }
}

TEST_F(Synthetic, WhatIsSavedLoadsBackToTheSameWeights) {
  for (const int bits : {3, 4}) {
    const auto checkpoint = open(bits);
    const auto a = checkpoint->matrix("model.layers.0.self_attn.q_proj", 70, 128);
    const auto b = checkpoint->matrix("model.embed_tokens", 300, 64);
    ASSERT_TRUE(a && b && checkpoint->vector("model.norm.weight", 64) && checkpoint->vector("q.bias", 5));
    const fs::path out = folder / ("saved" + std::to_string(bits));
    // Shards so small that every matrix has its own.
    const auto bytes =
        save_synthetic(*checkpoint, {.folder = out, .files = {{"note.txt", "hello"}}, .shard_bytes = 1000});
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    EXPECT_EQ(*bytes, (*a)->file_bytes() + (*b)->file_bytes() + 2 * 69);
    const auto loaded = Checkpoint::open(out);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    EXPECT_TRUE((*loaded)->synthetic());
    EXPECT_EQ((*loaded)->format(), CheckpointFormat::kMlx);
    EXPECT_EQ((*loaded)->eos_ids(), std::vector<int32_t>{7});
    for (const MatrixPtr& matrix : {*a, *b}) {
      const auto back = (*loaded)->matrix(matrix->name(), matrix->rows(), matrix->cols());
      ASSERT_TRUE(back.has_value()) << back.error().message;
      EXPECT_EQ((*back)->bits(), bits);
      EXPECT_EQ((*back)->group(), 64);
      EXPECT_EQ(bytes_of(**back, 0, matrix->rows(), 0, matrix->cols()),
                bytes_of(*matrix, 0, matrix->rows(), 0, matrix->cols()));
      // In place: the same bytes without a copy.
      const auto view = (*back)->affine_in_place(3, 9);
      ASSERT_TRUE(view.has_value());
      const auto copy = (*back)->affine(3, 9, 0, matrix->cols());
      EXPECT_EQ(std::memcmp(view->codes, copy->view.codes, static_cast<size_t>(6 * view->row_code_bytes())), 0);
      EXPECT_EQ(std::memcmp(view->scales, copy->view.scales, static_cast<size_t>(6 * view->groups() * 2)), 0);
      EXPECT_EQ(std::memcmp(view->biases, copy->view.biases, static_cast<size_t>(6 * view->groups() * 2)), 0);
    }
    EXPECT_EQ((*loaded)->vector("model.norm.weight", 64).value(), std::vector<float>(64, 1.0f));
    EXPECT_EQ((*loaded)->vector("q.bias", 5).value(), std::vector<float>(5, 0.0f));
    EXPECT_EQ((*loaded)->unused(), std::vector<std::string>{});
    EXPECT_TRUE(fs::exists(out / "note.txt"));
    // What is there is never written over, and nothing is left behind.
    const auto again = save_synthetic(*checkpoint, {.folder = out, .files = {}});
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
    int asked = 0;  // once for each matrix
    const auto stopped = save_synthetic(
        *checkpoint, {.folder = folder / "stopped", .files = {}, .stop = [&asked] { return ++asked == 2; }});
    ASSERT_FALSE(stopped.has_value());
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    EXPECT_FALSE(fs::exists(folder / "stopped"));
  }
  const auto nowhere = save_synthetic(*open(4), {.folder = folder / "no" / "where", .files = {}});
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  for (const auto& entry : fs::directory_iterator(folder))
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace galvani::quant
