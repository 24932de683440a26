#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/bytes.h"

namespace galvani::formats {
namespace {

using testing::as_bytes;
using testing::little;
using testing::TempFolder;

/// A file of `header` and `data` bytes of zeros.
std::string file_of(const std::string& header, size_t data) {
  return little(header.size(), 8) + header + std::string(data, '\0');
}

std::string error_of(const std::string& bytes) {
  auto file = SafetensorsFile::open_bytes(as_bytes(bytes), "bad.safetensors");
  return file ? "no error" : file.error().message;
}

void expect_error(const std::string& bytes, const std::string& words) {
  const auto message = error_of(bytes);
  EXPECT_NE(message.find(words), std::string::npos) << "expected '" << words << "' in: " << message;
  EXPECT_EQ(message.rfind("bad.safetensors: ", 0), 0u) << message;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, uint64_t begin,
                  uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(Safetensors, ReadsWhatTheRulesAllow) {
  const std::string text = file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "F32", "[2,1]", 6, 14) + "," +
                                       entry("a", "BF16", "[3]", 0, 6) + "," + entry("scalar", "U8", "[]", 14, 15) +
                                       "," + entry("empty", "F64", "[0,7]", 6, 6) + "}   ",
                                   15);
  auto file = SafetensorsFile::open_bytes(as_bytes(text), "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  ASSERT_EQ((*file)->tensors().size(), 4u);
  auto view = (*file)->tensor("b");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->shape, (Shape{2, 1}));
  EXPECT_EQ(view->bytes.size(), 8u);
  EXPECT_EQ(view->dtype, DType::kF32);
  EXPECT_EQ((*file)->tensor("scalar")->shape.rank(), 0);
  EXPECT_TRUE((*file)->tensor("empty")->bytes.empty());
  EXPECT_NE((*file)->tensor("c").error().message.find("no tensor 'c'"), std::string::npos);
}

TEST(Safetensors, RefusesBrokenHeaders) {
  expect_error("", "0 bytes long");
  expect_error("1234567", "7 bytes long");
  expect_error(little(uint64_t{1} << 63, 8) + "{}", "claims a header of 9223372036854775808");
  expect_error(little(~uint64_t{0}, 8) + "{}", "claims a header of 18446744073709551615");
  expect_error(little(100, 8) + "{}", "claims a header of 100 bytes");
  expect_error(little(0, 8), "must be a JSON object");
  expect_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull");
  expect_error(file_of("[]", 0), "start with '{'");
  expect_error(file_of(" {}", 0), "start with '{'");
  expect_error(file_of("{\"a\":", 0), "not valid UTF-8 JSON");
  expect_error(file_of("{\"a\xff\":1}", 0), "not valid UTF-8 JSON");
  expect_error(file_of("{} x", 0), "not valid UTF-8 JSON");
  expect_error(file_of("{\"a\":" + std::string(100000, '[') + "}", 0), "not valid UTF-8 JSON");
  expect_error(file_of("{\"__metadata__\":[]}", 0), "__metadata__ must be an object");
  expect_error(file_of("{\"__metadata__\":{\"a\":1}}", 0), "must hold a string");
  expect_error(file_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", 0), "'a' appears twice");
  expect_error(file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "__metadata__ appears twice");
}

TEST(Safetensors, RefusesBrokenTensors) {
  expect_error(file_of("{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("a", "F32", "[1]", 4, 8) + "}", 8),
               "'a' appears twice");
  expect_error(file_of("{" + entry("a", "F33", "[1]", 0, 4) + "}", 4), "unknown dtype 'F33'");
  expect_error(file_of("{" + entry("a", "F32", "[-1]", 0, 4) + "}", 4), "dimension 0");
  expect_error(file_of("{" + entry("a", "F32", "[1,1.5]", 0, 4) + "}", 4), "dimension 1");
  expect_error(file_of("{" + entry("a", "F32", "[18446744073709551615]", 0, 4) + "}", 4), "dimension 0");
  expect_error(file_of("{" + entry("a", "F32", "7", 0, 4) + "}", 4), "shape must be a list");
  expect_error(file_of("{" + entry("a", "F32", "[4611686018427387904]", 0, 4) + "}", 4), "overflows");
  expect_error(file_of("{" + entry("a", "F32", "[4294967296,4294967296,4]", 0, 4) + "}", 4), "overflows");
  expect_error(file_of("{" + entry("a", "F32", "[1]", 4, 0) + "}", 4), "ordered and inside");
  expect_error(file_of("{" + entry("a", "F32", "[2]", 0, 8) + "}", 4), "ordered and inside");
  expect_error(file_of("{" + entry("a", "F32", "[1]", 0, 18446744073709551615u) + "}", 4), "ordered and inside");
  expect_error(file_of("{" + entry("a", "F32", "[2]", 0, 4) + "}", 4), "takes 8 bytes, but its data_offsets span 4");
  expect_error(file_of("{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("b", "U8", "[4]", 2, 6) + "}", 6), "overlap");
  expect_error(file_of("{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("b", "U8", "[4]", 6, 10) + "}", 10),
               "hole at data byte 4");
  expect_error(file_of("{" + entry("a", "U8", "[4]", 1, 5) + "}", 5), "hole at data byte 0");
  expect_error(file_of("{" + entry("a", "U8", "[4]", 0, 4) + "}", 5), "1 bytes too many");
  expect_error(file_of("{}", 1), "1 bytes too many");
  expect_error(file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0), "each once (found 1, 1 and 0)");
  expect_error(file_of("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0),
               "each once (found 2");
  expect_error(file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0,0]}}", 0), "two integers");
  expect_error(file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[-1,0]}}", 0), "two integers");
  expect_error(file_of("{\"a\":[]}", 0), "must be an object");
  const auto message = error_of(file_of("{" + entry(std::string(1 << 20, 'n'), "F33", "[1]", 0, 4) + "}", 4));
  EXPECT_LT(message.size(), 500u);
}

