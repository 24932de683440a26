#pragma once
/// What surrounds the products of a mixture of experts: choosing experts, grouping tokens by expert, summing up.
///
/// Everything is f32. A token's result depends on its own row alone, bit for bit.
#include <cstdint>
#include <span>
#include <vector>

#include "galvani/error.h"

namespace galvani::kernels {

/// How logits become scores (models.md 1.4 and 3.11).
enum class RouteScore : uint8_t {
  kSoftmaxAll,   ///< softmax over all experts, then the top k (Qwen, OLMoE, Gemma 4, DeepSeek V2)
  kSoftmaxTopK,  ///< the top k logits, then softmax over those (Mixtral, gpt-oss)
  kSigmoid,      ///< sigmoid of each logit (DeepSeek V3)
};

/// Choosing: c = score + bias; a group of experts scores its best c or the sum of its two best; only experts of the
/// `groups_kept` best groups can be chosen; the top k by c are. Weighing: w = score (without bias) of the chosen,
/// divided by their sum with `renormalize` (sigmoid: by their sum + 1e-20, as Hugging Face), times `scaling`, times
/// expert_scale[expert]. Equal values choose the lower index, of groups too. Without bias or
/// top-2 groups c is the logit, which orders as its score does, without the rounding.
struct RouteParams {
  RouteScore score = RouteScore::kSoftmaxAll;
  int experts = 0, top_k = 0;
  bool renormalize = false;
  float scaling = 1;
  const float* bias = nullptr;          ///< [experts] or null
  const float* expert_scale = nullptr;  ///< [experts] or null
  int groups = 1, groups_kept = 1;
  bool group_top2 = false;
};

/// Error kInvalidArgument for numbers that cannot be: top_k beyond the experts or beyond the groups kept, experts not
/// divisible into the groups, groups of one where their two best count.
Status check_route(const RouteParams& params);

/// logits [rows, experts], row stride `stride`; ids and weights [rows, top_k], best first. Error kCorrupt when a logit
/// (or logit plus bias) is not finite, naming row and expert; nothing of the output may be used then. `params` passed
/// check_route.
Status route(const float* logits, int64_t rows, int64_t stride, const RouteParams& params, int32_t* ids,
             float* weights);

/// One row by the formula, in f64, by sorting. For tests.
void route_ref(const float* logits, const RouteParams& params, int32_t* ids, double* weights);

/// Tokens grouped by the expert that serves them: experts in ascending order, tokens in ascending order within one.
struct ExpertGroups {
  struct Group {
    int expert;
    int64_t first, count;  ///< places
  };
  std::vector<Group> groups;    ///< experts with at least one token
  std::vector<int32_t> tokens;  ///< [places]: the token at each place
  std::vector<int64_t> places;  ///< [rows · top_k]: where slot j of token t stands
  std::vector<int64_t> next;    ///< scratch

  /// ids: [rows, top_k], each in [0, experts) (checked).
  void build(const int32_t* ids, int64_t rows, int top_k, int experts);
};

/// y[t, c] = Σ_j weights[t, j] · x[places[t, j], c], j ascending, each step one fused multiply-add.
void combine_experts(const float* x, int64_t x_stride, const int64_t* places, const float* weights, int64_t rows,
                     int top_k, int64_t dim, float* y, int64_t y_stride);

/// y[t, c] += sigmoid(gate[t]) · x[t, c]; no gate: y += x. The shared expert.
void add_shared_expert(const float* x, int64_t x_stride, const float* gate, int64_t gate_stride, int64_t rows,
                       int64_t dim, float* y, int64_t y_stride);

}  // namespace galvani::kernels
