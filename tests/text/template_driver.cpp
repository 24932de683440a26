// Renders templates for scripts/goldens/template_differential.py. One JSON object a line on standard input:
// {"template": …, "context": {…}, "now": "2024-07-26T12:34:56"}; one a line out: {"text": …} or {"error": …, "code":
// …}.
#include <nlohmann/json.hpp>

#include <iostream>
#include <string>

#include "text/jinja/template.h"

int main() {
  using Json = nlohmann::ordered_json;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line, nullptr, false);
    Json reply;
    const auto failed = [&](const galvani::Error& error) {
      reply = {{"error", error.message}, {"code", galvani::error_code_name(error.code)}};
    };
    if (request.is_discarded()) {
      reply = {{"error", "not JSON"}, {"code", "corrupt"}};
    } else if (const auto parsed = galvani::text::Template::parse(request["template"].get<std::string>(), "t")) {
      galvani::text::RenderOptions options;
      options.clock = *galvani::text::parse_iso8601(request.value("now", "2024-07-26T12:34:56"));
      const auto text = parsed->render(request.value("context", Json::object()), options);
      if (text)
        reply["text"] = *text;
      else
        failed(text.error());
    } else {
      failed(parsed.error());
    }
    std::cout << reply.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
  }
  return 0;
}
