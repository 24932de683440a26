#include "quant/row_select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "quant/checkpoint.h"

namespace galvani::quant {
namespace {

constexpr const char* kModule = "model.layers.0.mlp.gate_proj";

MatrixPtr matrix_of(const char* model) {
  auto checkpoint = Checkpoint::open(std::filesystem::path(GALVANI_TEST_DATA) / "models" / model);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  const auto shape = (*checkpoint)->shape(std::string(kModule) + ".weight");
  EXPECT_TRUE(shape);
  const int64_t rows = (*shape)[0], cols = (*checkpoint)->config()["hidden_size"].get<int64_t>();
  auto matrix = (*checkpoint)->matrix(kModule, rows, cols);
  EXPECT_TRUE(matrix) << matrix.error().message;
  return *matrix;
}

std::vector<float> rows_of(const MatrixSource& m, int64_t r0, int64_t r1) {
  std::vector<float> out(static_cast<size_t>((r1 - r0) * m.cols()));
  EXPECT_TRUE(m.dequant_rows(r0, r1, out.data()));
  return out;
}

const std::vector<RowRun> kRuns = {
    {.first = 7, .count = 3, .step = 1}, {.first = 1, .count = 5, .step = 2}, {.first = 0, .count = 1}};
const std::vector<int64_t> kRows = {7, 8, 9, 1, 3, 5, 7, 9, 0};

TEST(RowSelect, EveryRangeHoldsTheBasesRows) {
  for (const char* model : {"hf/llama", "mlx/llama-4-64-affine"}) {
    const MatrixPtr base = matrix_of(model);
    const auto chosen = select_rows(base, kRuns);
    ASSERT_TRUE(chosen) << chosen.error().message;
    ASSERT_EQ((*chosen)->rows(), 9);
    for (int64_t r0 = 0; r0 < 9; ++r0) {
      for (int64_t r1 = r0 + 1; r1 <= 9; ++r1) {
        const std::vector<float> got = rows_of(**chosen, r0, r1);
        for (int64_t r = r0; r < r1; ++r) {
          const std::vector<float> want =
              rows_of(*base, kRows[static_cast<size_t>(r)], kRows[static_cast<size_t>(r)] + 1);
          ASSERT_EQ(
              std::vector<float>(got.begin() + (r - r0) * base->cols(), got.begin() + (r - r0 + 1) * base->cols()),
              want)
              << model << " row " << r << " of [" << r0 << ", " << r1 << ")";
        }
      }
    }
  }
}

TEST(RowSelect, AffineCodesAreTheBasesOwn) {
  const MatrixPtr base = matrix_of("mlx/llama-4-64-affine");
  const auto chosen = select_rows(base, kRuns);
  ASSERT_TRUE(chosen) << chosen.error().message;
  for (int64_t r0 : {0, 2, 3, 8}) {
    const auto codes = (*chosen)->affine(r0, 9, 0, 64);
    ASSERT_TRUE(codes) << codes.error().message;
    std::vector<float> got(static_cast<size_t>((9 - r0) * 64));
    affine_dequant_rows(codes->view, 0, 9 - r0, got.data());
    for (int64_t r = r0; r < 9; ++r) {
      const std::vector<float> want = rows_of(*base, kRows[static_cast<size_t>(r)], kRows[static_cast<size_t>(r)] + 1);
      for (int64_t c = 0; c < 64; ++c)
        ASSERT_EQ(got[static_cast<size_t>((r - r0) * 64 + c)], want[static_cast<size_t>(c)]);
    }
  }
}

TEST(RowSelect, DenseRowsAreLentWhereTheyLieTogether) {
  const auto chosen = select_rows(matrix_of("hf/llama"), kRuns);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ((*chosen)->dense_rows(0, 3).size(), static_cast<size_t>(3 * (*chosen)->cols() * 2));
  EXPECT_TRUE((*chosen)->dense_rows(2, 4).empty());
  EXPECT_TRUE((*chosen)->dense_rows(3, 5).empty());
}

TEST(RowSelect, BulkReadsGiveTheSameBytes) {
  const auto chosen = select_rows(matrix_of("mlx/llama-4-64-affine"), kRuns).value();
  const auto elements = select_rows(matrix_of("hf/llama"), kRuns).value();
  const auto row_bytes = static_cast<size_t>(2 * elements->cols());
  for (const auto& [r0, r1] : {std::pair<int64_t, int64_t>{0, 9}, {0, 2}, {2, 4}, {3, 8}, {8, 9}}) {
    const AffineTensor want = chosen->affine(r0, r1, 0, chosen->cols()).value();
    const auto codes = static_cast<size_t>(want.view.rows * want.view.row_code_bytes());
    const auto pairs = static_cast<size_t>(want.view.rows * want.view.groups() * 2);
    std::vector<std::byte> got(codes + 2 * pairs);
    ASSERT_TRUE(chosen->read_affine(r0, r1, got.data(), got.data() + codes, got.data() + codes + pairs));
    EXPECT_TRUE(std::equal(want.view.codes, want.view.codes + codes, got.data()));
    EXPECT_TRUE(std::equal(want.view.scales, want.view.scales + pairs, got.data() + codes));
    EXPECT_TRUE(std::equal(want.view.biases, want.view.biases + pairs, got.data() + codes + pairs));

    std::vector<std::byte> rows(static_cast<size_t>(r1 - r0) * row_bytes);
    ASSERT_TRUE(elements->read_dense(r0, r1, rows.data()).value());
    for (int64_t r = r0; r < r1; ++r)
      EXPECT_TRUE(std::equal(elements->dense_rows(r, r + 1).begin(), elements->dense_rows(r, r + 1).end(),
                             rows.begin() + (r - r0) * static_cast<int64_t>(row_bytes)));
  }
  std::byte unused{};
  EXPECT_FALSE(chosen->read_affine(3, 10, &unused, &unused, &unused));
  EXPECT_FALSE(elements->read_dense(3, 10, &unused));
  EXPECT_FALSE(elements->read_affine(0, 1, &unused, &unused, &unused)) << "not affine";
  EXPECT_FALSE(chosen->read_dense(0, 1, &unused).value()) << "not dense";
}

TEST(RowSelect, RefusesRowsOutsideAndNothing) {
  const MatrixPtr base = matrix_of("hf/llama");
  EXPECT_FALSE(select_rows(base, {{.first = base->rows(), .count = 1}}));
  EXPECT_FALSE(select_rows(base, {{.first = 0, .count = 3, .step = -1}}));
  EXPECT_FALSE(select_rows(base, {}));
}

}  // namespace
}  // namespace galvani::quant
