#include "engine/forced_arms.h"

#include <nlohmann/json.hpp>

namespace galvani::engine {

std::string forced_arms_text(const ForcedArms& arms) {
  std::string text = arms.empty() ? "" : ", arms";
  for (const auto& [op, arm] : arms) text += " " + op + "=" + arm;
  return text;
}

nlohmann::ordered_json forced_arms_json(const ForcedArms& arms) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [op, arm] : arms) json[op] = arm;
  return json;
}

}  // namespace galvani::engine
