#include "core/file_map.h"

#include <gtest/gtest.h>

#include <fstream>

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
