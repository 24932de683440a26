// galvani tokenize: text to ids and back, and chat templates, so that anyone can compare with another engine.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "cli/text_input.h"
#include "core/error.h"

namespace galvani::cli {
namespace {

using nlohmann::ordered_json;

struct TokenizeFlags {
  ModelFlags model;
  std::string prompt, file, jsonl, chat, tools, now;
  bool no_special = false, decode = false, text = false, skip_special = false;
  CLI::Option* prompt_option = nullptr;
};

Result<ordered_json> parse_json(const std::string& text, const std::string& where) {
  ordered_json value = ordered_json::parse(text, nullptr, false);
  if (value.is_discarded()) return fail(ErrorCode::kInvalidArgument, "{} is not valid JSON", where);
  return value;
}

Result<ordered_json> json_file(const std::string& path) {
  GALVANI_TRY(const std::string text, read_text_file(path));
  return parse_json(text, path);
}

Result<std::vector<int32_t>> ids_of(const ordered_json& value, const std::string& where) {
  if (!value.is_array()) return fail(ErrorCode::kInvalidArgument, "{}: expected a JSON array of token ids", where);
  std::vector<int32_t> ids;
  for (const auto& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      return fail(ErrorCode::kInvalidArgument, "{}: {} is not a token id; expected integers from 0 to 2147483647",
                  where, id.dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

// One input, either way round, as the line to print.
Result<std::string> convert(const TokenizeFlags& flags, const ModelText& text, const std::string& input,
                            const std::string& where) {
  if (flags.decode) {
    GALVANI_TRY(const ordered_json value, parse_json(input, where));
    GALVANI_TRY(const std::vector<int32_t> ids, ids_of(value, where));
    const auto known = static_cast<int64_t>(text.tokenizer->vocab_size());
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= known)
        return fail(ErrorCode::kInvalidArgument, "{}: id {} at index {} is outside the vocabulary; allowed: 0 to {}",
                    where, ids[i], i, known - 1);
    }
    const std::string decoded = text.tokenizer->decode(ids, flags.skip_special);
    // With --jsonl a line must hold one answer, so the text is a JSON string there.
    return flags.jsonl.empty() ? decoded : ordered_json(decoded).dump(-1, ' ', false);
  }
  auto ids = text.tokenizer->encode(input, {.add_special = !flags.no_special});
  if (!ids) return wrap(ids.error(), where);
  return ordered_json(*ids).dump();
}

Status print_line(const std::string& line) { return print(line + '\n'); }

Status convert_lines(const TokenizeFlags& flags, const ModelText& text) {
  GALVANI_TRY(const std::string all, read_text_file(flags.jsonl));
  size_t number = 0;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = all.find('\n', begin);
    if (end == std::string::npos) end = all.size();
    std::string line = all.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{} line {}", input_name(flags.jsonl), number);
    if (!flags.decode) {
      GALVANI_TRY(const ordered_json value, parse_json(line, where));
      if (!value.is_string()) return fail(ErrorCode::kInvalidArgument, "{}: expected one JSON string a line", where);
      line = value.get<std::string>();
    }
    GALVANI_TRY(const std::string answer, convert(flags, text, line, where));
    GALVANI_TRY_VOID(print_line(answer));
  }
  return {};
}

Status render_chat(const TokenizeFlags& flags, const ModelText& text) {
  GALVANI_TRY(const ordered_json messages, json_file(flags.chat));
  ordered_json tools;
  if (!flags.tools.empty()) {
    GALVANI_TRY(tools, json_file(flags.tools));
  }
  GALVANI_TRY(const std::string rendered, text.chat_text(messages, tools, flags.now));
  if (flags.text) return print_line(rendered);
  GALVANI_TRY(const std::vector<int32_t> ids, text.tokenizer->encode(rendered, {.add_special = false}));
  return print_line(ordered_json(ids).dump());
}

Status tokenize(const TokenizeFlags& flags) {
  const int inputs =
      (flags.prompt_option->count() > 0) + !flags.file.empty() + !flags.jsonl.empty() + !flags.chat.empty();
  if (inputs != 1)
    return fail(ErrorCode::kInvalidArgument,
                "{} inputs given; give exactly one of -p TEXT, -f FILE, --jsonl FILE, --chat FILE", inputs);
  GALVANI_TRY(const std::string path, flags.model.path());
  GALVANI_TRY(const ModelText text, ModelText::open(path, flags.model.tokenizer));
  if (!flags.chat.empty()) return render_chat(flags, text);
  if (!flags.jsonl.empty()) return convert_lines(flags, text);
  std::string input = flags.prompt;
  if (!flags.file.empty()) {
    GALVANI_TRY(input, read_text_file(flags.file));
  }
  GALVANI_TRY(const std::string line, convert(flags, text, input, flags.file.empty() ? "-p" : input_name(flags.file)));
  return print_line(line);
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* verb = app.add_subcommand("tokenize", "text to token ids as a JSON array, and back");
  flags->model.add_to(*verb, false);
  flags->model.add_tokenizer_to(*verb);
  flags->prompt_option =
      verb->add_option("-p,--prompt", flags->prompt, "the text (with --decode: a JSON array of ids)");
  verb->add_option("-f,--file", flags->file, "read the text from a file (- for standard input)");
  verb->add_option("--jsonl", flags->jsonl, "one JSON string a line in, one array a line out (- for standard input)");
  verb->add_option("--chat", flags->chat, "render the model's chat template over this JSON array of messages");
  CLI::Option* chat = verb->get_option("--chat");
  verb->add_option("--tools", flags->tools, "JSON array of tools for the template")->needs("--chat");
  verb->add_option("--now", flags->now, "ISO-8601 time the template sees, e.g. 2024-07-26T12:00:00")->needs("--chat");
  verb->add_flag("--text", flags->text, "with --chat: print the text instead of its ids")->needs("--chat");
  verb->add_flag("--no-special", flags->no_special, "do not add BOS and the like");
  verb->add_flag("--decode", flags->decode, "ids to text")->excludes(chat);
  verb->add_flag("--skip-special", flags->skip_special, "with --decode: leave special tokens out")->needs("--decode");
  verb->callback([flags, &action] {
    action = [flags] {
      const Status done = tokenize(*flags);
      return done ? kYes : report(done.error());
    };
  });
}

}  // namespace galvani::cli
