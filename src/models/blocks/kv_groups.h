#pragma once
/// Which layers share block tables: same window, same heads, same widths (exec/state.h).
#include "exec/state.h"
#include "models/blocks/attention.h"
#include "models/blocks/latent_attention.h"

namespace galvani::models {

/// Gives the layer its own place for keys and values: sets `attention.kv_group` and `kv_index`, and makes room in
/// `state` (a new group where none fits).
void assign_kv(AttentionSpec& attention, exec::StateSpec& state);
/// Likewise; its pages hold one head, latent | rotated part, and no values of their own.
void assign_kv(LatentAttentionSpec& attention, exec::StateSpec& state);

}  // namespace galvani::models
