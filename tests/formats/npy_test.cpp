#include "formats/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/bytes.h"

namespace galvani::formats {
namespace {

using testing::as_bytes;
using testing::little;
using testing::TempFolder;

std::string npy(const std::string& header, const std::string& data, int version = 1) {
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' + little(header.size(), version == 1 ? 2 : 4) +
         header + data;
}
std::string dict(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

std::string error_of(const std::string& bytes) {
  auto array = read_npy_bytes(as_bytes(bytes), "x.npy");
  return array ? "no error" : array.error().message;
}
void expect_error(const std::string& bytes, const std::string& words) {
  const auto message = error_of(bytes);
  EXPECT_NE(message.find(words), std::string::npos) << "expected '" << words << "' in: " << message;
}

std::vector<int32_t> ids_of(const std::string& bytes, int64_t limit = 70000) {
  auto array = read_npy_bytes(as_bytes(bytes), "x.npy");
  EXPECT_TRUE(array) << array.error().message;
  auto ids = npy_ids(*array, "x.npy", limit);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids ? *ids : std::vector<int32_t>{};
}

TEST(Npy, ReadsIds) {
  EXPECT_EQ(ids_of(npy(dict("<u2", "(3,)"), little(1, 2) + little(65535, 2) + little(7, 2))),
            (std::vector<int32_t>{1, 65535, 7}));
  EXPECT_EQ(ids_of(npy(dict("<i4", "(2,)"), little(5, 4) + little(6, 4), 2)), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(ids_of(npy(dict("<i8", "(1,)"), little(9, 8), 3)), std::vector<int32_t>{9});
  EXPECT_TRUE(ids_of(npy(dict("<i8", "(0,)"), "")).empty());
}

TEST(Npy, RefusesWrongIds) {
  const auto expect = [](const std::string& bytes, int64_t limit, const std::string& words) {
    auto array = read_npy_bytes(as_bytes(bytes), "x.npy");
    ASSERT_TRUE(array) << array.error().message;
    auto ids = npy_ids(*array, "x.npy", limit);
    ASSERT_FALSE(ids);
    EXPECT_NE(ids.error().message.find(words), std::string::npos) << ids.error().message;
  };
  expect(npy(dict("<i4", "(2,)"), little(5, 4) + little(~0u, 4)), 10, "id -1 at position 1");
  expect(npy(dict("<i4", "(2,)"), little(10, 4) + little(0, 4)), 10, "id 10 at position 0");
  expect(npy(dict("<u8", "(1,)"), little(~uint64_t{0}, 8)), 10, "2^63");
  expect(npy(dict("<f4", "(1,)"), little(0, 4)), 10, "one-dimensional array of integers, not f32 [1]");
  expect(npy(dict("<i4", "(1, 1)"), little(0, 4)), 10, "not i32 [1, 1]");
}

TEST(Npy, RefusesBrokenFiles) {
  const std::string good = npy(dict("<u2", "(3,)"), "123456");
  ASSERT_EQ(error_of(good), "no error");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_of(good.substr(0, n)), "no error") << n;
  expect_error("", "not a .npy file");
  expect_error(npy(dict("<u2", "(3,)"), "1234567"), "does not take the 7 bytes");
  expect_error(npy(dict("<u2", "(3,)"), "123456", 4), "version 4");
  expect_error(npy(dict(">u2", "(3,)"), "123456"), "element type ''>u2''");
  expect_error(npy(dict("|O", "(3,)"), "123456"), "element type");
  expect_error(npy(dict("<u2", "(3,)", "True"), "123456"), "Fortran");
  expect_error(npy(dict("<u2", "()"), "12"), "one or two dimensions");
  expect_error(npy(dict("<u2", "(1, 1, 3)"), "123456"), "one or two dimensions");
  expect_error(npy(dict("<u2", "(-3,)"), "123456"), "one or two dimensions");
  expect_error(npy(dict("<u2", "(99999999999999999999,)"), "123456"), "one or two dimensions");
  expect_error(npy(dict("<u2", "(4611686018427387904, 4)"), "123456"), "63 bits");
  expect_error(npy("{}", ""), "needs descr");
}

TEST(Npy, WritesWhatItReads) {
  TempFolder folder;
  const auto path = folder.path() / "out.npy";
  auto writer = NpyWriter::create(path, Shape{2, 3});
  ASSERT_TRUE(writer) << writer.error().message;
  const std::vector<float> values = {1, 2, 3, -4.5f, 5, 6};
  ASSERT_TRUE(writer->append(std::span(values).first(3)));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(writer->finish()) << "three values are missing";
  ASSERT_TRUE(writer->append(std::span(values).subspan(3)));
  ASSERT_TRUE(writer->finish());
  EXPECT_FALSE(writer->append(values));
  auto array = read_npy(path);
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->view.shape, (Shape{2, 3}));
  EXPECT_EQ(array->view.dtype, DType::kF32);
  EXPECT_EQ(std::memcmp(array->view.bytes.data(), values.data(), 24), 0);
  EXPECT_EQ((std::filesystem::file_size(path) - 24) % 64, 0u);
}

}  // namespace
}  // namespace galvani::formats
