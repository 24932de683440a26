#pragma once
/// How the arms that a run was told to take (--arm op=name) are written, in every summary and every record: figures of
/// a forced arm are not those of the plan's choice, and must not look like them.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace galvani::engine {

/// LoadOptions::arms, in the order asked for, "auto" included.
using ForcedArms = std::vector<std::pair<std::string, std::string>>;

/// For the middle of a line: ", arms qmatmul=mma attention=simt"; "" when nothing was forced.
std::string forced_arms_text(const ForcedArms& arms);
/// {"qmatmul": "mma", "attention": "simt"}; an empty object when nothing was forced.
nlohmann::ordered_json forced_arms_json(const ForcedArms& arms);

}  // namespace galvani::engine
