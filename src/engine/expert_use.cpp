#include "engine/expert_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace galvani::engine {

std::vector<ExpertUse> expert_use(const ExpertCounts& counts) {
  std::vector<ExpertUse> layers;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto& experts = counts[i];
    if (experts.empty()) continue;
    const auto [least, most] = std::minmax_element(experts.begin(), experts.end());
    layers.push_back({.layer = static_cast<int>(i),
                      .experts = static_cast<int>(experts.size()),
                      .least = *least,
                      .most = *most,
                      .total = std::accumulate(experts.begin(), experts.end(), uint64_t{0}),
                      .unused = static_cast<int>(std::count(experts.begin(), experts.end(), 0u))});
  }
  return layers;
}

ExpertCounts counted_since(const ExpertCounts& before, const ExpertCounts& after) {
  ExpertCounts counts = after;
  for (size_t i = 0; i < std::min(before.size(), counts.size()); ++i)
    for (size_t e = 0; e < std::min(before[i].size(), counts[i].size()); ++e) counts[i][e] -= before[i][e];
  return counts;
}

int64_t experts_read(const ExpertCounts& counts) {
  int64_t read = 0;
  for (const ExpertUse& layer : expert_use(counts)) read += layer.experts - layer.unused;
  return read;
}

double busiest_share(const ExpertCounts& counts) {
  double share = 0;
  for (const ExpertUse& layer : expert_use(counts)) share = std::max(share, layer.busiest_share());
  return share;
}

std::string expert_use_table(const ExpertCounts& counts) {
  std::string text;
  for (const ExpertUse& layer : expert_use(counts)) {
    if (text.empty())
      text = fmt::format("tokens by expert\n  {:>8} {:>8} {:>10} {:>10} {:>10} {:>8} {:>8}\n", "layer", "experts",
                         "least", "mean", "most", "busiest", "unused");
    text += fmt::format("  {:>8} {:>8} {:>10} {:>10} {:>10} {:>6.1f} % {:>8}\n", layer.layer, layer.experts,
                        layer.least, layer.mean(), layer.most, 100 * layer.busiest_share(), layer.unused);
  }
  return text;
}

}  // namespace galvani::engine