TEST(Safetensors, CutAnywhereIsAnError) {
  const std::string whole =
      file_of("{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("b", "F32", "[2]", 4, 12) + "}", 12);
  ASSERT_EQ(error_of(whole), "no error");
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_of(whole.substr(0, n)), "no error") << n;
}

TEST(Safetensors, AMillionTensors) {
  std::string header = "{";
  for (int i = 0; i < 1'000'000; ++i)
    header += (i ? ",\"t" : "\"t") + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  const std::string text = file_of(header + "}", 0);
  auto file = SafetensorsFile::open_bytes(as_bytes(text), "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->tensors().size(), 1'000'000u);
  EXPECT_NE((*file)->find("t999999"), nullptr);
}

TEST(Safetensors, WritesWhatItReads) {
  TempFolder folder;
  const std::vector<float> a = {1.5f, -2.0f};
  const std::vector<uint16_t> b = {7, 8, 9};
  const auto path = folder.path() / "model.safetensors";
  auto status = write_safetensors(path,
                                  {{"a", DType::kF32, Shape{2, 1}, std::as_bytes(std::span(a))},
                                   {"b \"quoted\" ü", DType::kBF16, Shape{3}, std::as_bytes(std::span(b))}},
                                  {{"format", "pt"}});
  ASSERT_TRUE(status) << status.error().message;
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  auto view = (*file)->tensor("a");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->shape, (Shape{2, 1}));
  EXPECT_EQ(std::memcmp(view->bytes.data(), a.data(), 8), 0);
  EXPECT_EQ(std::memcmp((*file)->tensor("b \"quoted\" ü")->bytes.data(), b.data(), 6), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "no temporary file may stay";

  const SafetensorsToWrite wrong{"a", DType::kF32, Shape{3}, std::as_bytes(std::span(a))};
  EXPECT_FALSE(write_safetensors(folder.path() / "wrong", {wrong}, {}));
  EXPECT_FALSE(write_safetensors(folder.path() / "no" / "where", {}, {}));
}

TEST(Safetensors, NoticesTruncationAfterOpening) {
  TempFolder folder;
  folder.write("a.safetensors", file_of("{" + entry("a", "U8", "[9000]", 0, 9000) + "}", 9000));
  auto file = SafetensorsFile::open(folder.path() / "a.safetensors");
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->check_not_truncated());
  std::filesystem::resize_file(folder.path() / "a.safetensors", 4000);
  EXPECT_FALSE((*file)->check_not_truncated());
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    folder_.write("one.safetensors", file_of("{" + entry("a", "U8", "[4]", 0, 4) + "}", 4));
    folder_.write("two.safetensors", file_of("{" + entry("b", "U8", "[2]", 0, 2) + "}", 2));
  }
  std::string error_with(const std::string& weight_map) {
    folder_.write("model.safetensors.index.json",
                  "{\"metadata\":{\"total_size\":6},\"weight_map\":" + weight_map + "}");
    auto set = SafetensorsSet::open(folder_.path());
    return set ? "no error" : set.error().message;
  }
  void expect(const std::string& weight_map, const std::string& words) {
    const auto message = error_with(weight_map);
    EXPECT_NE(message.find(words), std::string::npos) << "expected '" << words << "' in: " << message;
  }
  TempFolder folder_;
};

TEST_F(Shards, AreReadTogether) {
  ASSERT_EQ(error_with(R"({"a":"one.safetensors","b":"two.safetensors"})"), "no error");
  auto set = SafetensorsSet::open(folder_.path());
  ASSERT_EQ(set->tensors().size(), 2u);
  EXPECT_EQ(set->tensors().at("b").entry->shape, Shape{2});
}

TEST_F(Shards, RefuseABrokenIndex) {
  expect(R"({"a":"one.safetensors","b":"three.safetensors"})", "three.safetensors");
  expect(R"({"a":"one.safetensors"})", "no error");  // a shard that nothing names is not part of the model
  expect(R"({"a":"one.safetensors","b":"one.safetensors"})", "does not hold it");
  expect(R"({"a":"two.safetensors","b":"two.safetensors"})", "does not hold it");
  expect(R"({"b":"one.safetensors"})", "does not list");
  expect(R"({"a":"../one.safetensors"})", "plain file name");
  expect(R"({"a":"/etc/passwd"})", "plain file name");
  expect(R"({"a":".."})", "plain file name");
  expect(R"({"a":""})", "plain file name");
  expect(R"({"a":"one.safetensors\u0000"})", "plain file name");
  expect(R"({"a":1})", "must be a string");
  expect(R"({"a":"one.safetensors","a":"one.safetensors"})", "appears twice");
  expect(R"([])", "weight_map");
  expect(R"({})", "is empty");
  expect("{", "not valid JSON");
  folder_.write("two.safetensors",
                file_of("{" + entry("a", "U8", "[2]", 0, 2) + "," + entry("b", "U8", "[0]", 2, 2) + "}", 2));
  expect(R"({"a":"one.safetensors","b":"two.safetensors"})", "places in 'one.safetensors'");
}

TEST_F(Shards, MissingFilesAreNamed) {
  auto set = SafetensorsSet::open(folder_.path());
  ASSERT_FALSE(set);
  EXPECT_NE(set.error().message.find("neither model.safetensors nor model.safetensors.index.json"), std::string::npos);
}

}  // namespace
}  // namespace galvani::formats
