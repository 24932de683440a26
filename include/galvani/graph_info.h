#pragma once
/// A decode step captured as a CUDA graph.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace galvani {

struct GraphInfo {
  int rows = 0;                                           ///< sequences it decodes at once, at most
  int64_t nodes = 0;                                      ///< kernels, copies and fills
  uint64_t replays = 0;                                   ///< so far
  std::vector<std::pair<std::string, uint64_t>> kernels;  ///< name → nodes that launch it
};

}  // namespace galvani
