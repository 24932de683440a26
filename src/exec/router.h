#pragma once
/// A Router as the kernels take it.
#include "exec/layers.h"
#include "kernels/moe/moe.h"

namespace galvani::exec {

/// `bias` and `expert_scale` are the vectors that the router's handles stand for, or null.
inline kernels::RouteParams route_params(const Router& router, const float* bias = nullptr,
                                         const float* expert_scale = nullptr) {
  kernels::RouteParams params{.experts = router.experts,
                              .top_k = router.top_k,
                              .renormalize = router.renormalize,
                              .scaling = router.scaling,
                              .bias = bias,
                              .expert_scale = expert_scale,
                              .groups = router.groups,
                              .groups_kept = router.groups_kept,
                              .group_top2 = router.group_top2};
  switch (router.score) {
    case RouterScore::kSoftmaxAll: params.score = kernels::RouteScore::kSoftmaxAll; break;
    case RouterScore::kSoftmaxTopK: params.score = kernels::RouteScore::kSoftmaxTopK; break;
    case RouterScore::kSigmoid: params.score = kernels::RouteScore::kSigmoid; break;
  }
  return params;
}

}  // namespace galvani::exec
