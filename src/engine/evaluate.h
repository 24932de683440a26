#pragma once
/// Perplexity of a model over windows of token ids, and its distance from another checkpoint of the same model.
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runner.h"

namespace galvani::engine {

/// How ids are cut into windows and which of their tokens are scored.
enum class EvalConvention {
  /// Window i reads ids [w·i, w·i + w) and every position predicts its successor, so w tokens are scored, the last of
  /// them the first id of window i + 1. n windows take n·w + 1 ids.
  kWhole,
  /// llama.cpp's: window i is ids [w·i, w·i + w), the first replaced by BOS where the tokenizer adds one; positions
  /// w/2 … w-2 predict their successors. n windows take n·w ids.
  kSecondHalf,
};

struct EvalOptions {
  EvalConvention convention = EvalConvention::kWhole;
  int64_t window = 512;        ///< at least 2
  int64_t windows = 0;         ///< the first so many; 0: as many as there are, at most 256
  std::optional<int32_t> bos;  ///< for kSecondHalf
  int64_t step_tokens = 4096;  ///< tokens of one step; whole windows run side by side as sequences of their own
  std::function<void(int64_t done, int64_t total, double ppl)> progress = {};
  std::function<bool()> stop = {};  ///< asked between steps; true ends with kCancelled
};

/// Distance of the model (Q) from the reference (P): KL(P‖Q) in nats at each scored position.
struct EvalComparison {
  double reference_nll = 0, reference_ppl = 0;
  double ppl_ratio = 0;  ///< the model's over the reference's
  double kl_mean = 0, kl_p999 = 0, kl_max = 0;
  double top1_agreement = 0;  ///< share of positions where both prefer the same token
};

struct EvalResult {
  int64_t windows = 0, tokens = 0;  ///< tokens: scored ones
  double nll = 0, ppl = 0;          ///< sum of negative log-likelihoods in nats, exp of their mean
  int64_t not_finite = 0;           ///< scored positions with a logit that is no finite number; nll is NaN then
  double seconds = 0;               ///< of the model's forward passes alone
  std::optional<EvalComparison> against;
};

/// Windows that evaluate() will run. Errors: fewer ids than asked for or than one window, with the numbers.
Result<int64_t> eval_windows(int64_t ids, const EvalOptions& options);
/// Sequences that a Runner should have room for, each of `window` tokens.
int eval_sequences(const EvalOptions& options);

/// The runners need state for eval_sequences() sequences of options.window tokens and steps of options.step_tokens.
/// Errors: eval_windows', ids outside the vocabulary (by position), vocabularies of different sizes, a window longer
/// than the model's context.
Result<EvalResult> evaluate(Runner& model, Runner* reference, std::span<const int32_t> ids, const EvalOptions& options);

/// One position's part in all this; `reference` may be null. Public for tests.
struct PositionScore {
  double nll = 0, reference_nll = 0, kl = 0;
  bool same_top1 = false, finite = true;
};
PositionScore score_position(const float* logits, const float* reference, int64_t vocab, int32_t target);

}  // namespace galvani::engine
