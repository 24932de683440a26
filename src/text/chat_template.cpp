#include "text/chat_template.h"

#include <algorithm>
#include <fstream>

#include "formats/json_file.h"

namespace galvani::text {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = 64u << 20;
constexpr int kMaxDepth = 150;  ///< of messages and tools; the template engine allows a little more

constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Result<std::string> read_file(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return fail(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  if (size > kMaxFileBytes) {
    return fail(ErrorCode::kCorrupt, "{}: {} bytes; at most {} are expected here", path.string(), size, kMaxFileBytes);
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    return fail(ErrorCode::kIo, "{}: cannot be read", path.string());
  }
  return text;
}

/// A token in tokenizer_config.json is text, or an object with `content`.
void add_tokens(const nlohmann::json& config, ChatTemplate::Tokens& tokens) {
  for (const char* name : kTokenNames) {
    const bool known = std::any_of(tokens.begin(), tokens.end(), [&](const auto& t) { return t.first == name; });
    const auto found = config.find(name);
    if (known || found == config.end()) continue;
    if (found->is_string())
      tokens.emplace_back(name, found->get<std::string>());
    else if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
      tokens.emplace_back(name, (*found)["content"].get<std::string>());
    }
  }
}

/// chat_template of a JSON file: text, or a list of {name, template}.
Status add_templates(const nlohmann::json& config, const fs::path& path, std::vector<ChatTemplate::Named>& out) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) {
    out.push_back({"default", found->get<std::string>()});
    return {};
  }
  const auto text_of = [](const nlohmann::json& item, const char* key) {
    return item.is_object() && item.contains(key) && item[key].is_string();
  };
  if (found->is_array()) {
    for (const nlohmann::json& item : *found) {
      if (!text_of(item, "name") || !text_of(item, "template")) {
        return fail(ErrorCode::kCorrupt, "{}: chat_template lists an entry without name and template", path.string());
      }
      out.push_back({item["name"].get<std::string>(), item["template"].get<std::string>()});
    }
    return {};
  }
  return fail(ErrorCode::kCorrupt, "{}: chat_template is {}, expected text or a list", path.string(),
              found->type_name());
}

Status add_template_files(const fs::path& folder, std::vector<ChatTemplate::Named>& out) {
  const fs::path main = folder / "chat_template.jinja";
  if (!is_file(main)) return {};
  GALVANI_TRY(std::string text, read_file(main));
  out.push_back({"default", std::move(text)});
  std::error_code ignored;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates", ignored)) {
    if (entry.path().extension() == ".jinja") others.push_back(entry.path());
  }
  std::sort(others.begin(), others.end());
  for (const fs::path& path : others) {
    GALVANI_TRY(std::string other, read_file(path));
    out.push_back({path.stem().string(), std::move(other)});
  }
  return {};
}

bool depth_within(const Json& json, int limit) {
  if (!json.is_structured()) return true;
  if (limit == 0) return false;
  return std::all_of(json.begin(), json.end(), [&](const Json& item) { return depth_within(item, limit - 1); });
}

Status check_content(const Json& content, const std::string& role, size_t index) {
  if (content.is_null() || content.is_string()) return {};
  // What a tool answered may be an object; templates print it as JSON.
  if (content.is_object() && (role == "tool" || role == "ipython" || role == "function")) return {};
  if (!content.is_array()) {
    return fail(ErrorCode::kInvalidArgument, "messages[{}].content is {}; expected text, a list of parts, or null",
                index, content.type_name());
  }
  for (size_t part = 0; part < content.size(); ++part) {
    if (!content[part].is_object() && !content[part].is_string()) {
      return fail(ErrorCode::kInvalidArgument, "messages[{}].content[{}] is {}; expected an object with a type", index,
                  part, content[part].type_name());
    }
  }
  return {};
}

Status check_message(const Json& message, size_t index) {
  if (!message.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "messages[{}] is {}; expected an object with role and content", index,
                message.type_name());
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return fail(ErrorCode::kInvalidArgument, "messages[{}] has no role; expected e.g. \"role\": \"user\"", index);
  }
  if (const auto content = message.find("content"); content != message.end()) {
    GALVANI_TRY_VOID(check_content(*content, role->get_ref<const std::string&>(), index));
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return {};
  const bool good =
      calls->is_array() && std::all_of(calls->begin(), calls->end(), [](const Json& call) { return call.is_object(); });
  if (!good) return fail(ErrorCode::kInvalidArgument, "messages[{}].tool_calls must be a list of objects", index);
  return {};
}

Status check_request(const ChatRequest& request) {
  const Json& messages = request.messages;
  if (!messages.is_array()) {
    return fail(ErrorCode::kInvalidArgument, "messages is {}; expected an array of objects with role and content",
                messages.type_name());
  }
  if (messages.empty())
    return fail(ErrorCode::kInvalidArgument, "messages is empty; a chat needs at least one message");
  for (const Json* part : {&request.messages, &request.tools, &request.extra}) {
    if (!depth_within(*part, kMaxDepth)) {
      return fail(ErrorCode::kInvalidArgument, "messages and tools may nest at most {} levels deep", kMaxDepth);
    }
  }
  for (size_t i = 0; i < messages.size(); ++i) GALVANI_TRY_VOID(check_message(messages[i], i));
  const Json& tools = request.tools;
  const bool good =
      tools.is_null() ||
      (tools.is_array() && std::all_of(tools.begin(), tools.end(), [](const Json& tool) { return tool.is_object(); }));
  if (!good) return fail(ErrorCode::kInvalidArgument, "tools must be a list of objects, or null");
  if (!request.extra.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "extra template variables must be an object, not {}",
                request.extra.type_name());
  }
  for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
    if (request.extra.contains(name)) {
      return fail(ErrorCode::kInvalidArgument, "'{}' cannot be given as an extra template variable", name);
    }
  }
  return {};
}

