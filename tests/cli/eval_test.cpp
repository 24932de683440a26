// galvani eval --ids: logits against the reference implementations, and every way the ids can be wrong.
#include <cmath>
#include <cstring>

#include "cli/program.h"
#include "core/error.h"
#include "formats/npy.h"
#include "formats/safetensors.h"

namespace galvani::cli {
namespace {

std::string bytes_of(const std::string& file, const std::string& tensor) {
  const auto opened = formats::SafetensorsFile::open(model_data(file) / "expected.safetensors");
  EXPECT_TRUE(opened.has_value());
  const auto view = opened ? (*opened)->tensor(tensor) : Result<TensorView>(fail(ErrorCode::kNotFound, "none"));
  EXPECT_TRUE(view.has_value()) << file << " " << tensor;
  if (!view) return {};
  return {reinterpret_cast<const char*>(view->bytes.data()), view->bytes.size()};
}

/// An .npy file of format 1.0.
std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + data;
}

template <typename T>
std::string data_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::string id_array(const std::string& type, const std::vector<T>& ids) {
  return npy(type, fmt::format("({},)", ids.size()), data_of(ids));
}

Words eval_words(const std::string& model, const fs::path& ids, const fs::path& logits) {
  return {"eval", "-m", model, "--ids", ids, "--logits", logits, "--act", "f32", "--kv", "f32", "-t", "1"};
}

TEST(Eval, LogitsOfEachFamilyAndFormat) {
  struct Case {
    const char* model;
    const char* expected;
  };
  for (const auto& [model, expected] :
       {Case{"hf/llama", "hf/llama"}, Case{"hf/qwen2", "hf/qwen2"}, Case{"hf/qwen3", "hf/qwen3"},
        Case{"hf/gemma3", "hf/gemma3"}, Case{"mlx/llama-4-64-affine", "mlx/llama-4-64-affine"},
        Case{"mlx/qwen3-6-32-affine", "mlx/qwen3-6-32-affine"}, Case{"gguf/llama.gguf", "hf/llama"}}) {
    const Scratch scratch;
    const std::string raw = bytes_of(expected, "input_ids_0");
    std::vector<int32_t> ids(raw.size() / 4);
    std::memcpy(ids.data(), raw.data(), raw.size());
    const Outcome outcome =
        run(eval_words(model_data(model), write_file(scratch / "ids.npy", id_array("<i4", ids)), scratch / "out.npy"));
    ASSERT_EQ(outcome.code, 0) << model << outcome.err;
    const auto logits = formats::read_npy(scratch / "out.npy");
    ASSERT_TRUE(logits.has_value());
    const std::string reference = bytes_of(expected, "logits_0");
    ASSERT_EQ(logits->view.dtype, DType::kF32);
    ASSERT_EQ(logits->view.shape[0], static_cast<int64_t>(ids.size()));
    ASSERT_EQ(logits->view.bytes.size(), reference.size());
    double worst = 0;
    for (size_t i = 0; i < reference.size(); i += 4) {
      float is, should;
      std::memcpy(&is, logits->view.bytes.data() + i, 4);
      std::memcpy(&should, reference.data() + i, 4);
      ASSERT_TRUE(std::isfinite(is));
      worst = std::max(worst, std::fabs(static_cast<double>(is) - should));
    }
    EXPECT_LE(worst, 5e-5) << model;
  }
}

TEST(Eval, EveryIntegerTypeAndChunkGivesTheSameRows) {
  const Scratch scratch;
  const std::string model = model_data("hf/llama");
  const auto logits = [&](const std::string& array, const Words& more = {}) {
    Words words = eval_words(model, write_file(scratch / "ids.npy", array), scratch / "out.npy");
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_file(scratch / "out.npy");
  };
  const std::string first = logits(id_array<int32_t>("<i4", {5, 0, 255, 17, 80}));
  EXPECT_EQ(first.size(), 128u + 5 * 256 * 4);
  EXPECT_EQ(logits(id_array<int64_t>("<i8", {5, 0, 255, 17, 80})), first);
  EXPECT_EQ(logits(id_array<uint16_t>("<u2", {5, 0, 255, 17, 80})), first);
  EXPECT_EQ(logits(id_array<int32_t>("<i4", {5, 0, 255, 17, 80}), {"--batch-invariant", "-b", "2"}).size(),
            first.size());
}

TEST(Eval, BadIdsLeaveNoFile) {
  const Scratch scratch;
  struct Case {
    std::string array;
    int code;
    Words needles;
  };
  const std::string good = id_array<int32_t>("<i4", {1, 2, 3});
  const std::vector<Case> cases = {
      {npy("<f4", "(2,)", std::string(8, '\0')), 2, {"one-dimensional array of integers", "f32"}},
      {npy("<i4", "(1, 2)", std::string(8, '\0')), 2, {"one-dimensional", "[1, 2]"}},
      {npy("<i4", "(0,)", ""), 2, {"no ids"}},
      {npy(">i4", "(1,)", std::string(4, '\0')), 1, {">i4"}},
      {good.substr(0, good.size() - 3), 1, {"9 bytes"}},
      {good.substr(0, 20), 1, {"header"}},
      {good + "x", 1, {"13 bytes"}},
      {"", 1, {"not a .npy file"}},
      {id_array<int32_t>("<i4", {1, 2, 256}), 1, {"id 256", "index 2", "0 to 255"}},
      {id_array<int32_t>("<i4", {1, -2}), 1, {"id -2"}},
      {id_array<int64_t>("<i8", {1, int64_t{1} << 40}), 1, {"id 1099511627776"}},
      {id_array("<i4", std::vector<int32_t>(513, 1)), 1, {"513 ids", "512 positions"}}};
  for (const Case& c : cases) {
    expect_error(c.code,
                 eval_words(model_data("hf/llama"), write_file(scratch / "ids.npy", c.array), scratch / "out.npy"),
                 c.needles);
    EXPECT_EQ(scratch.names_with("out"), std::vector<std::string>{});
  }
  expect_error(1, eval_words(model_data("hf/llama"), scratch / "none.npy", scratch / "out.npy"), {"none.npy"});
}

TEST(Eval, TheOutputAppearsWholeOrNotAtAll) {
  const Scratch scratch;
  const std::string model = model_data("hf/llama");
  const fs::path ids = write_file(scratch / "ids.npy", id_array<int32_t>("<i4", {1, 2, 3}));
  expect_error(1, eval_words(model, ids, scratch / "no/out.npy"), {"no/out.npy", "No such file"});
  expect_error(2, eval_words(model, ids, scratch / "."), {"it is a folder"});
  expect_error(2, eval_words(model, ids, ""), {"name of the file"});
  // A link stays one; the file behind it is replaced.
  write_file(scratch / "target.npy", "old");
  fs::create_symlink("target.npy", scratch / "link.npy");
  EXPECT_EQ(run(eval_words(model, ids, scratch / "link.npy")).code, 0);
  EXPECT_TRUE(fs::is_symlink(scratch / "link.npy"));
  EXPECT_EQ(fs::file_size(scratch / "target.npy"), 128u + 3 * 256 * 4);
  // What is no file is written to, never replaced: as root a rename would turn /dev/null into a file.
  const fs::path pipe = scratch / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  size_t received = 0;
  Setting setting;
  setting.during = [&](pid_t, const fs::path&) {
    // Not blocking, so that a program that never opens the pipe fails the test instead of hanging it.
    const int fd = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    char buffer[4096];
    for (int i = 0; i < 10000 && received < 128 + 3 * 256 * 4; ++i) {
      const ssize_t got = read(fd, buffer, sizeof(buffer));
      if (got > 0)
        received += static_cast<size_t>(got);
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    close(fd);
  };
  EXPECT_EQ(run(eval_words(model, ids, pipe), setting).code, 0);
  EXPECT_EQ(received, 128u + 3 * 256 * 4);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(scratch.names_with(".tmp"), std::vector<std::string>{});
}

}  // namespace
}  // namespace galvani::cli
