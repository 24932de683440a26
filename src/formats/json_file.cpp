#include "formats/json_file.h"

#include "core/error.h"
#include "core/file_map.h"

namespace galvani::formats {
namespace {

constexpr size_t kLongest = size_t{64} << 20;
constexpr int kDeepest = 64;

/// Deepest nesting of brackets outside strings. Exact for valid JSON; for anything else the parser decides.
int nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
      if (deepest > kDeepest) return deepest;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& label) {
  if (text.size() > kLongest)
    return fail(ErrorCode::kCorrupt, "{}: {} bytes are too many for a config file (at most {})", label, text.size(),
                kLongest);
  if (nesting(text) > kDeepest)
    return fail(ErrorCode::kCorrupt, "{}: nested more than {} levels deep", label, kDeepest);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    if (const size_t end = what.find("] "); what.starts_with('[') && end != what.npos) what.remove_prefix(end + 2);
    what = what.substr(0, what.find("; last read"));  // it quotes the file, whole megabytes or no UTF-8 if need be
    return fail(ErrorCode::kCorrupt, "{}: not valid JSON: {}", label, text.empty() ? "the file is empty" : what);
  }
}

Result<nlohmann::json> read_json_file(const std::filesystem::path& path) {
  GALVANI_TRY(const auto map, FileMap::open(path));
  const auto bytes = map->bytes();
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace galvani::formats
