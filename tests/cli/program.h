#pragma once
/// Runs the galvani program as a child process, and makes small model folders for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace galvani::cli {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline fs::path write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

/// The program as it was built, or where the tests have been carried elsewhere (scripts/gpu-gate --binaries) the one
/// beside them.
inline std::string program_path() {
  std::error_code ignored;
  if (fs::exists(GALVANI_PROGRAM, ignored)) return GALVANI_PROGRAM;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "galvani";
  return fs::exists(beside, ignored) ? beside.string() : GALVANI_PROGRAM;
}

inline fs::path model_data(const std::string& name) { return fs::path(GALVANI_TEST_DATA) / "models" / name; }

/// A fresh folder of one test, removed with it.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "galvani-cli-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  /// Names in the folder that hold `part`.
  std::vector<std::string> names_with(const std::string& part) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_))
      if (const std::string name = entry.path().filename(); name.find(part) != name.npos) names.push_back(name);
    return names;
  }

 private:
  fs::path path_;
};

struct Outcome {
  int code = -1;  ///< exit code; -signal when it died of one, -1000 when it ran out of time
  std::string out, err;
};

struct Setting {
  std::string input = {};  ///< standard input
  std::string out = {};    ///< file for standard output instead of capturing it; "closed" closes it
  std::string err = {};    ///< file or terminal for standard error instead of capturing it
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// Called while the program runs, with its process id and the file that its output goes to.
  std::function<void(pid_t, const fs::path&)> during = {};
  std::chrono::seconds limit{180};
};

[[noreturn]] inline void become_program(const Words& words, const Setting& setting, const fs::path& in,
                                        const fs::path& out, const fs::path& err) {
  const auto put = [](const fs::path& path, int flags, int as) {
    const int fd = open(path.c_str(), flags, 0600);
    if (fd < 0 || dup2(fd, as) < 0) _exit(99);
    if (fd != as) close(fd);
  };
  put(in, O_RDONLY, 0);
  put(setting.err.empty() ? err : fs::path(setting.err), O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY, 2);
  if (setting.out == "closed")
    close(1);
  else
    put(setting.out.empty() ? out : fs::path(setting.out), O_WRONLY | O_CREAT | O_TRUNC, 1);
  setenv("OMP_WAIT_POLICY", "passive", 1);
  for (const auto& [name, value] : setting.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  std::string program = program_path();
  argv.push_back(program.data());
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(98);
}

inline Outcome run(const Words& words, const Setting& setting = Setting()) {
  const Scratch scratch;
  const fs::path in = write_file(scratch / "in", setting.input), out = scratch / "out", err = scratch / "err";
  const pid_t child = fork();
  if (child == 0) become_program(words, setting, in, out, err);
  Outcome outcome;
  if (child < 0) {
    ADD_FAILURE() << "fork failed";
    return outcome;
  }
  if (setting.during) setting.during(child, out);
  const auto deadline = std::chrono::steady_clock::now() + setting.limit;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      ADD_FAILURE() << "the program did not end in time";
      outcome.code = -1000;
      return outcome;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (fs::exists(out)) outcome.out = read_file(out);
  if (fs::exists(err)) outcome.err = read_file(err);
  return outcome;
}

/// Runs, and expects the exit code and each of `needles` on standard error.
inline Outcome expect_error(int code, const Words& words, const Words& needles, const Setting& setting = Setting()) {
  const Outcome outcome = run(words, setting);
  std::string command;
  for (const std::string& word : words) command.append(1, ' ').append(word, 0, 80);
  EXPECT_EQ(outcome.code, code) << command << "\n" << outcome.err;
  for (const std::string& needle : needles)
    EXPECT_NE(outcome.err.find(needle), std::string::npos)
        << command << "\nshould say: " << needle << "\nsaid: " << outcome.err;
  return outcome;
}

/// The words that the alphabet of byte-level BPE writes bytes as.
inline std::string byte_letter(int byte) {
  static const std::vector<int> code_points = [] {
    std::vector<int> table(256, -1);
    int next = 256;
    for (int b = 0; b < 256; ++b)
      table[static_cast<size_t>(b)] = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++;
    return table;
  }();
  const int c = code_points[static_cast<size_t>(byte)];
  if (c < 128) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
}

/// A tokenizer of 256 ids: <pad>, <s>, </s>, then one token a byte, without the three that no UTF-8 holds. The id of
/// an ASCII character is its code + 3.
inline std::string byte_tokenizer() {
  nlohmann::ordered_json vocab = {{"<pad>", 0}, {"<s>", 1}, {"</s>", 2}};
  nlohmann::ordered_json added = nlohmann::ordered_json::array();
  for (const char* special : {"<pad>", "<s>", "</s>"})
    added.push_back({{"id", vocab[special]},
                     {"content", special},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  for (int byte = 0; byte < 256; ++byte)
    if (byte != 0xC0 && byte != 0xC1 && byte != 0xF5) vocab[byte_letter(byte)] = vocab.size();
  const nlohmann::ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return nlohmann::ordered_json{
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", level},
      {"post_processor", nullptr},
      {"decoder", level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::ordered_json::array()}}}}
      .dump();
}

constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.content == 'bad' %}{{ raise_exception('no bad words') }}{% endif %}"
    "<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant:{% endif %}";

/// Adds the byte tokenizer and, unless empty, a chat template to a folder.
inline void add_tokenizer(const fs::path& folder, const std::string& chat_template = kTemplate) {
  write_file(folder / "tokenizer.json", byte_tokenizer());
  nlohmann::json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  write_file(folder / "tokenizer_config.json", config.dump());
}

/// The tiny llama with the byte tokenizer, as folder `name` of `scratch`.
inline fs::path text_model(const Scratch& scratch, const std::string& name = "model") {
  fs::copy(model_data("hf/llama"), scratch / name);
  add_tokenizer(scratch / name);
  return scratch / name;
}

}  // namespace galvani::cli
