#include "models/blocks/kv_groups.h"

namespace galvani::models {

namespace {

/// Takes a place in the group like `wanted`, which is added where there is none.
void take_place(const exec::KvGroupSpec& wanted, exec::StateSpec& state, int& kv_group, int& kv_index) {
  size_t group = 0;
  while (group < state.groups.size() &&
         (state.groups[group].window != wanted.window || state.groups[group].kv_heads != wanted.kv_heads ||
          state.groups[group].k_dim != wanted.k_dim || state.groups[group].v_dim != wanted.v_dim))
    ++group;
  if (group == state.groups.size()) state.groups.push_back(wanted);
  kv_group = static_cast<int>(group);
  kv_index = state.groups[group].layers++;
}

}  // namespace

void assign_kv(AttentionSpec& attention, exec::StateSpec& state) {
  take_place({.name = attention.window > 0 ? "sliding" : "full",
              .kv_heads = attention.kv_heads,
              .k_dim = attention.head_dim,
              .v_dim = attention.head_dim,
              .window = attention.window},
             state, attention.kv_group, attention.kv_index);
}

void assign_kv(LatentAttentionSpec& attention, exec::StateSpec& state) {
  take_place(
      {.name = "latent", .kv_heads = 1, .k_dim = static_cast<int>(attention.latent + attention.rope_dim), .v_dim = 0},
      state, attention.kv_group, attention.kv_index);
}

}  // namespace galvani::models
