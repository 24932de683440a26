#include "engine/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/parallel.h"

namespace galvani::engine {
namespace {

constexpr int64_t kMostWindows = 256;
constexpr int64_t kLogitBytes = int64_t{128} << 20;  // logits of one step and one model

/// A window's tokens, and which of its positions predict what.
struct Window {
  std::vector<int32_t> input;
  int64_t first_scored = 0;
  std::vector<int32_t> targets;  ///< of positions first_scored, first_scored + 1, …
};

Window make_window(std::span<const int32_t> ids, int64_t index, const EvalOptions& options) {
  const int64_t w = options.window, start = index * w;
  const auto at = [&](int64_t i) { return ids.begin() + static_cast<std::ptrdiff_t>(start + i); };
  Window window{.input = {at(0), at(w)}, .first_scored = 0, .targets = {}};
  if (options.convention == EvalConvention::kWhole) {
    window.targets.assign(at(1), at(w + 1));
  } else {
    window.first_scored = w / 2;
    window.targets.assign(at(w / 2 + 1), at(w));
    if (options.bos) window.input[0] = *options.bos;
  }
  return window;
}

double lap(std::chrono::steady_clock::time_point& last) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - last).count();
  last = now;
  return seconds;
}

class Evaluation {
 public:
  Evaluation(Runner& model, Runner* reference, std::span<const int32_t> ids, const EvalOptions& options)
      : model_(model), reference_(reference), ids_(ids), options_(options), vocab_(model.info().vocab) {}

  Result<EvalResult> run() {
    GALVANI_TRY(const int64_t windows, eval_windows(static_cast<int64_t>(ids_.size()), options_));
    GALVANI_TRY_VOID(check());
    result_.windows = windows;
    const int64_t rows = std::clamp<int64_t>(kLogitBytes / (4 * vocab_), 1, options_.step_tokens);
    const int64_t together = std::clamp<int64_t>(rows / options_.window, 1, eval_sequences(options_));
    for (int64_t first = 0; first < windows; first += together) {
      std::vector<Window> group;
      for (int64_t i = first; i < std::min(windows, first + together); ++i)
        group.push_back(make_window(ids_, i, options_));
      GALVANI_TRY_VOID(run_group(group, rows));
      if (options_.progress)
        options_.progress(first + static_cast<int64_t>(group.size()), windows,
                          std::exp(result_.nll / static_cast<double>(result_.tokens)));
    }
    finish();
    return std::move(result_);
  }

 private:
  Status check() const {
    for (const Runner* runner : {static_cast<const Runner*>(&model_), static_cast<const Runner*>(reference_)}) {
      if (runner == nullptr) continue;
      if (options_.window > runner->info().model_context)
        return fail(ErrorCode::kInvalidArgument,
                    "a window of {} tokens is longer than the {} positions {} was made for", options_.window,
                    runner->info().model_context, runner->checkpoint().path().string());
    }
    if (reference_ != nullptr && reference_->info().vocab != vocab_)
      return fail(ErrorCode::kInvalidArgument,
                  "{} has a vocabulary of {}, {} of {}; only checkpoints of one model can be compared",
                  model_.checkpoint().path().string(), vocab_, reference_->checkpoint().path().string(),
                  reference_->info().vocab);
    for (size_t i = 0; i < ids_.size(); ++i)
      if (ids_[i] < 0 || ids_[i] >= vocab_)
        return fail(ErrorCode::kOutOfRange, "id {} at index {} is outside the vocabulary; allowed: 0 to {}", ids_[i], i,
                    vocab_ - 1);
    return {};
  }

  /// Sequences of one runner, released with it.
  struct Sequences {
    Runner& runner;
    std::vector<exec::SeqId> ids = {};
    ~Sequences() {
      for (const auto id : ids) runner.state().release(id);
    }
    Status create(size_t count) {
      while (ids.size() < count) {
        GALVANI_TRY(const auto id, runner.state().create_sequence());
        ids.push_back(id);
      }
      return {};
    }
  };

  /// All windows of the group side by side; a window longer than a step runs piece by piece, alone.
  Status run_group(const std::vector<Window>& group, int64_t rows) {
    Sequences model{model_};
    GALVANI_TRY_VOID(model.create(group.size()));
    std::optional<Sequences> reference;
    if (reference_ != nullptr) {
      reference.emplace(Sequences{*reference_});
      GALVANI_TRY_VOID(reference->create(group.size()));
    }
    const int64_t piece = group.size() > 1 ? options_.window : std::min(rows, options_.window);
    for (int64_t at = 0; at < options_.window; at += piece) {
      if (options_.stop && options_.stop()) return fail(ErrorCode::kCancelled, "interrupted");
      const int64_t count = std::min(piece, options_.window - at);
      std::vector<int32_t> targets;
      auto last = std::chrono::steady_clock::now();
      GALVANI_TRY_VOID(forward(model, group, at, count, logits_, &targets));
      result_.seconds += lap(last);
      if (reference) GALVANI_TRY_VOID(forward(*reference, group, at, count, reference_logits_, nullptr));
      score(targets);
    }
    return {};
  }

  Status forward(Sequences& sequences, const std::vector<Window>& group, int64_t at, int64_t count,
                 std::vector<float>& logits, std::vector<int32_t>* targets) {
    exec::Batch batch;
    for (size_t i = 0; i < group.size(); ++i) {
      const Window& window = group[i];
      const int64_t row = batch.rows();
      batch.add(sequences.ids[i], static_cast<int32_t>(at),
                std::span(window.input).subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                exec::WantLogits::kNone);
      const auto end = window.first_scored + static_cast<int64_t>(window.targets.size());
      for (int64_t p = std::max(at, window.first_scored); p < std::min(at + count, end); ++p) {
        batch.logit_rows.push_back(static_cast<int32_t>(row + p - at));
        if (targets != nullptr) targets->push_back(window.targets[static_cast<size_t>(p - window.first_scored)]);
      }
    }
    GALVANI_TRY(const exec::Act act, sequences.runner.forward(batch));
    logits.resize(static_cast<size_t>(static_cast<int64_t>(batch.logit_rows.size()) * vocab_));
    if (logits.empty()) return {};
    return sequences.runner.ops().read(act, logits.data());
  }

