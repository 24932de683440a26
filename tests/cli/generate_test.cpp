// galvani generate and chat, run as programs on a tiny model.
#include <fmt/format.h>

#include "cli/program.h"

namespace galvani::cli {
namespace {

class Generate : public testing::Test {
 protected:
  const Scratch scratch;
  const std::string model = text_model(scratch);

  /// generate with one thread in f32, and `more`.
  Words words(const Words& more) const {
    Words all = {"generate", "-m", model, "--act", "f32", "-t", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string text(const Words& more) const {
    const Outcome outcome = run(words(more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
  nlohmann::json stats(const Words& more) const {
    Words all = words(more);
    all.insert(all.end(), {"--stats", scratch / "stats.json"});
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    nlohmann::json json = nlohmann::json::parse(read_file(scratch / "stats.json"), nullptr, false);
    EXPECT_TRUE(json.is_object());
    EXPECT_EQ(scratch.names_with(".tmp"), std::vector<std::string>{});
    return json;
  }
};

TEST_F(Generate, ForcedArmsArePrintedAndRecorded) {
  EXPECT_EQ(stats({"-p", "hello", "-n", "2", "--arm", "qmatmul=rows", "--arm", "attention=ref"}).at("arms"),
            nlohmann::json({{"qmatmul", "rows"}, {"attention", "ref"}}));
  EXPECT_EQ(stats({"-p", "hello", "-n", "2"}).at("arms"), nlohmann::json::object());
  const Outcome forced = run(words({"-p", "hello", "-n", "2", "--kv", "f32", "--arm", "qmatmul=rows"}));
  EXPECT_NE(forced.err.find(", kv f32, arms qmatmul=rows, "), std::string::npos) << forced.err;
  const Outcome free = run(words({"-p", "hello", "-n", "2", "--kv", "f32"}));
  EXPECT_NE(free.err.find(", kv f32, "), std::string::npos) << free.err;
  EXPECT_EQ(free.err.find(", arms"), std::string::npos) << free.err;
}

TEST_F(Generate, ProducesExactlyItsBudgetAndWritesItsFigures) {
  for (const int n : {1, 2, 37}) {
    const nlohmann::json json = stats({"-p", "hello", "-n", std::to_string(n), "--ignore-eos"});
    EXPECT_EQ(json.at("generated_tokens"), n);
    EXPECT_EQ(json.at("prompt_tokens"), 5);
    EXPECT_EQ(json.at("finish"), "length");
    EXPECT_EQ(json.at("threads"), 1);
    EXPECT_EQ(json.at("device"), "cpu");
    EXPECT_EQ(json.at("act"), "f32");
    EXPECT_GT(json.at("prompt_tps").get<double>(), 0);
    // One token has no rate; two have one.
    EXPECT_EQ(json.at("generated_tps").is_null(), n == 1);
    if (n > 1) {
      EXPECT_GT(json.at("generated_tps").get<double>(), 0);
    }
    double sum = 0;
    for (const char* part : {"open", "map", "pack", "upload", "prefill"}) {
      EXPECT_GE(json.at("ttft_parts_ms").at(part).get<double>(), 0) << part;
      sum += json.at("ttft_parts_ms").at(part).get<double>();
    }
    EXPECT_NEAR(json.at("ttft_ms").get<double>(), sum, 1e-6 * sum);
    EXPECT_NEAR(json.at("prompt_tps").get<double>(), 5e3 / json.at("ttft_parts_ms").at("prefill").get<double>(),
                1e-6 * json.at("prompt_tps").get<double>());
  }
}

TEST_F(Generate, TheSameSeedGivesTheSameTextWithAnyThreadsAndPoison) {
  const Words sampled = {"-p", "seed", "-n", "24", "--temp", "1", "--ignore-eos"};
  const auto with = [&](const Words& more) {
    Words all = sampled;
    all.insert(all.end(), more.begin(), more.end());
    return text(all);
  };
  const std::string first = with({});
  EXPECT_GT(first.size(), 20u);
  EXPECT_EQ(with({}), first);
  EXPECT_NE(with({"--seed", "1"}), first);
  EXPECT_EQ(with({"--top-k", "1"}), with({"--min-p", "1"}));  // both greedy
  Words many = words(sampled);
  many[6] = "16";
  EXPECT_EQ(run(many).out, first);
  const Outcome poisoned = run(words(sampled), {.environment = {{"GALVANI_POISON", "1"}}});
  EXPECT_EQ(poisoned.code, 0) << poisoned.err;
  EXPECT_EQ(poisoned.out, first);
}

TEST_F(Generate, ThePromptComesFromAFlagAFileOrStandardInput) {
  const std::string expected = text({"-p", "abc", "-n", "6"});
  EXPECT_EQ(text({"-f", write_file(scratch / "prompt", "abc"), "-n", "6"}), expected);
  const Outcome piped = run(words({"-f", "-", "-n", "6"}), {.input = "abc"});
  EXPECT_EQ(piped.out, expected) << piped.err;
}

TEST_F(Generate, BadPromptsAreNamed) {
  expect_error(2, words({"-p", ""}), {"the prompt is empty"});
  expect_error(2, words({"-f", "-"}), {"the prompt is empty"});
  expect_error(2,
               words({"-p",
                      "ab\xff"
                      "cd"}),
               {"not valid UTF-8", "0xFF", "offset 2"});
  expect_error(2, words({"-f", write_file(scratch / "bad", "abc\xe2\x82")}), {"not valid UTF-8", "offset 3"});
  expect_error(1, words({"-f", scratch / "missing"}), {"missing", "No such file"});
  expect_error(1, words({"-f", model}), {"Is a directory"});
}

TEST_F(Generate, PromptsAtTheContextsEdge) {
  const auto tokens = [&](int prompt, int context) {
    return stats({"-p", std::string(static_cast<size_t>(prompt), 'a'), "-c", std::to_string(context), "-n", "9",
                  "--ignore-eos"});
  };
  // The last token needs no place of its own: it is never fed back.
  const nlohmann::json edge = tokens(19, 20);
  EXPECT_EQ(edge.at("generated_tokens"), 2);
  EXPECT_EQ(edge.at("finish"), "context full");
  EXPECT_EQ(tokens(18, 20).at("generated_tokens"), 3);
  for (const size_t length : {20u, 21u, 600u})
    expect_error(1, words({"-p", std::string(length, 'a'), "-c", "20"}),
                 {fmt::format("the prompt has {} tokens", length), "the context holds 20", "-c"});
  expect_error(1, words({"-p", std::string(512, 'a')}), {"512 tokens", "made for 512"});
  const Outcome beyond = run(words({"-p", "a", "-c", "513", "-n", "1"}));
  EXPECT_EQ(beyond.code, 0);
  EXPECT_NE(beyond.err.find("512"), std::string::npos) << "a context the model was not made for takes a warning";
}

TEST_F(Generate, ATokenizerLargerThanTheModelRunsUntilItsIdsDoNotFit) {
  fs::copy_file(fs::path(GALVANI_TEST_DATA) / "tokenizer/tiny/smollm.json", model + "/tokenizer.json",
                fs::copy_options::overwrite_existing);  // 420 ids; the model has 256
  EXPECT_EQ(stats({"-p", "!", "-n", "3", "--ignore-eos"}).at("generated_tokens"), 3);
  expect_error(1, words({"-p", "hello"}), {"token id 260", "0 to 255"});
}

TEST_F(Generate, AContextThatMemoryCannotHoldIsASentence) {
  expect_error(1, words({"-p", "a", "-c", "2147483647", "-n", "2"}), {"cannot", "MiB", "-c"});
}

TEST_F(Generate, StopStringsEndTheTextBeforeThem) {
  // Biases strong enough to decide: the text is a run of one letter.
  const auto run_of = [&](char letter, const Words& more) {
    Words all = {"-p", "x", "-n", "8", "-l", fmt::format("{}=1000", letter + 3)};
    all.insert(all.end(), more.begin(), more.end());
    return text(all);
  };
  EXPECT_EQ(run_of('k', {}), "kkkkkkkk\n");
  EXPECT_EQ(run_of('k', {"--stop", "kkk"}), "\n");          // across tokens
  EXPECT_EQ(run_of('k', {"--stop", "kkj"}), "kkkkkkkk\n");  // what was held back comes out in the end
  EXPECT_EQ(run_of('k', {"--stop", "zz", "--stop", "k"}), "\n");
  EXPECT_EQ(run_of('k', {"--stop", "[k]"}), "kkkkkkkk\n");  // brackets are text, not a list
  EXPECT_EQ(run_of('k', {"--stop", "[x,k]"}), "kkkkkkkk\n");
  EXPECT_EQ(run_of('%', {"--stop", "%%"}), "\n");
  // The later of two biases of a token adds to the first.
  EXPECT_EQ(text({"-p", "x", "-n", "2", "-l", "110=500", "-l", "110=500", "-l", "111=900"}), "kk\n");
}

TEST_F(Generate, EosEndsTheTextUnlessIgnored) {
  const Words eos = {"-p", "x", "-n", "5", "-l", "2=1000"};
  const nlohmann::json stopped = stats(eos);
  EXPECT_EQ(stopped.at("finish"), "stop");
  EXPECT_EQ(stopped.at("generated_tokens"), 1);
  Words ignored = eos;
  ignored.push_back("--ignore-eos");
  EXPECT_EQ(stats(ignored).at("generated_tokens"), 5);
  EXPECT_EQ(stats(ignored).at("finish"), "length");
}

TEST_F(Generate, StatsThatCannotBeWrittenAreRefusedBeforeTheRun) {
  const Outcome missing = expect_error(1, words({"-p", "x", "--stats", scratch / "no/stats.json"}), {"no/stats.json"});
  EXPECT_EQ(missing.out, "");
  EXPECT_EQ(expect_error(2, words({"-p", "x", "--stats", model}), {"it is a folder"}).out, "");
  expect_error(2, words({"-p", "x", "--stats", ""}), {"name of the file"});
}

TEST_F(Generate, AReaderThatLeavesEndsTheRun) {
  const fs::path pipe = scratch / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Setting setting{.out = pipe};
  setting.during = [&](pid_t, const fs::path&) {
    const int fd = open(pipe.c_str(), O_RDONLY);
    char byte;
    EXPECT_EQ(read(fd, &byte, 1), 1);
    close(fd);
  };
  // Left alone this would take days; run() gives it minutes.
  expect_error(1, words({"-p", "x", "-n", "1000000000", "-c", "1000000", "--ignore-eos"}), {"standard output"},
               setting);
}

TEST_F(Generate, AnInterruptEndsTheRunAndStillWritesTheFigures) {
  Setting setting;
  setting.during = [](pid_t child, const fs::path& out) {
    for (int i = 0; i < 10000; ++i) {
      std::error_code ignored;
      if (const auto size = fs::file_size(out, ignored); !ignored && size > 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    kill(child, SIGINT);
  };
  const fs::path stats = scratch / "stats.json";
  expect_error(1, words({"-p", "x", "-n", "1000000000", "-c", "1000000", "--ignore-eos", "--stats", stats}),
               {"interrupted", "cancelled"}, setting);
  const nlohmann::json json = nlohmann::json::parse(read_file(stats), nullptr, false);
  EXPECT_EQ(json.at("finish"), "cancelled");
  EXPECT_GE(json.at("generated_tokens").get<int64_t>(), 1);
}

class Chat : public Generate {
 protected:
  Words chat_words() const { return {"chat", "-m", model, "--act", "f32", "-t", "1", "-n", "3"}; }
};

TEST_F(Chat, AnswersLinesUntilExit) {
  const Outcome twice = run(chat_words(), {.input = "hi\nyou\n/exit\nnever\n"});
  EXPECT_EQ(twice.code, 0) << twice.err;
  const Outcome once = run(chat_words(), {.input = "hi\n"});
  EXPECT_EQ(twice.out.rfind(once.out, 0), 0u) << "the first answer is the same";
  EXPECT_GT(twice.out.size(), once.out.size());
  // After /clear the same message gets the same answer; an unknown command is not sent to the model.
  const Outcome cleared = run(chat_words(), {.input = "hi\n/clear\nhi\r\n/what\n"});
  EXPECT_EQ(cleared.out, once.out + once.out);
  EXPECT_NE(cleared.err.find("there is no command /what"), std::string::npos);
}

/// What chat says of itself is for a terminal alone.
TEST_F(Chat, ATerminalSeesTheForcedArms) {
  const auto heading = [&](const Words& arms) -> std::string {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
      ADD_FAILURE() << "no pseudo-terminal";
      return "";
    }
    Words all = chat_words();
    all.insert(all.end(), arms.begin(), arms.end());
    Setting setting{.input = "/exit\n"};
    setting.err = ptsname(master);
    EXPECT_EQ(run(all, setting).code, 0);
    std::string seen;
    char buffer[4096];
    for (ssize_t got; (got = read(master, buffer, sizeof(buffer))) > 0;) seen.append(buffer, static_cast<size_t>(got));
    close(master);
    return seen;
  };
  const std::string forced = heading({"--arm", "attention=ref"}), free = heading({});
  EXPECT_NE(forced.find("act f32, arms attention=ref, context "), std::string::npos) << forced;
  EXPECT_NE(free.find("act f32, context "), std::string::npos) << free;
}

TEST_F(Chat, AMessageTheTemplateRefusesEndsOnlyThatTurn) {
  const Outcome good = run(chat_words(), {.input = "hi\n"});
  const Outcome refused = expect_error(1, chat_words(), {"no bad words"}, {.input = "bad\nhi\n"});
  EXPECT_EQ(refused.out, good.out);
  const Outcome invalid = expect_error(1, chat_words(), {"UTF-8"}, {.input = "\xff\nhi\n"});
  EXPECT_EQ(invalid.out, good.out);
}

TEST_F(Chat, AModelWithoutATemplateIsRefused) {
  add_tokenizer(model, "");
  expect_error(1, chat_words(), {"no chat template"});
  expect_error(1, words({"-p", "hi", "--chat"}), {"no chat template"});
}

}  // namespace
}  // namespace galvani::cli
