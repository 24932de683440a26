#pragma once
/// How evenly a mixture of experts was used: what eval and the benchmarks say of Ops::expert_counts.
#include <cstdint>
#include <string>
#include <vector>

namespace galvani::engine {

/// Tokens that each expert of each layer has served, [layer][expert]; empty rows for layers without experts.
using ExpertCounts = std::vector<std::vector<uint64_t>>;

/// One layer that has experts.
struct ExpertUse {
  int layer = 0, experts = 0;
  uint64_t least = 0, most = 0, total = 0;  ///< tokens of an expert; of all
  int unused = 0;                           ///< experts that served none

  uint64_t mean() const { return total / static_cast<uint64_t>(experts); }
  /// Of the layer's tokens, those that the busiest expert served: 0…1, 1 / experts when all are used alike.
  double busiest_share() const { return total == 0 ? 0 : static_cast<double>(most) / static_cast<double>(total); }
};

std::vector<ExpertUse> expert_use(const ExpertCounts& counts);
/// What was counted between two readings of Ops::expert_counts.
ExpertCounts counted_since(const ExpertCounts& before, const ExpertCounts& after);
/// Experts, over all layers, that served any token: of one step, those whose weights it read.
int64_t experts_read(const ExpertCounts& counts);
/// The largest busiest_share of any layer.
double busiest_share(const ExpertCounts& counts);
/// A line a layer; "" when no layer has experts.
std::string expert_use_table(const ExpertCounts& counts);

}  // namespace galvani::engine