/// OpenAI sends tool-call arguments as JSON text, most templates want the object. True when something was changed.
bool parse_arguments(Json& messages) {
  bool changed = false;
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      Json* holder = call.contains("function") && call["function"].is_object() ? &call["function"] : &call;
      const auto arguments = holder->find("arguments");
      if (arguments == holder->end() || !arguments->is_string()) continue;
      Json parsed = Json::parse(arguments->get_ref<const std::string&>(), nullptr, false);
      if (parsed.is_discarded() || !parsed.is_object() || !depth_within(parsed, kMaxDepth)) continue;
      *arguments = std::move(parsed);
      changed = true;
    }
  }
  return changed;
}

void join_parts(Json& messages) {
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    std::string text;
    bool only_text = true;
    for (const Json& part : *content) {
      const bool good = part.is_string() || (part.is_object() && part.contains("type") && part["type"] == "text" &&
                                             part.contains("text") && part["text"].is_string());
      only_text = only_text && good;
      if (!good) break;
      if (!text.empty()) text += '\n';
      text += part.is_string() ? part.get<std::string>() : part["text"].get<std::string>();
    }
    if (only_text) *content = text;
  }
}

}  // namespace

Result<ChatTemplate> ChatTemplate::open(const fs::path& folder) {
  std::vector<Named> templates;
  Tokens tokens;
  GALVANI_TRY_VOID(add_template_files(folder, templates));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json"}) {
    const fs::path path = folder / name;
    if (!is_file(path)) continue;
    GALVANI_TRY(const nlohmann::json config, formats::read_json_file(path));
    if (!config.is_object()) return fail(ErrorCode::kCorrupt, "{}: not a JSON object", path.string());
    add_tokens(config, tokens);
    if (templates.empty()) GALVANI_TRY_VOID(add_templates(config, path, templates));
  }
  return from_strings(std::move(templates), std::move(tokens), folder.string());
}

Result<ChatTemplate> ChatTemplate::from_strings(std::vector<Named> templates, Tokens tokens,
                                                const std::string& origin) {
  if (templates.empty()) {
    return fail(ErrorCode::kNotFound,
                "{}: the model has no chat template (chat_template.jinja, chat_template in tokenizer_config.json or "
                "chat_template.json, tokenizer.chat_template in a GGUF); use a raw prompt with `generate -p` or "
                "`tokenize -p` instead",
                origin);
  }
  ChatTemplate out;
  out.origin_ = origin;
  out.tokens_ = std::move(tokens);
  for (Named& named : templates) {
    GALVANI_TRY(Template compiled,
                Template::parse(named.source, fmt::format("{}: chat template '{}'", origin, named.name)));
    out.entries_.push_back({std::move(named.name), std::move(named.source), std::move(compiled)});
  }
  out.takes_parts_ = out.probe_parts();
  return out;
}

bool ChatTemplate::probe_parts() const {
  static constexpr const char* kProbe = "galvani probe";
  ChatRequest request;
  request.messages =
      Json::array({{{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", kProbe}}})}}});
  const auto text = render(request);
  // A template for plain text either fails or prints the list itself.
  return text && text->find(kProbe) != text->npos && text->find("'text'") == text->npos &&
         text->find("\"text\"") == text->npos;
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> out;
  for (const Entry& entry : entries_) out.push_back(entry.name);
  return out;
}

const std::string* ChatTemplate::source(const std::string& name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return &entry.source;
  }
  return nullptr;
}

Result<const Template*> ChatTemplate::choose(bool with_tools) const {
  for (const char* name : {"tool_use", "default"}) {
    if (name == std::string("tool_use") && !with_tools) continue;
    for (const Entry& entry : entries_) {
      if (entry.name == name) return &entry.compiled;
    }
  }
  if (entries_.size() == 1) return &entries_.front().compiled;
  return fail(ErrorCode::kNotFound, "{}: none of its {} chat templates is named 'default'", origin_, entries_.size());
}

Result<std::string> ChatTemplate::render(const ChatRequest& request) const {
  GALVANI_TRY_VOID(check_request(request));
  const bool with_tools = request.tools.is_array() && !request.tools.empty();
  GALVANI_TRY(const Template* chosen, choose(with_tools));
  Json context = Json::object();
  for (const auto& [name, text] : tokens_) context[name] = text;
  context["documents"] = nullptr;
  for (const auto& [name, value] : request.extra.items()) context[name] = value;
  context["tools"] = with_tools ? request.tools : Json(nullptr);
  context["add_generation_prompt"] = request.add_generation_prompt;
  Json messages = request.messages;
  if (request.join_text_parts && !takes_parts_) join_parts(messages);
  Json as_objects = messages;
  const bool changed = parse_arguments(as_objects);
  context["messages"] = std::move(as_objects);
  auto text = chosen->render(context, request.options);
  if (text || !changed || text.error().code == ErrorCode::kOutOfRange) return text;
  // Some templates (DeepSeek V3) add the arguments to text: they need them as they were sent.
  context["messages"] = std::move(messages);
  auto again = chosen->render(context, request.options);
  return again ? again : text;
}

}  // namespace galvani::text
