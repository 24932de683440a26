#include "quant/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/bytes.h"
#include "formats/safetensors.h"
#include "quant/float_bytes.h"

namespace galvani::quant {
namespace {

using testing::TempFolder;

const std::filesystem::path kModels = std::filesystem::path(GALVANI_TEST_DATA) / "models";

std::shared_ptr<Checkpoint> open_or_die(const std::filesystem::path& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
  return *checkpoint;
}

TEST(FolderCheckpoint, HuggingFace) {
  auto ckpt = open_or_die(kModels / "hf" / "llama");
  EXPECT_EQ(ckpt->format(), CheckpointFormat::kHuggingFace);
  EXPECT_EQ(ckpt->config().at("model_type"), "llama");
  EXPECT_EQ(ckpt->eos_ids(), std::vector<int32_t>{2});
  EXPECT_FALSE(ckpt->norms_folded());
  EXPECT_EQ(ckpt->gguf(), nullptr);
  EXPECT_TRUE(ckpt->has("lm_head.weight"));
  EXPECT_EQ(*ckpt->shape("model.layers.1.self_attn.k_proj.weight"), (Shape{32, 64}));

  auto file = formats::SafetensorsFile::open(kModels / "hf" / "llama" / "model.safetensors");
  ASSERT_TRUE(file);
  const auto expected = (*file)->tensor("model.layers.1.self_attn.k_proj.weight");
  auto matrix = ckpt->matrix("model.layers.1.self_attn.k_proj", 32, 64);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ((*matrix)->kind(), MatrixKind::kDense);
  EXPECT_EQ((*matrix)->dtype(), DType::kBF16);
  EXPECT_EQ((*matrix)->bits(), 16);
  EXPECT_EQ((*matrix)->file_bytes(), 32 * 64 * 2);
  std::vector<float> rows(5 * 64);
  ASSERT_TRUE((*matrix)->dequant_rows(3, 8, rows.data()));
  for (int64_t i = 0; i < 5 * 64; ++i)
    ASSERT_EQ(rows[static_cast<size_t>(i)], load_float(DType::kBF16, expected->bytes.data(), 3 * 64 + i));
  const auto raw = (*matrix)->dense_rows(3, 8);
  ASSERT_EQ(raw.size(), 5u * 64 * 2);
  EXPECT_EQ(std::memcmp(raw.data(), expected->bytes.data() + 3 * 128, raw.size()), 0);
  EXPECT_FALSE((*matrix)->dequant_rows(3, 33, rows.data()));
  EXPECT_TRUE((*matrix)->dense_rows(3, 33).empty());
  EXPECT_FALSE((*matrix)->affine(0, 1, 0, 64));

  auto norm = ckpt->vector("model.norm.weight", 64);
  ASSERT_TRUE(norm);
  EXPECT_EQ((*norm)[5], load_float(DType::kBF16, (*file)->tensor("model.norm.weight")->bytes.data(), 5));
}

TEST(FolderCheckpoint, RemembersWhatWasUsed) {
  auto ckpt = open_or_die(kModels / "hf" / "qwen2");
  const auto all = ckpt->unused();
  EXPECT_EQ(all.size(), 26u);
  ASSERT_TRUE(ckpt->matrix("model.embed_tokens", 256, 64));
  ASSERT_TRUE(ckpt->vector("model.layers.0.self_attn.q_proj.bias", 64));
  EXPECT_EQ(ckpt->unused().size(), 24u);
  ckpt->ignore_prefix("model.layers.1.");
  EXPECT_EQ(ckpt->unused().size(), 12u);
}

TEST(FolderCheckpoint, ErrorsNameFileTensorAndExpectation) {
  auto ckpt = open_or_die(kModels / "hf" / "llama");
  const auto expect = [](const auto& result, std::initializer_list<const char*> words) {
    ASSERT_FALSE(result);
    for (const char* word : words)
      EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  };
  expect(ckpt->matrix("model.layers.0.self_attn.k_proj", 64, 64),
         {"model.safetensors", "k_proj.weight", "[32, 64]", "[64, 64]"});
  expect(ckpt->matrix("model.layers.7.mlp.up_proj", 64, 64),
         {"hf/llama", "no tensor 'model.layers.7.mlp.up_proj.weight'"});
  expect(ckpt->vector("model.norm.weight", 65), {"model.norm.weight", "[64]", "65"});
  expect(ckpt->vector("model.norm.bias", 65), {"no tensor 'model.norm.bias'"});
  expect(Checkpoint::open(kModels / "nothing"), {"does not exist"});
  expect(Checkpoint::open(kModels), {"no config.json"});
  expect(Checkpoint::open(kModels / "hf" / "llama" / "model.safetensors"), {"give the folder"});
}

struct MlxCase {
  const char* folder;
  int bits, group;
};

class MlxFolder : public ::testing::TestWithParam<MlxCase> {};

TEST_P(MlxFolder, ReadsEveryMatrixAsWritten) {
  const auto [name, bits, group] = GetParam();
  const auto folder = kModels / "mlx" / name;
  auto ckpt = open_or_die(folder);
  EXPECT_EQ(ckpt->format(), CheckpointFormat::kMlx);
  auto file = formats::SafetensorsFile::open(folder / "model.safetensors");
  ASSERT_TRUE(file);
  int matrices = 0;
  for (const auto& entry : (*file)->tensors()) {
    if (!entry.name.ends_with(".scales")) continue;
    const std::string module = entry.name.substr(0, entry.name.size() - 7);
    const int64_t rows = entry.shape[0], cols = entry.shape[1] * group;
    auto matrix = ckpt->matrix(module, rows, cols);
    ASSERT_TRUE(matrix) << matrix.error().message;
    EXPECT_EQ((*matrix)->bits(), bits);
    EXPECT_EQ((*matrix)->group(), group);
    EXPECT_EQ((*matrix)->kind(), MatrixKind::kAffine);
    // Element by element from the raw words, by the format's definition.
    const auto codes = (*file)->tensor(module + ".weight"), scales = (*file)->tensor(entry.name),
               biases = (*file)->tensor(module + ".biases");
    std::vector<float> out(static_cast<size_t>(rows * cols));
    ASSERT_TRUE((*matrix)->dequant_rows(0, rows, out.data()));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        uint32_t code = 0;
        for (int b = 0; b < bits; ++b) {
          const int64_t bit = r * cols * bits + c * bits + b;
          code |= (static_cast<uint32_t>(codes->bytes[static_cast<size_t>(bit / 8)]) >> (bit % 8) & 1u) << b;
        }
        const int64_t g = r * (cols / group) + c / group;
        const float expected = static_cast<float>(code) * load_float(scales->dtype, scales->bytes.data(), g) +
                               load_float(biases->dtype, biases->bytes.data(), g);
        ASSERT_EQ(out[static_cast<size_t>(r * cols + c)], expected) << module << ' ' << r << ' ' << c;
      }
    // A block of it, cut out.
    const int64_t c0 = cols > group ? group : 0;
    auto part = (*matrix)->affine(1, rows - 1, c0, cols);
    ASSERT_TRUE(part) << part.error().message;
    std::vector<float> cut(static_cast<size_t>((rows - 2) * (cols - c0)));
    affine_dequant_rows(part->view, 0, rows - 2, cut.data());
    for (int64_t r = 0; r < rows - 2; ++r)
      ASSERT_EQ(std::memcmp(cut.data() + r * (cols - c0), out.data() + (r + 1) * cols + c0,
                            static_cast<size_t>(cols - c0) * 4),
                0);
    ++matrices;
  }
  EXPECT_GT(matrices, 10);
}

INSTANTIATE_TEST_SUITE_P(All, MlxFolder,
                         ::testing::Values(MlxCase{"llama-3-32-affine", 3, 32}, MlxCase{"llama-4-64-affine", 4, 64},
                                           MlxCase{"qwen2-5-64-affine", 5, 64}, MlxCase{"qwen3-6-32-affine", 6, 32},
                                           MlxCase{"gemma3-8-64-affine", 8, 64}),
                         [](const ::testing::TestParamInfo<MlxCase>& test) {
                           std::string name = test.param.folder;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace galvani::quant
