#include "core/file_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace galvani {
namespace {

std::filesystem::path temp_file(const std::string& name, const std::string& text) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(FileMap, MapsAndNoticesTruncation) {
  const auto path = temp_file("file_map_test.bin", std::string(10000, 'x'));
  auto map = FileMap::open(path);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ((*map)->bytes().size(), 10000u);
  EXPECT_EQ((*map)->bytes()[9999], std::byte{'x'});
  EXPECT_TRUE((*map)->check_not_truncated().has_value());
  std::filesystem::resize_file(path, 5000);
  EXPECT_EQ((*map)->check_not_truncated().error().code, ErrorCode::kIo);
}

TEST(FileMap, ReadsWhatItMapsAndNoticesAShorterFile) {
  std::string text(300000, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 977);
  const auto path = temp_file("file_map_read.bin", text);
  const auto map = FileMap::open(path).value();
  for (const auto& [offset, count] : {std::pair<size_t, size_t>{0, 300000}, {4095, 5001}, {299999, 1}, {300000, 0}}) {
    std::vector<std::byte> got(count);
    ASSERT_TRUE(map->read(offset, got).has_value());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), map->bytes().begin() + static_cast<ptrdiff_t>(offset)));
  }
  std::vector<std::byte> got(10);
  EXPECT_EQ(map->read(299991, got).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(map->read(SIZE_MAX, got).error().code, ErrorCode::kOutOfRange);
  std::filesystem::resize_file(path, 5000);
  const Status shorter = map->read(4995, got);
  ASSERT_FALSE(shorter.has_value());
  EXPECT_EQ(shorter.error().code, ErrorCode::kIo);
  EXPECT_NE(shorter.error().message.find("was 300000 bytes long when it was opened and ends at 5000 now"),
            std::string::npos)
      << shorter.error().message;
}

TEST(FileMap, NamesWhatItCannotOpen) {
  auto missing = FileMap::open("/nonexistent/model.safetensors");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("/nonexistent/model.safetensors"), std::string::npos);
  auto folder = FileMap::open(testing::TempDir());
  ASSERT_FALSE(folder.has_value());
  EXPECT_NE(folder.error().message.find("not a regular file"), std::string::npos);
  auto empty = FileMap::open(temp_file("file_map_empty.bin", ""));
  ASSERT_TRUE(empty.has_value());
  EXPECT_TRUE((*empty)->bytes().empty());
}

}  // namespace
}  // namespace galvani
