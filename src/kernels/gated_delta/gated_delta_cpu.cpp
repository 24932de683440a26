// The gated delta net of a step: which arm, which thread does what.
//
// A decode step runs as one parallel region over (sequence, key head): convolution, gates, recurrence and norm of the
// value heads that read this key head. A prompt runs as two: convolution and gates over rows, then recurrence and norm
// over (sequence, value head). Both call the same steps, so the bits are the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "kernels/gated_delta/gated_delta.h"
#include "kernels/gated_delta/steps.h"

namespace galvani::kernels {
namespace {

constexpr int64_t kRowsPerTask = 16;        ///< of convolution and gates
constexpr float kLeastLogDecay = -1000.0f;  // e^−1000 is 0 in f32; −inf would make γ_i − γ_j NaN

/// All arrays of a call. Scratch: u [rows, channels], then log-decay, decay and β [rows, value_heads] each.
class Call {
 public:
  Call(const GatedDeltaShape& shape, const GatedDeltaWeights& weights, const float* in, int64_t in_stride, float* out,
       int64_t out_stride, float* scratch, int64_t rows)
      : shape_(shape),
        weights_(weights),
        in_(in),
        in_stride_(in_stride),
        out_(out),
        out_stride_(out_stride),
        u_(scratch),
        log_g_(scratch + rows * shape.channels()),
        decay_(log_g_ + rows * shape.value_heads),
        beta_(decay_ + rows * shape.value_heads) {}

  /// Convolution, L2 norms and gates of rows [begin, end) of a sequence for one key head and its value heads.
  void prepare(const GatedDeltaSequence& sequence, int64_t begin, int64_t end, int key_head) const {
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.k_dim));
    const int64_t q = int64_t{key_head} * shape_.k_dim, k = shape_.keys() + q;
    for (int64_t t = begin; t < end; ++t) {
      float* u = u_ + (sequence.row + t) * shape_.channels();
      convolve(sequence, t, q, shape_.k_dim, u);
      convolve(sequence, t, k, shape_.k_dim, u);
      delta_normalise(u + q, shape_.k_dim, scale);
      delta_normalise(u + k, shape_.k_dim, 1.0f);
      for (int j = 0; j < shape_.group(); ++j) {
        const int head = shape_.value_head(key_head, j);
        convolve(sequence, t, 2 * shape_.keys() + int64_t{head} * shape_.v_dim, shape_.v_dim, u);
        gates(sequence.row + t, head);
      }
    }
  }

  /// Keeps the last rows of a key head's channels for the sequence's next step.
  void carry(const GatedDeltaSequence& sequence, int key_head) const {
    const int64_t q = int64_t{key_head} * shape_.k_dim;
    carry(sequence, q, shape_.k_dim);
    carry(sequence, shape_.keys() + q, shape_.k_dim);
    for (int j = 0; j < shape_.group(); ++j)
      carry(sequence, 2 * shape_.keys() + int64_t{shape_.value_head(key_head, j)} * shape_.v_dim, shape_.v_dim);
  }

  /// Recurrence and gated norm of one value head.
  void advance(const GatedDeltaSequence& sequence, int head, GatedDeltaArm arm) const {
    const int64_t value = int64_t{head} * shape_.v_dim, gate = sequence.row * shape_.value_heads + head;
    const float* u = u_ + sequence.row * shape_.channels();
    const float* q = u + int64_t{shape_.key_head(head)} * shape_.k_dim;
    float* out = out_ + sequence.row * out_stride_ + value;
    const DeltaHead work{.q = q,
                         .k = q + shape_.keys(),
                         .v = u + 2 * shape_.keys() + value,
                         .stride = shape_.channels(),
                         .log_g = log_g_ + gate,
                         .decay = decay_ + gate,
                         .beta = beta_ + gate,
                         .gate_stride = shape_.value_heads,
                         .state = sequence.state + value * shape_.k_dim,
                         .out = out,
                         .out_stride = out_stride_,
                         .count = sequence.count,
                         .first_position = sequence.first_position,
                         .k_dim = shape_.k_dim,
                         .v_dim = shape_.v_dim};
    switch (gated_delta_plan(arm, sequence.count)) {
      case GatedDeltaArm::kChunk16: delta_chunked(work, 16); break;
      case GatedDeltaArm::kChunk32: delta_chunked(work, 32); break;
      case GatedDeltaArm::kChunk64: delta_chunked(work, 64); break;
      default: delta_recurrent(work); break;
    }
    const float* z = in_ + sequence.row * in_stride_ + shape_.channels() + value;
    for (int64_t t = 0; t < sequence.count; ++t)
      delta_finish(out + t * out_stride_, z + t * in_stride_, weights_.norm, shape_.v_dim, weights_.eps,
                   weights_.sigmoid_gate);
  }

 private:
  void convolve(const GatedDeltaSequence& sequence, int64_t t, int64_t channel, int64_t width, float* u) const {
    const int past = shape_.kernel - 1;
    std::array<const float*, kMaxConvTaps> rows{};
    for (int j = 0; j <= past; ++j) {
      const int64_t row = t - past + j;
      rows[static_cast<size_t>(j)] =
          (row < 0 ? sequence.conv + (row + past) * shape_.channels() : in_ + (sequence.row + row) * in_stride_) +
          channel;
    }
    delta_convolve(rows.data(), weights_.conv + channel, shape_.channels(), shape_.kernel, width, u + channel);
  }

  void gates(int64_t row, int head) const {
    const float* b = in_ + row * in_stride_ + shape_.channels() + shape_.values();
    const float* a = b + shape_.value_heads;
    const float x = a[head] + weights_.dt_bias[head];
    const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
    float g = -std::exp(weights_.a_log[head]) * softplus;
    if (g < kLeastLogDecay) g = kLeastLogDecay;
    const int64_t at = row * shape_.value_heads + head;
    log_g_[at] = g;
    decay_[at] = std::exp(g);
    beta_[at] = 1.0f / (1.0f + std::exp(-b[head]));
  }

