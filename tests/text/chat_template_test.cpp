#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "formats/gguf.h"

namespace galvani::text {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const fs::path kData = fs::path(GALVANI_TEST_DATA) / "jinja";

std::string read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

const Json& goldens() {
  static const Json data = Json::parse(read_text(kData / "conversations.json"), nullptr, false);
  return data;
}

ChatTemplate::Tokens tokens_of(const Json& json) {
  ChatTemplate::Tokens out;
  for (const auto& [name, text] : json.items()) out.emplace_back(name, text.get<std::string>());
  return out;
}

ChatRequest request_of(const Json& conversation) {
  ChatRequest request;
  request.messages = conversation["messages"];
  request.tools = conversation.value("tools", Json(nullptr));
  request.add_generation_prompt = conversation.value("add_generation_prompt", true);
  request.extra = conversation.value("extra", Json::object());
  request.options.clock = *parse_iso8601(goldens()["now"].get<std::string>());
  return request;
}

/// Renders every conversation and compares with what jinja2 made of it; returns how many gave text.
int compare_all(const ChatTemplate& chat, const Json& results, const std::string& name) {
  int texts = 0;
  const Json& conversations = goldens()["conversations"];
  EXPECT_EQ(results.size(), conversations.size());
  for (size_t i = 0; i < conversations.size() && i < results.size(); ++i) {
    const auto text = chat.render(request_of(conversations[i]));
    const std::string label = name + ", " + conversations[i]["name"].get<std::string>();
    const Json& wanted = results[i];
    if (wanted.contains("text")) {
      EXPECT_TRUE(text.has_value()) << label << ": " << (text ? "" : text.error().message);
      EXPECT_EQ(text.value_or(""), wanted["text"].get<std::string>()) << label;
      ++texts;
    } else {
      EXPECT_FALSE(text.has_value()) << label << " must fail: " << wanted.dump() << "\n" << text.value_or("");
      if (text) continue;
      const bool raised = wanted.contains("raised");
      EXPECT_EQ(text.error().code, raised ? ErrorCode::kInvalidArgument : ErrorCode::kCorrupt) << label;
      EXPECT_TRUE(!raised || text.error().message == wanted["raised"].get<std::string>())
          << label << ": " << text.error().message;
    }
  }
  return texts;
}

TEST(ChatTemplate, EveryFamilyStyleMatchesJinja2OnEveryConversation) {
  ASSERT_GE(goldens()["conversations"].size(), 40u);
  ASSERT_GE(goldens()["templates"].size(), 8u);
  for (const Json& entry : goldens()["templates"]) {
    const auto file = entry["file"].get<std::string>();
    const auto chat = ChatTemplate::from_strings({{"default", read_text(kData / "templates" / file)}},
                                                 tokens_of(entry["tokens"]), file);
    ASSERT_TRUE(chat.has_value()) << chat.error().message;
    EXPECT_GE(compare_all(*chat, entry["results"], file), 30) << file;
  }
}

const Json* real_golden(const std::string& name) {
  for (const Json& entry : goldens()["real"]) {
    if (entry["name"] == name) return &entry;
  }
  return nullptr;
}

class RealTemplate : public testing::TestWithParam<const char*> {};

TEST_P(RealTemplate, MatchesJinja2) {
  const char* fixtures = std::getenv("GALVANI_FIXTURES");
  if (fixtures == nullptr) GTEST_SKIP() << "GALVANI_FIXTURES names no folder with real tokenizers";
  const fs::path folder = fs::path(fixtures) / "tokenizers" / GetParam();
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  const auto chat = ChatTemplate::open(folder);
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  const Json* golden = real_golden(GetParam());
  ASSERT_NE(golden, nullptr);
  EXPECT_GE(compare_all(*chat, (*golden)["results"], GetParam()), 30);
}
INSTANTIATE_TEST_SUITE_P(Fixtures, RealTemplate, testing::Values("deepseek_v3", "gemma3", "llama3_1", "qwen3"),
                         [](const auto& one) { return std::string(one.param); });

TEST(ChatTemplate, TheOneInsideSmolLm2sGgufMatchesJinja2) {
  const char* cache = std::getenv("GALVANI_CACHE");
  if (cache == nullptr) GTEST_SKIP() << "GALVANI_CACHE names no folder with downloaded models";
  fs::path file;
  for (const auto& entry : fs::recursive_directory_iterator(cache)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".gguf" && name.find("mol") != name.npos && name.find("135") != name.npos) {
      file = entry.path();
    }
  }
  if (file.empty()) GTEST_SKIP() << "no SmolLM2-135M GGUF below " << cache;
  const auto gguf = formats::GgufFile::open(file);
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  const auto source = (*gguf)->string("tokenizer.chat_template");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const Json* golden = real_golden("SmolLM2-135M-Instruct.Q4_1.gguf");
  ASSERT_NE(golden, nullptr);
  const auto chat = ChatTemplate::from_strings({{"default", *source}}, tokens_of((*golden)["tokens"]), file.string());
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  EXPECT_GE(compare_all(*chat, (*golden)["results"], "SmolLM2"), 30);
}

class ChatFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("galvani_chat_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string rendered(const Json& tools = nullptr) const {
    const auto chat = ChatTemplate::open(folder_);
    if (!chat) return "error: " + chat.error().message;
    ChatRequest request;
    request.messages = Json::array({{{"role", "user"}, {"content", "hi"}}});
    request.tools = tools;
    const auto text = chat->render(request);
    return text ? *text : "error: " + text.error().message;
  }
  fs::path folder_;
};

TEST_F(ChatFolder, TemplateFileComesBeforeTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": {"content": "<b>"}, "eos_token": null})");
  EXPECT_EQ(rendered(), "config");
  write("chat_template.jinja", "file {{ bos_token }}{{ eos_token }}{{ messages[0].content }}{{ tools is none }}");
  EXPECT_EQ(rendered(), "file <b>hiTrue");
  write("additional_chat_templates/tool_use.jinja", "with tools {{ tools|length }}");
  EXPECT_EQ(rendered(Json::array({Json::object()})), "with tools 1");
  EXPECT_EQ(rendered(Json::array()), "file <b>hiTrue");
}

TEST_F(ChatFolder, NamedTemplatesAreChosenByTools) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "T"},
                                                       {"name": "default", "template": "D"}]})");
  EXPECT_EQ(rendered(), "D");
  EXPECT_EQ(rendered(Json::array({Json::object()})), "T");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "x", "template": ""}]})");
  EXPECT_NE(rendered().find("named 'default'"), std::string::npos) << rendered();
}

TEST_F(ChatFolder, OldChatTemplateJsonAndSpecialTokensMapServe) {
  write("chat_template.json", R"({"chat_template": "old {{ eos_token }}"})");
  write("special_tokens_map.json", R"({"eos_token": {"content": "<e>"}})");
  write("tokenizer_config.json", "{}");
  EXPECT_EQ(rendered(), "old <e>");
}

TEST_F(ChatFolder, MissingAndBrokenTemplatesAreExplained) {
  const auto missing = ChatTemplate::open(folder_);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("generate"), std::string::npos) << missing.error().message;
  EXPECT_NE(missing.error().message.find("tokenize"), std::string::npos) << missing.error().message;
  write("tokenizer_config.json", "{not json");
  EXPECT_EQ(ChatTemplate::open(folder_).error().code, ErrorCode::kCorrupt);
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(ChatTemplate::open(folder_).error().code, ErrorCode::kCorrupt);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
  EXPECT_EQ(ChatTemplate::open(folder_).error().code, ErrorCode::kCorrupt);
  write("tokenizer_config.json", R"({"chat_template": "a\n{% if %}"})");
  const Error broken = ChatTemplate::open(folder_).error();
  EXPECT_NE(broken.message.find("line 2"), std::string::npos) << broken.message;
  EXPECT_NE(broken.message.find(folder_.string()), std::string::npos) << broken.message;
}