  void score(const std::vector<int32_t>& targets) {
    std::vector<PositionScore> scores(targets.size());
    const float* reference = reference_ != nullptr ? reference_logits_.data() : nullptr;
    parallel_for(static_cast<int64_t>(targets.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        scores[static_cast<size_t>(i)] =
            score_position(logits_.data() + i * vocab_, reference == nullptr ? nullptr : reference + i * vocab_, vocab_,
                           targets[static_cast<size_t>(i)]);
    });
    for (const PositionScore& one : scores) {  // in order, so that the sum does not depend on threads
      result_.nll += one.nll;
      result_.not_finite += !one.finite;
      reference_nll_ += one.reference_nll;
      same_ += one.same_top1;
      if (reference_ != nullptr) kl_.push_back(one.kl);
    }
    result_.tokens += static_cast<int64_t>(targets.size());
  }

  void finish() {
    const auto n = static_cast<double>(result_.tokens);
    result_.ppl = std::exp(result_.nll / n);
    if (reference_ == nullptr) return;
    EvalComparison& c = result_.against.emplace();
    c.reference_nll = reference_nll_;
    c.reference_ppl = std::exp(reference_nll_ / n);
    c.ppl_ratio = result_.ppl / c.reference_ppl;
    for (const double kl : kl_) c.kl_mean += kl / n;
    std::sort(kl_.begin(), kl_.end());
    const auto rank = static_cast<size_t>(std::ceil(0.999 * n)) - 1;  // nearest rank
    c.kl_p999 = kl_[std::min(rank, kl_.size() - 1)];
    c.kl_max = kl_.back();
    c.top1_agreement = static_cast<double>(same_) / n;
  }

  Runner& model_;
  Runner* reference_;
  std::span<const int32_t> ids_;
  const EvalOptions& options_;
  int64_t vocab_;
  EvalResult result_;
  std::vector<float> logits_, reference_logits_;
  double reference_nll_ = 0;
  int64_t same_ = 0;
  std::vector<double> kl_;
};

/// Largest logit, the first index that has it, and whether all are finite.
struct Peak {
  float value = -std::numeric_limits<float>::infinity();
  int64_t index = 0;
  bool finite = true;
};
Peak peak_of(const float* logits, int64_t vocab) {
  Peak peak;
  for (int64_t i = 0; i < vocab; ++i) {
    peak.finite &= std::isfinite(logits[i]);
    if (logits[i] > peak.value) {
      peak.value = logits[i];
      peak.index = i;
    }
  }
  return peak;
}

}  // namespace

PositionScore score_position(const float* logits, const float* reference, int64_t vocab, int32_t target) {
  PositionScore score;
  const Peak peak = peak_of(logits, vocab);
  const Peak reference_peak = reference != nullptr ? peak_of(reference, vocab) : Peak{};
  score.finite = peak.finite && reference_peak.finite;
  if (!score.finite) {
    score.nll = score.kl = std::numeric_limits<double>::quiet_NaN();
    return score;
  }
  double sum = 0;  // of e^(z - peak); each term in f32, 6e-8 relative
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - peak.value);
  const double log_sum = std::log(sum) + peak.value;
  score.nll = log_sum - logits[target];
  if (reference == nullptr) return score;
  double reference_sum = 0, weighed = 0;  // Σ e^(r - peak), Σ e^(r - peak)·(r - z)
  for (int64_t i = 0; i < vocab; ++i) {
    const double e = std::exp(reference[i] - reference_peak.value);
    reference_sum += e;
    weighed += e * (static_cast<double>(reference[i]) - logits[i]);
  }
  const double reference_log_sum = std::log(reference_sum) + reference_peak.value;
  score.reference_nll = reference_log_sum - reference[target];
  // Rounding may leave a little less than nothing.
  score.kl = std::max(0.0, weighed / reference_sum - reference_log_sum + log_sum);
  score.same_top1 = peak.index == reference_peak.index;
  return score;
}

Result<int64_t> eval_windows(int64_t ids, const EvalOptions& options) {
  // llama.cpp's convention scores what follows the first half.
  const int64_t least = options.convention == EvalConvention::kWhole ? 2 : 3;
  if (options.window < least)
    return fail(ErrorCode::kInvalidArgument, "a window of {} tokens scores nothing; give at least {}", options.window,
                least);
  const int64_t extra = options.convention == EvalConvention::kWhole ? 1 : 0;
  const int64_t available = (ids - extra) / options.window;
  if (ids < options.window + extra || options.windows > available)
    return fail(ErrorCode::kOutOfRange, "{} ids are too few: {} window(s) of {} take {}", ids,
                std::max<int64_t>(1, options.windows), options.window,
                std::max<int64_t>(1, options.windows) * options.window + extra);
  return options.windows > 0 ? options.windows : std::min(available, kMostWindows);
}

int eval_sequences(const EvalOptions& options) {
  return static_cast<int>(std::clamp<int64_t>(options.step_tokens / std::max<int64_t>(1, options.window), 1, 64));
}

Result<EvalResult> evaluate(Runner& model, Runner* reference, std::span<const int32_t> ids,
                            const EvalOptions& options) {
  return Evaluation(model, reference, ids, options).run();
}

}  // namespace galvani::engine