  void carry(const GatedDeltaSequence& sequence, int64_t channel, int64_t width) const {
    const int past = shape_.kernel - 1;
    for (int j = 0; j < past; ++j) {
      const int64_t row = sequence.count - past + j;
      const float* from =
          row < 0 ? sequence.conv + (row + past) * shape_.channels() : in_ + (sequence.row + row) * in_stride_;
      std::memcpy(sequence.conv + j * shape_.channels() + channel, from + channel,
                  static_cast<size_t>(width) * sizeof(float));
    }
  }

  const GatedDeltaShape& shape_;
  const GatedDeltaWeights& weights_;
  const float* in_;
  int64_t in_stride_;
  float* out_;
  int64_t out_stride_;
  float *u_, *log_g_, *decay_, *beta_;
};

void run_ref(const GatedDeltaShape& shape, const GatedDeltaWeights& weights, const GatedDeltaSequence& sequence,
             const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  const auto widen = [](const float* from, int64_t n) { return std::vector<double>(from, from + n); };
  const auto narrow = [](const std::vector<double>& from, float* to) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
  };
  std::vector<double> conv = widen(sequence.conv, shape.conv_elements());
  std::vector<double> state = widen(sequence.state, shape.state_elements()), row(static_cast<size_t>(shape.values()));
  for (int64_t t = 0; t < sequence.count; ++t) {
    gated_delta_ref(shape, weights, in + (sequence.row + t) * in_stride, in_stride, 1, conv.data(), state.data(),
                    row.data());
    narrow(row, out + (sequence.row + t) * out_stride);
  }
  narrow(conv, sequence.conv);
  narrow(state, sequence.state);
}

}  // namespace

std::optional<GatedDeltaArm> gated_delta_arm_from_name(const std::string& name) {
  for (const GatedDeltaArm arm : {GatedDeltaArm::kAuto, GatedDeltaArm::kRef, GatedDeltaArm::kRecurrent,
                                  GatedDeltaArm::kChunk16, GatedDeltaArm::kChunk32, GatedDeltaArm::kChunk64}) {
    if (name == gated_delta_arm_name(arm)) return arm;
  }
  return std::nullopt;
}

const char* gated_delta_arm_name(GatedDeltaArm arm) {
  switch (arm) {
    case GatedDeltaArm::kAuto: return "auto";
    case GatedDeltaArm::kRef: return "ref";
    case GatedDeltaArm::kRecurrent: return "recurrent";
    case GatedDeltaArm::kChunk16: return "chunk16";
    case GatedDeltaArm::kChunk32: return "chunk32";
    case GatedDeltaArm::kChunk64: return "chunk64";
  }
  return "?";
}

GatedDeltaArm gated_delta_plan(GatedDeltaArm arm, int64_t) {
  return arm == GatedDeltaArm::kAuto ? GatedDeltaArm::kRecurrent : arm;
}

int64_t gated_delta_scratch(const GatedDeltaShape& shape, int64_t rows) {
  return rows * (shape.channels() + 3 * int64_t{shape.value_heads});
}

void gated_delta(const GatedDeltaShape& shape, const GatedDeltaWeights& weights,
                 std::span<const GatedDeltaSequence> sequences, const float* in, int64_t in_stride, float* out,
                 int64_t out_stride, float* scratch, GatedDeltaArm arm) {
  const auto count = static_cast<int64_t>(sequences.size());
  if (arm == GatedDeltaArm::kRef) {
    for (const GatedDeltaSequence& sequence : sequences)
      run_ref(shape, weights, sequence, in, in_stride, out, out_stride);
    return;
  }
  int64_t rows = 0;
  for (const GatedDeltaSequence& sequence : sequences) rows = std::max(rows, sequence.row + sequence.count);
  const Call call(shape, weights, in, in_stride, out, out_stride, scratch, rows);
  if (rows <= 2 * count) {
    // A state below this many bytes a thread is updated sooner than another thread wakes.
    constexpr int64_t kBytesPerTask = 64 << 10;
    const int64_t item_bytes = int64_t{shape.group()} * shape.k_dim * shape.v_dim * 4;
    const int64_t grain = std::max<int64_t>(1, kBytesPerTask / item_bytes);
    parallel_for(count * shape.key_heads, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const GatedDeltaSequence& sequence = sequences[static_cast<size_t>(i / shape.key_heads)];
        const int key_head = static_cast<int>(i % shape.key_heads);
        call.prepare(sequence, 0, sequence.count, key_head);
        call.carry(sequence, key_head);
        for (int j = 0; j < shape.group(); ++j) call.advance(sequence, shape.value_head(key_head, j), arm);
      }
    });
    return;
  }
  for (const GatedDeltaSequence& sequence : sequences) {
    const int64_t blocks = (sequence.count + kRowsPerTask - 1) / kRowsPerTask;
    parallel_for(blocks * shape.key_heads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i / shape.key_heads * kRowsPerTask;
        call.prepare(sequence, first, std::min(sequence.count, first + kRowsPerTask),
                     static_cast<int>(i % shape.key_heads));
      }
    });
  }
  parallel_for(count * shape.value_heads, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const GatedDeltaSequence& sequence = sequences[static_cast<size_t>(i / shape.value_heads)];
      const int head = static_cast<int>(i % shape.value_heads), key_head = shape.key_head(head);
      if (head == shape.value_head(key_head, 0)) call.carry(sequence, key_head);
      call.advance(sequence, head, arm);
    }
  });
}

}  // namespace galvani::kernels