ChatTemplate simple(const std::string& source) {
  auto chat = ChatTemplate::from_strings({{"default", source}}, {}, "test");
  EXPECT_TRUE(chat.has_value());
  return std::move(*chat);
}

TEST(ChatTemplate, MessagesAreChecked) {
  const ChatTemplate chat = simple("{{ messages|length }}");
  const auto message_for = [&](Json messages, Json tools = nullptr, Json extra = Json::object()) {
    ChatRequest request;
    request.messages = std::move(messages);
    request.tools = std::move(tools);
    request.extra = std::move(extra);
    const auto text = chat.render(request);
    EXPECT_FALSE(text.has_value());
    if (text) return std::string();
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
    return text.error().message;
  };
  const Json user = {{"role", "user"}, {"content", "x"}};
  EXPECT_NE(message_for({{"role", "user"}}).find("expected an array"), std::string::npos);
  EXPECT_NE(message_for("text").find("expected an array"), std::string::npos);
  EXPECT_NE(message_for(Json::array()).find("empty"), std::string::npos);
  EXPECT_NE(message_for(Json::array({user, 5})).find("messages[1]"), std::string::npos);
  EXPECT_NE(message_for(Json::array({{{"content", "x"}}})).find("role"), std::string::npos);
  EXPECT_NE(message_for(Json::array({{{"role", 1}}})).find("role"), std::string::npos);
  EXPECT_NE(message_for(Json::array({{{"role", "user"}, {"content", 5}}})).find("content"), std::string::npos);
  EXPECT_NE(message_for(Json::array({{{"role", "user"}, {"content", Json::array({5})}}})).find("content[0]"),
            std::string::npos);
  EXPECT_NE(message_for(Json::array({{{"role", "a"}, {"tool_calls", "x"}}})).find("tool_calls"), std::string::npos);
  EXPECT_NE(message_for(Json::array({user}), "tools").find("tools"), std::string::npos);
  EXPECT_NE(message_for(Json::array({user}), Json::array({1})).find("tools"), std::string::npos);
  EXPECT_NE(message_for(Json::array({user}), nullptr, {{"messages", 1}}).find("'messages'"), std::string::npos);
  EXPECT_NE(message_for(Json::array({user}), nullptr, Json::array()).find("extra"), std::string::npos);
  Json deep = 1;
  for (int i = 0; i < 100000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_NE(
      message_for(Json::array({{{"role", "user"}, {"content", Json::array({Json::object({{"x", std::move(deep)}})})}}}))
          .find("levels"),
      std::string::npos);
}

TEST(ChatTemplate, ToolArgumentsAreObjectsFirstAndTextIfTheTemplateNeedsIt) {
  ChatRequest request;
  request.messages = Json::parse(R"([{"role": "assistant", "tool_calls": [
    {"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [1.0]}"}}, {"name": "g", "arguments": "[1]"}]}])");
  const ChatTemplate objects =
      simple("{% for c in messages[0].tool_calls %}{{ (c.function or c).arguments }}{% endfor %}");
  EXPECT_EQ(*objects.render(request), "{'b': 1, 'a': [1.0]}[1]");
  const ChatTemplate text = simple("{{ 'args: ' + messages[0].tool_calls[0].function.arguments }}");
  EXPECT_EQ(*text.render(request), "args: {\"b\": 1, \"a\": [1.0]}");
}

TEST(ChatTemplate, TextPartsAreJoinedOnRequestOnly) {
  ChatRequest request;
  request.messages =
      Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  const ChatTemplate plain = simple("{{ messages[0].content | trim }}");
  EXPECT_FALSE(plain.takes_content_parts());
  EXPECT_EQ(*plain.render(request), "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]");
  request.join_text_parts = true;
  EXPECT_EQ(*plain.render(request), "a\nb");
  const ChatTemplate parts = simple("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}");
  EXPECT_TRUE(parts.takes_content_parts());
  EXPECT_EQ(*parts.render(request), "[a][b]");
}

}  // namespace
}  // namespace galvani::text
