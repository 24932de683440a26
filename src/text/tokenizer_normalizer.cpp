#include "text/tokenizer_normalizer.h"

#include "core/error.h"
#include "text/tokenizer_bytelevel.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

template <typename Function>
std::string map_code_points(std::string_view text, Function function) {
  std::string out;
  out.reserve(text.size());
  size_t length = 0;
  for (size_t i = 0; i < text.size(); i += length) {
    const char32_t cp = utf8_at(text, i, length);
    function(out, cp);
  }
  return out;
}

struct Apply {
  std::string_view text;

  Result<std::string> operator()(NormalForm form) const { return unicode_normalize(text, form); }
  Result<std::string> operator()(const Normalizer::Lowercase&) const { return map_code_points(text, append_lower); }
  Result<std::string> operator()(const Normalizer::StripAccents&) const {
    const CharTable& table = CharTable::get();
    return map_code_points(text, [&](std::string& out, char32_t cp) {
      if (!table[cp].accent()) append_utf8(out, cp);
    });
  }
  Result<std::string> operator()(const Normalizer::ByteLevel&) const {
    std::string out;
    append_byte_level(out, text);
    return out;
  }
  Result<std::string> operator()(const Normalizer::Strip& strip) const {
    const CharTable& table = CharTable::get();
    size_t begin = 0, end = text.size(), length = 0;
    while (strip.left && begin < end && table[utf8_at(text, begin, length)].space()) begin += length;
    while (strip.right && end > begin) {
      const size_t before = utf8_before(text, end);
      if (!table[utf8_at(text, before, length)].space()) break;
      end = before;
    }
    return std::string(text.substr(begin, end - begin));
  }
  Result<std::string> operator()(const Normalizer::Prepend& prepend) const {
    return text.empty() ? std::string() : prepend.text + std::string(text);
  }
  Result<std::string> operator()(const Normalizer::Replace& replace) const {
    std::vector<Span> matches;
    GALVANI_TRY_VOID(replace.pattern.find_all(text, matches));
    std::string out;
    out.reserve(text.size());
    size_t done = 0;
    for (const Span& match : matches) {
      out.append(text.substr(done, match.begin - done));
      out += replace.content;
      done = match.end;
    }
    out.append(text.substr(done));
    return out;
  }
};

}  // namespace

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string current(text);
  for (const Step& step : steps_) {
    GALVANI_TRY(current, std::visit(Apply{current}, step));
  }
  return current;
}

}  // namespace galvani::text
