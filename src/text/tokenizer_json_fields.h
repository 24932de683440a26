#pragma once
/// Typed field access for tokenizer.json with errors that name the place.
#include <simdjson.h>

#include <string>
#include <string_view>

#include "core/error.h"

namespace galvani::text {

using JsonElement = simdjson::dom::element;
using JsonObject = simdjson::dom::object;
using JsonArray = simdjson::dom::array;

/// An object of the file and where it is ("pre_tokenizer.pretokenizers[1]").
struct JsonNode {
  JsonObject object;
  std::string where;

  /// The member, or an element that is null when it is absent.
  bool has(std::string_view key) const {
    JsonElement element;
    return object[key].get(element) == simdjson::SUCCESS && !element.is_null();
  }
  Result<std::string_view> text(std::string_view key) const { return get<std::string_view>(key, "a string"); }
  Result<std::string_view> text_or(std::string_view key, std::string_view fallback) const {
    return has(key) ? text(key) : fallback;
  }
  Result<bool> flag(std::string_view key, bool fallback) const {
    return has(key) ? get<bool>(key, "true or false") : fallback;
  }
  Result<uint64_t> number(std::string_view key) const { return get<uint64_t>(key, "a whole number of at least 0"); }
  Result<JsonArray> array(std::string_view key) const { return get<JsonArray>(key, "an array"); }
  Result<JsonNode> child(std::string_view key) const {
    GALVANI_TRY(const JsonObject member, get<JsonObject>(key, "an object"));
    return JsonNode{member, where.empty() ? std::string(key) : fmt::format("{}.{}", where, key)};
  }

 private:
  template <typename T>
  Result<T> get(std::string_view key, std::string_view wanted) const {
    T value;
    if (object[key].get(value) == simdjson::SUCCESS) return value;
    return fail(ErrorCode::kCorrupt, "{}: \"{}\" {} but must be {}", where.empty() ? "top level" : where, key,
                has(key) ? "is of another type" : "is missing", wanted);
  }
};

/// Runs `visit(node)` on each object of an array member.
template <typename Visit>
Status for_each_object(const JsonNode& node, std::string_view key, Visit visit) {
  GALVANI_TRY(const JsonArray array, node.array(key));
  size_t index = 0;
  for (const JsonElement element : array) {
    const std::string where = fmt::format("{}{}{}[{}]", node.where, node.where.empty() ? "" : ".", key, index++);
    JsonObject object;
    if (element.get(object) != simdjson::SUCCESS) {
      return fail(ErrorCode::kCorrupt, "{} must be an object", where);
    }
    GALVANI_TRY_VOID(visit(JsonNode{object, where}));
  }
  return {};
}

}  // namespace galvani::text
