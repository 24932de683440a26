#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/jinja/template.h"

namespace galvani::text {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::string& name) {
  std::ifstream stream(std::string(GALVANI_TEST_DATA) + "/jinja/" + name);
  return Json::parse(stream, nullptr, false);
}

RenderOptions fixed_clock() {
  RenderOptions options;
  options.clock = CivilTime{2024, 7, 26, 12, 34, 56, 0};
  return options;
}

Result<std::string> render(const std::string& source, const Json& context = Json::object(),
                           const RenderOptions& options = fixed_clock()) {
  auto parsed = Template::parse(source, "test");
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  return parsed->render(context, options);
}

/// The error of a template that must fail; an empty one (kInternal) when it does not.
Error error_of(const std::string& source, const Json& context = Json::object()) {
  auto result = render(source, context);
  if (result) {
    ADD_FAILURE() << source << " rendered: " << result->substr(0, 200);
    return {};
  }
  return result.error();
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Hundreds of one-line templates, each rendered by jinja2 in the Hugging Face environment.
TEST(Jinja, MatchesJinja2) {
  const Json data = read_json("cases.json");
  ASSERT_TRUE(data.is_object());
  ASSERT_GE(data["cases"].size(), 800u);
  size_t texts = 0, failures = 0;
  for (const Json& one : data["cases"]) {
    const auto source = one["template"].get<std::string>();
    const auto result = render(source, data["context"]);
    if (one.contains("text")) {
      ++texts;
      ASSERT_TRUE(result.has_value()) << source << "\n" << result.error().message;
      EXPECT_EQ(*result, one["text"].get<std::string>()) << source;
      continue;
    }
    ++failures;
    ASSERT_FALSE(result.has_value()) << source << " must fail as in jinja2 (" << one.dump() << ")";
    if (one.contains("raised")) {
      EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << source;
      EXPECT_EQ(result.error().message, one["raised"].get<std::string>()) << source;
    } else {
      EXPECT_NE(result.error().code, ErrorCode::kInvalidArgument) << source;
      EXPECT_NE(result.error().code, ErrorCode::kInternal) << source;
    }
  }
  EXPECT_GT(texts, 600u);
  EXPECT_GT(failures, 100u);
}

TEST(Jinja, ErrorsNameTheTemplateTheLineAndTheValue) {
  const Error missing = error_of("line one\n{% if true %}\n{{ message.content }}{% endif %}");
  EXPECT_EQ(missing.code, ErrorCode::kCorrupt);
  EXPECT_NE(missing.message.find("test, line 3"), std::string::npos) << missing.message;
  EXPECT_NE(missing.message.find("'message' is undefined"), std::string::npos) << missing.message;

  const Error attribute = error_of("{{ m.tool.name }}", {{"m", {{"role", "user"}}}});
  EXPECT_NE(attribute.message.find("'dict object' has no attribute 'tool'"), std::string::npos) << attribute.message;

  const Error syntax = error_of("a\n\n{% for x of y %}");
  EXPECT_EQ(syntax.code, ErrorCode::kCorrupt);
  EXPECT_NE(syntax.message.find("line 3"), std::string::npos) << syntax.message;

  EXPECT_EQ(error_of("{% include 'other' %}").code, ErrorCode::kUnsupported);
  const Error filter = error_of("{{ 'x' | nope }}");
  EXPECT_NE(filter.message.find("nope"), std::string::npos) << filter.message;
}

TEST(Jinja, RaiseExceptionIsPassedOnVerbatim) {
  const Error raised = error_of("\n{{ raise_exception('Roles must alternate: ' ~ n) }}", {{"n", 3}});
  EXPECT_EQ(raised.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(raised.message, "Roles must alternate: 3");
}

TEST(Jinja, IntegersDoNotOverflow) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ 9223372036854775807 * 2 }}",
        "{{ 10 ** 40 }}", "{{ -(-9223372036854775807 - 1) }}", "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ 99999999999999999999 }}", "{{ '99999999999999999999' | int }}", "{{ 1e30 | int }}",
        "{{ [1] | sum(start=9223372036854775807) }}"}) {
    const Error error = error_of(source);
    EXPECT_TRUE(error.code == ErrorCode::kOutOfRange || error.code == ErrorCode::kCorrupt) << source;
    EXPECT_NE(error.message.find("64"), std::string::npos) << source << ": " << error.message;
  }
  EXPECT_EQ(*render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(error_of("{{ (-9223372036854775807 - 1) | abs }}").code, ErrorCode::kOutOfRange);
}

