#pragma once
/// A Router as the kernels take it.
#include "exec/layers.h"

namespace galvani::exec {

/// `bias` and `expert_scale` are the vectors that the router's handles stand for, or null.
inline kernels::RouteParams route_params(const Router& router, const float* bias = nullptr,
                                         const float* expert_scale = nullptr) {
  return {.score = router.score,
          .experts = router.experts,
          .top_k = router.top_k,
          .renormalize = router.renormalize,
          .scaling = router.scaling,
          .bias = bias,
          .expert_scale = expert_scale,
          .groups = router.groups,
          .groups_kept = router.groups_kept,
          .group_top2 = router.group_top2};
}

}  // namespace galvani::exec
