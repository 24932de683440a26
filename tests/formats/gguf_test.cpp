#include "formats/gguf.h"

#include <gtest/gtest.h>

#include "formats/gguf_builder.h"

namespace galvani::formats {
namespace {

using namespace std::string_literals;

using testing::as_bytes;
using testing::GgufBuilder;
using testing::little;
using testing::TempFolder;

std::string error_of(const std::string& bytes) {
  auto file = GgufFile::open_bytes(as_bytes(bytes), "bad.gguf");
  return file ? "no error" : file.error().message;
}

void expect_error(const std::string& bytes, const std::string& words) {
  const auto message = error_of(bytes);
  EXPECT_NE(message.find(words), std::string::npos) << "expected '" << words << "' in: " << message;
  EXPECT_EQ(message.rfind("bad.gguf: ", 0), 0u) << message;
  EXPECT_LT(message.size(), 600u);
}

std::string array(uint32_t type, uint64_t count, const std::string& bytes) {
  return little(type, 4) + little(count, 8) + bytes;
}

GgufBuilder two_tensors() {
  GgufBuilder b;
  b.string("general.architecture", "llama").u32("llama.block_count", 2);
  b.tensor("a.weight", {32, 3}, 2, 0).tensor("b.weight", {4}, 0, 64);
  b.data = std::string(64 + 16, '\1');
  return b;
}

TEST(Gguf, ReadsEveryValueType) {
  GgufBuilder b = two_tensors();
  b.raw("u8", 0, "\xff")
      .raw("i8", 1, "\xff")
      .raw("u16", 2, "\xff\xff")
      .raw("i16", 3, "\xff\xff")
      .raw("i32", 5, little(~0u, 4));
  b.raw("u64", 10, little(~uint64_t{0}, 8))
      .raw("i64", 11, little(~uint64_t{0}, 8))
      .raw("yes", 7, "\1")
      .f32("f32", 1.5f);
  b.raw("f64", 12, little(0x3ff8000000000000u, 8)).string("text", "hé").raw("empty", 9, array(8, 0, ""));
  b.raw("strings", 9, array(8, 2, GgufBuilder::text("x") + GgufBuilder::text("")))
      .raw("ints", 9, array(3, 2, "\1\0\xfe\xff"s));
  b.raw("floats", 9, array(6, 1, little(0x3fc00000u, 4))).raw("bools", 9, array(7, 3, "\1\0\1"s));
  b.raw("nested", 9, array(9, 2, array(0, 1, "\1") + array(8, 1, GgufBuilder::text("q"))));
  for (uint32_t version : {2u, 3u}) {
    b.version = version;
    const std::string bytes = b.build();
    auto opened = GgufFile::open_bytes(as_bytes(bytes), "x");
    ASSERT_TRUE(opened) << opened.error().message;
    const auto& file = **opened;
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(*file.integer("u8"), 255);
    EXPECT_EQ(*file.integer("i8"), -1);
    EXPECT_EQ(*file.integer("u16"), 65535);
    EXPECT_EQ(*file.integer("i16"), -1);
    EXPECT_EQ(*file.integer("i32"), -1);
    EXPECT_EQ(*file.integer("i64"), -1);
    EXPECT_FALSE(file.integer("u64")) << "2^64-1 does not fit";
    EXPECT_EQ(*file.integer("llama.block_count"), 2);
    EXPECT_EQ(*file.boolean("yes"), true);
    EXPECT_EQ(*file.number("f32"), 1.5);
    EXPECT_EQ(*file.number("f64"), 1.5);
    EXPECT_EQ(*file.string("text"), "hé");
    EXPECT_EQ(file.strings("strings")->size(), 2u);
    EXPECT_EQ((*file.strings("strings"))[0], "x");
    EXPECT_TRUE(file.strings("empty")->empty());
    EXPECT_EQ(*file.integers("ints"), (std::vector<int64_t>{1, -2}));
    EXPECT_EQ(*file.numbers("floats"), std::vector<float>{1.5f});
    EXPECT_EQ(*file.booleans("bools"), (std::vector<bool>{true, false, true}));
    EXPECT_EQ(*file.integer_per_layer("llama.block_count", 3), (std::vector<int64_t>{2, 2, 2}));
    EXPECT_EQ(*file.integer_per_layer("ints", 2), (std::vector<int64_t>{1, -2}));
    EXPECT_FALSE(file.integer_per_layer("ints", 3));
    EXPECT_EQ(*file.integer("missing", 7), 7);
    for (const char* key : {"text", "strings", "nested"}) {
      EXPECT_FALSE(file.integer(key));
      EXPECT_FALSE(file.integers(key));
      EXPECT_FALSE(file.numbers(key));
      EXPECT_FALSE(file.booleans(key));
    }
    EXPECT_NE(file.string("missing").error().message.find("no metadata key 'missing'"), std::string::npos);
    EXPECT_NE(file.string("u8").error().message.find("'u8' is u8; expected a string"), std::string::npos);

    const auto* tensor = file.find("a.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, (Shape{3, 32}));
    EXPECT_EQ(tensor->type, GgmlType::kQ4_0);
    EXPECT_EQ(file.bytes(*tensor).size(), 54u);
    EXPECT_EQ(file.bytes(*file.find("b.weight")).data(), file.bytes(*tensor).data() + 64);
    EXPECT_EQ(file.find("c"), nullptr);
  }
}

TEST(Gguf, RefusesBrokenHeaders) {
  expect_error("", "the file ends inside the magic");
  expect_error("GGU", "the file ends inside the magic");
  expect_error("GGUX" + std::string(20, '\0'), "not a GGUF file");
  GgufBuilder b;
  b.version = 1;
  expect_error(b.build(), "version 1 is not supported");
  b.version = 4;
  expect_error(b.build(), "version 4 is not supported");
  b.version = 0x03000000;
  expect_error(b.build(), "big-endian");
  b = {};
  b.value_count = ~uint64_t{0} - 1;
  expect_error(b.build(), "the header claims");
  b = {};
  b.tensor_count = uint64_t{1} << 62;
  expect_error(b.build(), "the header claims");
  b = {};
  b.u32("a", 1).u32("a", 2);
  expect_error(b.build(), "key 'a' appears twice");
  b = {};
  b.raw("a", 13, "????");
  expect_error(b.build(), "value type 13");
  b = {};
  b.raw("a", 8, little(uint64_t{1} << 63, 8));
  expect_error(b.build(), "the file ends inside a string");
  b = {};
  b.raw("a", 9, array(0, ~uint64_t{0}, ""));
  expect_error(b.build(), "an array claims 18446744073709551615 u8 elements");
  b = {};
  b.raw("a", 9, array(8, uint64_t{1} << 40, "123456789012345678"));
  expect_error(b.build(), "an array claims");
  b = {};
  b.raw("a", 9, array(12, (uint64_t{1} << 61) + 1, "12345678"));
  expect_error(b.build(), "an array claims");
  b = {};
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += array(9, 1, "");
  b.raw("a", 9, deep + array(0, 0, ""));
  expect_error(b.build(), "nested more than");
  for (uint32_t alignment : {0u, 3u, 48u}) {
    b = two_tensors();
    b.u32("general.alignment", alignment);
    expect_error(b.build(), "general.alignment must be");
  }
  b = two_tensors();
  b.string("general.alignment", "32");
  expect_error(b.build(), "general.alignment must be");
}

TEST(Gguf, RefusesBrokenTensors) {
  const auto with = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset, const std::string& words) {
    GgufBuilder b = two_tensors();
    b.tensor("bad", std::move(dims), type, offset);
    expect_error(b.build(), words);
  };
  with({}, 0, 96, "has 0 dimensions");
  with({1, 1, 1, 1, 1}, 0, 96, "has 5 dimensions");
  with({0}, 0, 96, "a dimension of 0");
  with({uint64_t{1} << 63}, 0, 96, "a dimension of 9223372036854775808");
  with({uint64_t{1} << 62, 4}, 0, 96, "overflows");
  with({uint64_t{1} << 32, uint64_t{1} << 32}, 24, 96, "format I8 (id 24)");
  with({32}, 16, 96, "IQ2_XXS (id 16)");
  with({32}, 4, 96, "unknown (id 4)");
  with({32}, 0xffffffffu, 96, "id 4294967295");
  with({33}, 2, 96, "not whole Q4_0 blocks of 32");
  with({32}, 12, 96, "not whole Q4_K blocks of 256");
  with({4}, 0, 96, "reach past the file's");
  with({4}, 0, ~uint64_t{0} - 31, "reach past the file's");
  with({4}, 0, 33, "offset 33 is not a multiple of the alignment 32");
  with({4}, 0, 64, "overlap");
  with({4}, 0, 32, "overlap");
  GgufBuilder b = two_tensors();
  b.tensor("a.weight", {1}, 0, 96);
  b.data.resize(100);
  expect_error(b.build(), "tensor 'a.weight' appears twice");
  b = two_tensors();
  b.tensor("", {1}, 0, 96);
  b.data.resize(100);
  expect_error(b.build(), "must have 1 to");
}

TEST(Gguf, CutAnywhereIsAnError) {
  const std::string whole = two_tensors().build();
  ASSERT_EQ(error_of(whole), "no error");
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_of(whole.substr(0, n)), "no error") << n;
}

TEST(Gguf, CustomAlignment) {
  GgufBuilder b = two_tensors();
  b.u32("general.alignment", 64);
  b.alignment = 64;
  const std::string bytes = b.build();
  auto file = GgufFile::open_bytes(as_bytes(bytes), "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->find("a.weight")->begin % 64, 0u);
}

class SplitGguf : public ::testing::Test {
 protected:
  static GgufBuilder part(uint32_t number, const std::string& tensor) {
    GgufBuilder b;
    b.raw("split.no", 2, little(number, 2))
        .raw("split.count", 2, little(2, 2))
        .raw("split.tensors.count", 5, little(2, 4));
    if (number == 0) b.string("general.architecture", "llama");
    b.tensor(tensor, {8}, 0, 0);
    b.data = std::string(32, static_cast<char>('a' + number));
    return b;
  }
  std::string open_error() {
    auto file = GgufFile::open(folder_.path() / "m-00001-of-00002.gguf");
    return file ? "no error" : file.error().message;
  }
  void expect(const std::string& words) {
    const auto message = open_error();
    EXPECT_NE(message.find(words), std::string::npos) << "expected '" << words << "' in: " << message;
  }
  void write(uint32_t number, const GgufBuilder& b) {
    folder_.write("m-0000" + std::to_string(number + 1) + "-of-00002.gguf", b.build());
  }
  TempFolder folder_;
};

TEST_F(SplitGguf, ReadsAllParts) {
  write(0, part(0, "first"));
  write(1, part(1, "second"));
  auto file = GgufFile::open(folder_.path() / "m-00001-of-00002.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*(*file)->string("general.architecture"), "llama");
  ASSERT_EQ((*file)->tensors().size(), 2u);
  EXPECT_EQ(static_cast<char>((*file)->bytes(*(*file)->find("second"))[0]), 'b');
  EXPECT_EQ(static_cast<char>((*file)->bytes(*(*file)->find("first"))[0]), 'a');
}

TEST_F(SplitGguf, RefusesBrokenSets) {
  write(0, part(0, "first"));
  expect("m-00002-of-00002.gguf");  // missing
  write(1, part(1, "first"));
  expect("'first' appears twice");
  write(1, part(0, "second"));
  expect("says it is part 1 of 2; expected part 2 of 2");
  auto wrong = part(1, "second");
  wrong.tensor("third", {8}, 0, 32);
  wrong.data.resize(64);
  write(1, wrong);
  expect("hold 3 tensors, split.tensors.count says 2");
  write(1, part(1, "second"));
  auto file = GgufFile::open(folder_.path() / "m-00002-of-00002.gguf");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("open the first part"), std::string::npos) << file.error().message;
  std::filesystem::copy(folder_.path() / "m-00001-of-00002.gguf", folder_.path() / "other.gguf");
  file = GgufFile::open(folder_.path() / "other.gguf");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("its name must end with"), std::string::npos) << file.error().message;
}

}  // namespace
}  // namespace galvani::formats