TEST(Jinja, EndlessWorkIsStopped) {
  const std::vector<std::string> sources = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{{ range(1000000000) }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ 'a' * 100000000 }}",
      "{{ 'abcdefgh' * 1000000 ~ 'abcdefgh' * 1000000 }}",
      "{{ [0] * 100000000 }}",
      "{% for i in range(100000) %}{{ '0123456789' * 100 }}{% endfor %}",
      "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=1, y=1) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, "
      "ns.y] %}"
      "{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=1) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson "
      "}}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000) }}",
      "{{ (',' * 8000000).split(',') }}",
      "{{ ('ab' * 4000000) | list | length }}",
      "{{ (range(100000) | list) | map('string') | join('x' * 1000) }}",
      "{{ 'x' | center(1000000000) }}",
      "{{ 'x'.ljust(1000000000) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ 'a\\nb' | indent(1000000000) }}",
      "{{ '\\t' .expandtabs(10000000000) }}",
      "{{ [1] | batch(1000000000, 'x') | list }}",
      "{% set ns = namespace(f=none) %}{% for i in range(1000) %}{% set ns.f = [ns.f].index %}{% endfor %}",
      "{{ [[1, 2]] | map('map', 'map', 'map') | list }}{% for i in range(10000000) %}{% endfor %}",
      "{% set s = 'é' * 2000000 %}{% for i in range(100000) %}{{ s[i] if s[i] == 'x' }}{% endfor %}",
  };
  for (const std::string& source : sources) {
    const Error error = error_of(source);
    EXPECT_TRUE(error.code == ErrorCode::kOutOfRange || error.code == ErrorCode::kCorrupt)
        << source << ": " << error.message;
  }
}

TEST(Jinja, DeepNestingIsAnErrorNotACrash) {
  const std::vector<std::string> sources = {
      "{{ " + repeated("(", 30000) + "1" + repeated(")", 30000) + " }}",
      "{{ " + repeated("[", 30000) + repeated("]", 30000) + " }}",
      "{{ " + repeated("{'a':", 50000) + "1" + repeated("}", 50000) + " }}",
      "{{ " + repeated("not ", 30000) + "1 }}",
      "{{ " + repeated("-", 30000) + "1 }}",
      "{{ " + repeated("1 + ", 30000) + "1 }}",
      "{{ a" + repeated(".b", 30000) + " }}",
      "{{ a" + repeated("|list", 30000) + " }}",
      "{{ a" + repeated("()", 30000) + " }}",
      "{{ a" + repeated("[0", 30000) + " }}",
      "{{ 1 " + repeated("if 1 else 1 ", 30000) + " }}",
      "{{ " + repeated("1 if 1 else ", 30000) + "1 }}",
      "{{ a" + repeated(" is b(", 10000) + " }}",
      repeated("{% if 1 %}", 30000) + repeated("{% endif %}", 30000),
      repeated("{% for x in y %}", 30000),
      repeated("{% macro m() %}", 30000),
      "{% set " + repeated("(", 30000) + "a" + repeated(")", 30000) + " = 1 %}",
      "{% for " + repeated("(", 30000) + "a" + repeated(")", 30000) + " in b %}{% endfor %}",
  };
  for (const std::string& source : sources) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << source.substr(0, 40) << ": " << error.message;
  }
  // What real templates do stays well inside.
  EXPECT_EQ(*render("{{ " + repeated("1 + ", 200) + "1 }}"), "201");
  EXPECT_EQ(*render("{{ " + repeated("(", 40) + "1" + repeated(")", 40) + " }}"), "1");
  EXPECT_EQ(*render("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) | length }}"),
            "193");
}

