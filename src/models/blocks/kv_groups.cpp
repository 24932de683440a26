#include "models/blocks/kv_groups.h"

namespace galvani::models {

void assign_kv(AttentionSpec& attention, exec::StateSpec& state) {
  size_t group = 0;
  while (group < state.groups.size() &&
         (state.groups[group].window != attention.window || state.groups[group].kv_heads != attention.kv_heads ||
          state.groups[group].k_dim != attention.head_dim))
    ++group;
  if (group == state.groups.size())
    state.groups.push_back({.name = attention.window > 0 ? "sliding" : "full",
                            .kv_heads = attention.kv_heads,
                            .k_dim = attention.head_dim,
                            .v_dim = attention.head_dim,
                            .window = attention.window});
  attention.kv_group = static_cast<int>(group);
  attention.kv_index = state.groups[group].layers++;
}

}  // namespace galvani::models
