// galvani tokenize: ids, text and chat templates from a folder that holds only a tokenizer.
#include <sstream>

#include "cli/program.h"

namespace galvani::cli {
namespace {

class Tokenize : public testing::Test {
 protected:
  Tokenize() {
    fs::create_directory(folder);
    add_tokenizer(folder);
  }
  const Scratch scratch;
  const fs::path folder = scratch / "tokenizer";

  Words words(const Words& more) const {
    Words all = {"tokenize", "-m", folder};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string out(const Words& more, const std::string& input = "") const {
    const Outcome outcome = run(words(more), {.input = input});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
};

TEST_F(Tokenize, TextIsTakenAsItStands) {
  EXPECT_EQ(out({"-p", "hi"}), "[107,108]\n");
  EXPECT_EQ(out({"-p", ""}), "[]\n");
  // Nothing on the command line is an escape, a list, a flag or a comment.
  EXPECT_EQ(out({"-p", "[1,2]"}), "[94,52,47,53,96]\n");
  EXPECT_EQ(out({"-p", "\"a\\n"}), "[37,100,95,113]\n");
  EXPECT_EQ(out({"-p", "--jsonl"}), "[48,48,109,118,114,113,111]\n");
  EXPECT_EQ(out({"-p", "<s>a</s>"}), "[1,100,2]\n");
  EXPECT_EQ(out({"-f", "-"}, "hi\n"), "[107,108,13]\n");
  EXPECT_EQ(out({"-f", write_file(scratch / "text", "hi")}), "[107,108]\n");
}

TEST_F(Tokenize, DecodesWhatItEncoded) {
  const std::string text = "Hello, \xF0\x9F\x98\x80 na\xC3\xAFve!";
  EXPECT_EQ(out({"--decode", "-p", out({"-p", text})}), text + "\n");
  EXPECT_EQ(out({"--decode", "-p", "[1,107,2]"}), "<s>h</s>\n");
  EXPECT_EQ(out({"--decode", "--skip-special", "-p", "[1,107,2]"}), "h\n");
  EXPECT_EQ(out({"--decode", "-p", "[200,107]"}), "\xEF\xBF\xBDh\n");  // a byte that is no text
  for (const std::string bad : {"x", "5", "[1.5]", "[-1]", "[\"1\"]", "[99999999999999999999]", ""})
    expect_error(2, words({"--decode", "-p", bad}), {"-p"});
  expect_error(2, words({"--decode", "-p", "[107,256]"}), {"id 256", "index 1", "0 to 255"});
}

TEST_F(Tokenize, OneAnswerALine) {
  const std::string lines = "\"hi\"\n\n\"\\u0000\\\"\"\r\n\"\"";
  EXPECT_EQ(out({"--jsonl", "-"}, lines), "[107,108]\n[3,37]\n[]\n");
  EXPECT_EQ(out({"--decode", "--jsonl", "-"}, "[107,108]\n[]\n[13]"), "\"hi\"\n\"\"\n\"\\n\"\n");
  const Outcome broken =
      expect_error(2, words({"--jsonl", "-"}), {"line 2", "not valid JSON"}, {.input = "\"hi\"\n\"a\n"});
  EXPECT_EQ(broken.out, "[107,108]\n") << "what came before the broken line is answered";
  expect_error(2, words({"--jsonl", "-"}), {"line 1", "one JSON string"}, {.input = "5\n"});
  expect_error(2, words({"--jsonl", "-"}), {"line 1", "not valid JSON"}, {.input = "\"\xff\"\n"});
  expect_error(2, words({"--decode", "--jsonl", "-"}), {"line 2", "not a token id"}, {.input = "[3]\n[3,\"a\"]\n"});
}

TEST_F(Tokenize, ExactlyOneInput) {
  expect_error(2, words({}), {"0 inputs"});
  expect_error(2, words({"-p", "a", "--jsonl", "x"}), {"2 inputs"});
  expect_error(2, words({"--chat", "x", "--decode"}), {"--decode"});
  expect_error(2, words({"-f", write_file(scratch / "bad", "ab\xff")}), {"0xFF", "offset 2"});
  expect_error(1, words({"-f", scratch / "none"}), {"none", "No such file"});
}

TEST_F(Tokenize, RendersChats) {
  const auto chat = [&](const std::string& messages) { return write_file(scratch / "chat.json", messages).string(); };
  const std::string good = chat(R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(out({"--chat", good, "--text"}), "<s>user:hi</s><s>assistant:\n");
  EXPECT_EQ(out({"--chat", good}).rfind("[1,120,118,104,117,61,107,108,2,1,", 0), 0u);
  expect_error(2, words({"--chat", good, "--now", "noon"}), {"'noon'", "ISO 8601"});
  expect_error(2, words({"--chat", good, "--tools", write_file(scratch / "tools", "{\"a\":1}")}),
               {"tools must be a list"});
  add_tokenizer(folder, "{{ strftime_now('%d %b %Y') }} {{ tools|length }}");
  EXPECT_EQ(out({"--chat", good, "--text", "--now", "2024-07-26T12:00:00", "--tools",
                 write_file(scratch / "tools", "[{\"a\":1},{}]")}),
            "26 Jul 2024 2\n");
  add_tokenizer(folder);
  for (const std::string bad : {"{}", "[]", "5", "[5]", "[{\"content\":\"hi\"}]", "[{\"role\":1}]", "nope", "",
                                "[{\"role\":\"user\",\"content\":\"\xff\"}]"})
    expect_error(2, words({"--chat", chat(bad)}), {"error: "});
  const Outcome raised = run(words({"--chat", chat(R"([{"role":"user","content":"bad"}])")}));
  EXPECT_NE(raised.code, 0);
  EXPECT_NE(raised.err.find("no bad words"), std::string::npos) << raised.err;
  add_tokenizer(folder, "");
  expect_error(1, words({"--chat", good}), {"no chat template"});
}

// The committed small tokenizers of each kind, with the ids that the Rust package gives.
TEST_F(Tokenize, Goldens) {
  const fs::path data = fs::path(GALVANI_TEST_DATA) / "tokenizer";
  for (const char* name : {"llama2", "qwen", "gemma"}) {
    fs::create_directory(scratch / name);
    fs::copy_file(data / "tiny" / (std::string(name) + ".json"), scratch / name / "tokenizer.json");
    // The golden spells out the ids of every 24th string.
    const auto golden =
        nlohmann::json::parse(read_file(data / "tiny" / (std::string(name) + ".golden.json"))).at("ids");
    const Outcome lines = run({"tokenize", "-m", scratch / name, "--jsonl", data / "strings.jsonl"});
    ASSERT_EQ(lines.code, 0) << lines.err;
    std::istringstream stream(lines.out);
    std::string line;
    size_t count = 0;
    for (; std::getline(stream, line); ++count) {
      if (count % 24 != 0 || count / 24 >= golden.size()) continue;
      EXPECT_EQ(nlohmann::json::parse(line), golden[count / 24]) << name << " line " << count;
    }
    EXPECT_GE(count, 2000u);
    EXPECT_GE(golden.size(), 80u);
  }
}

}  // namespace
}  // namespace galvani::cli