TEST(Jinja, LongChainsOfElifAreFlat) {
  std::string source = "{% if n == -1 %}x";
  for (int i = 0; i < 2000; ++i) source += "{% elif n == " + std::to_string(i) + " %}" + std::to_string(i);
  EXPECT_EQ(*render(source + "{% endif %}", {{"n", 1999}}), "1999");
}

TEST(Jinja, BadTextIsRefusedWithItsPlace) {
  const auto parsed = Template::parse("abc\xff{{ x }}", "test");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_NE(parsed.error().message.find("byte 3"), std::string::npos) << parsed.error().message;
  const auto result = render("{{ x }}", {{"x", "ab\xc3"}});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(result.error().message.find("byte 2"), std::string::npos) << result.error().message;
  EXPECT_EQ(error_of("{{ '\\ud83d' }}").code, ErrorCode::kCorrupt);
  EXPECT_FALSE(render("x", Json::array()).has_value());
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_EQ(render("{{ x }}", {{"x", std::move(deep)}}).error().code, ErrorCode::kInvalidArgument);
}

TEST(Jinja, SandboxHidesPythonsInsides) {
  EXPECT_EQ(*render("{{ ''.__class__ }}{{ [].append }}{{ {}.update }}"), "");
  EXPECT_EQ(error_of("{{ ''.__class__.__mro__ }}").code, ErrorCode::kCorrupt);
  EXPECT_EQ(error_of("{{ [1].append(2) }}").code, ErrorCode::kCorrupt);
  EXPECT_EQ(error_of("{{ '{0.__class__.__mro__}'.format('') }}").code, ErrorCode::kCorrupt);
  EXPECT_EQ(error_of("{{ ''|attr('__class__')|attr('__mro__') }}").code, ErrorCode::kCorrupt);
}

TEST(Jinja, CyclesAreFreed) {  // a leak shows under AddressSanitizer
  EXPECT_EQ(*render("{% set ns = namespace() %}{% set ns.a = [ns] %}{% set ns.b = {'n': ns} %}{% macro m() %}{{ ns.c }}"
                    "{% endmacro %}{% set ns.m = m %}{% for i in [1] recursive %}{% set ns.l = loop %}"
                    "{{ loop.changed(loop) }}{% set ns.f = loop.cycle %}{% macro k() %}{{ i }}{% endmacro %}"
                    "{% set ns.k = k %}{% endfor %}{{ ns.k() }}{% set j = joiner() %}{% set ns.j = j %}"),
            "True1");
}

TEST(Jinja, RendersFromSeveralValuesOfOneTemplate) {
  const auto parsed = Template::parse(
      "{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "sum");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed->render({{"xs", {1, 2, 3}}}), "6");
  EXPECT_EQ(*parsed->render({{"xs", Json::array()}}), "0");
  EXPECT_EQ(*parsed->render({{"xs", {10}}}), "10");
}

TEST(Jinja, ClockIsReadAndChecked) {
  for (const char* text : {"2024-07-26", "2024-07-26T12:34", "2024-07-26 12:34:56", "2024-07-26T12:34:56.25Z",
                           "2024-07-26T12:34:56+02:00", "2024-02-29"}) {
    const auto time = parse_iso8601(text);
    ASSERT_TRUE(time.has_value()) << text;
    EXPECT_EQ(time->year, 2024) << text;
  }
  for (const char* text : {"", "2024", "2024-13-01", "2023-02-29", "2024-07-26T25:00", "2024-07-26T12", "26.7.2024",
                           "2024-07-26T12:34:56x", "0000-01-01", "2024-07-26T12:34:56."}) {
    const auto time = parse_iso8601(text);
    ASSERT_FALSE(time.has_value()) << text;
    EXPECT_EQ(time.error().code, ErrorCode::kInvalidArgument) << text;
  }
  RenderOptions options;
  options.clock = *parse_iso8601("1999-12-31T23:59:58.5");
  EXPECT_EQ(*render("{{ strftime_now('%d %b %Y %A %j %H.%M.%S %f') }}", Json::object(), options),
            "31 Dec 1999 Friday 365 23.59.58 500000");
  EXPECT_GE(local_now().year, 2024);
}

}  // namespace
}  // namespace galvani::text
