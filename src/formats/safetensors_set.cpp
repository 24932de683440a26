/// Folders of safetensors: the single file or the shards of an index.
#include <simdjson.h>

#include <set>

#include "core/error.h"
#include "formats/quoted.h"
#include "formats/safetensors.h"

namespace galvani::formats {
namespace {

constexpr size_t kLongestIndex = 100'000'000;
constexpr const char* kIndexName = "model.safetensors.index.json";

/// A shard must be a plain name in the model's own folder.
bool plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\\') == name.npos &&
         name.find('\0') == name.npos;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view text, const std::string& label) {
  if (text.size() > kLongestIndex)
    return fail(ErrorCode::kCorrupt, "{}: {} bytes are too many for a shard index (at most {})", label, text.size(),
                kLongestIndex);
  const simdjson::padded_string padded(text);
  simdjson::dom::parser parser;
  if (parser.allocate(std::max<size_t>(text.size(), 1), 16))
    return fail(ErrorCode::kOutOfMemory, "{}: cannot parse {} bytes", label, text.size());
  simdjson::dom::element root;
  if (auto error = parser.parse(padded).get(root))
    return fail(ErrorCode::kCorrupt, "{}: not valid JSON: {}", label, simdjson::error_message(error));
  simdjson::dom::object map;
  if (root["weight_map"].get(map))
    return fail(ErrorCode::kCorrupt, "{}: needs an object \"weight_map\" of tensor name to shard file", label);
  std::map<std::string, std::string> result;
  for (auto field : map) {
    std::string_view shard;
    if (field.value.get(shard))
      return fail(ErrorCode::kCorrupt, "{}: the shard of tensor {} must be a string", label, quote(field.key));
    if (!plain_file_name(shard))
      return fail(ErrorCode::kCorrupt,
                  "{}: tensor {} lies in {}; a shard must be a plain file name in the model's folder", label,
                  quote(field.key), quote(shard));
    if (!result.emplace(std::string(field.key), std::string(shard)).second)
      return fail(ErrorCode::kCorrupt, "{}: tensor {} appears twice", label, quote(field.key));
  }
  if (result.empty()) return fail(ErrorCode::kCorrupt, "{}: weight_map is empty", label);
  return result;
}

Result<SafetensorsSet> SafetensorsSet::open(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  SafetensorsSet set;
  std::error_code ignored;
  const fs::path index_path = folder / kIndexName;
  if (!fs::exists(index_path, ignored)) {
    if (!fs::exists(folder / "model.safetensors", ignored))
      return fail(ErrorCode::kNotFound, "{} holds neither model.safetensors nor {}{}", folder.string(), kIndexName,
                  fs::exists(folder / "pytorch_model.bin", ignored)
                      ? "; pytorch_model.bin cannot be read, convert it to safetensors"
                      : "");
    GALVANI_TRY(auto file, SafetensorsFile::open(folder / "model.safetensors"));
    for (const auto& entry : file->tensors()) set.tensors_.emplace(entry.name, Tensor{file.get(), &entry});
    set.files_.push_back(std::move(file));
    return set;
  }
  GALVANI_TRY(auto index_map, FileMap::open(index_path));
  const auto bytes = index_map->bytes();
  GALVANI_TRY(auto weight_map, parse_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                                       index_path.string()));
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map) shards.insert(shard);
  for (const auto& shard : shards) {
    auto opened = SafetensorsFile::open(folder / shard);
    if (!opened)
      return wrap(std::move(opened).error(), fmt::format("shard {} of {}", quote(shard), index_path.string()));
    for (const auto& entry : (*opened)->tensors()) {
      const auto listed = weight_map.find(entry.name);
      if (listed == weight_map.end())
        return fail(ErrorCode::kCorrupt, "{} holds tensor {}, which {} does not list", (*opened)->label(),
                    quote(entry.name), kIndexName);
      if (listed->second != shard)
        return fail(ErrorCode::kCorrupt, "{} holds tensor {}, which {} places in {}", (*opened)->label(),
                    quote(entry.name), kIndexName, quote(listed->second));
      set.tensors_.emplace(entry.name, Tensor{opened->get(), &entry});
    }
    set.files_.push_back(std::move(*opened));
  }
  for (const auto& [name, shard] : weight_map)
    if (!set.tensors_.contains(name))
      return fail(ErrorCode::kCorrupt, "{} places tensor {} in {}, but that shard does not hold it",
                  index_path.string(), quote(name), quote(shard));
  return set;
}

}  // namespace galvani::formats
