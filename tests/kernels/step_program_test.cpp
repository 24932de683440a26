// What phases of a decode step hand each other (kernels/step/step_relay.cuh): who waits for what, and that words of an
// epoch are blanked before they are used again. Programs are written down and looked at; nothing runs.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/parts.h"
#include "kernels/step/step_cuda.h"

namespace galvani::kernels {
namespace {

constexpr int kHidden = 512, kInner = 1024, kHeads = 4, kKvHeads = 2, kDim = 128, kLayers = 3, kVocab = 1024;
constexpr uintptr_t kScratch = 1 << 20;

/// A pointer that nobody follows.
template <typename T>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}
uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

class CudaStepProgram : public testing::Test {
 protected:
  static StepProgram program(Arithmetic arithmetic) { return {find_part("h200")->caps, arithmetic}; }
  static CudaMatrix matrix(int64_t rows, int64_t cols) {
    CudaMatrix m;
    m.rows = rows, m.cols = cols;
    return m;
  }
  /// Layers of Llama's kind and a head; strange: what the second layer's gate and up multiply is not what o adds onto.
  static void write_down(StepProgram& p, Arithmetic arithmetic, bool strange = false) {
    float* const x = at<float>(0x1000);
    const auto product = [&](int64_t rows, int64_t cols, const void* from, void* to, StepInput in, StepOutput out) {
      StepProduct step{};
      step.x = from, step.y = to, step.input = in, step.output = out, step.norm_w = at<float>(0x2000), step.eps = 1e-5f;
      ASSERT_EQ(p.product(matrix(rows, cols), step), nullptr);
    };
    for (int layer = 0; layer < kLayers; ++layer) {
      product((kHeads + 2 * kKvHeads) * kDim, kHidden, x, at<float>(0x3000), StepInput::kNormed, StepOutput::kStore);
      StepAttention attention{};
      attention.qkv.heads = kHeads, attention.qkv.kv.kv_heads = kKvHeads;
      attention.qkv.kv.k_dim = attention.qkv.kv.v_dim = kDim;
      attention.qkv.type = arithmetic == Arithmetic::kBF16 ? StoreType::kBF16 : StoreType::kF16;
      attention.out = at<void>(0x4000);
      ASSERT_EQ(p.attention(attention), nullptr);
      product(kHidden, kHeads * kDim, at<void>(0x4000), x, StepInput::kHalf, StepOutput::kAdd);
      product(2 * kInner, kHidden, strange && layer == 1 ? at<float>(0x6000) : x, at<void>(0x5000), StepInput::kNormed,
              StepOutput::kGated);
      product(kHidden, kInner, at<void>(0x5000), x, StepInput::kHalf, StepOutput::kAdd);
    }
    product(kVocab, kHidden, x, at<float>(0x7000), StepInput::kNormed, StepOutput::kStore);
  }
  /// The same with as much scratch memory as the program asks for.
  static StepProgram ready(Arithmetic arithmetic, bool strange = false) {
    StepProgram p = program(arithmetic);
    write_down(p, arithmetic, strange);
    p.clear();
    p.use(at<void>(kScratch), p.scratch_bytes());
    write_down(p, arithmetic, strange);
    return p;
  }
  static const void* relay_of(const StepPhase& phase) {
    return phase.kind == StepKind::kAttention ? phase.attention.relay : phase.product.relay;
  }
};

TEST_F(CudaStepProgram, EveryProductButTheFirstTakesWhatThePhaseBeforeHandsIt) {
  const StepProgram p = ready(Arithmetic::kBF16);
  ASSERT_EQ(p.size(), 5u * kLayers + 1);
  for (size_t i = 0; i < p.size(); ++i) {
    const StepPhase& phase = p.data()[i];
    const bool full = i == 0 || phase.kind == StepKind::kAttention;
    EXPECT_EQ(phase.full, full ? 1 : 0) << "phase " << i;
    if (i + 1 < p.size()) {
      EXPECT_EQ(phase.next_full, p.data()[i + 1].full) << "phase " << i;
    }
    if (phase.kind == StepKind::kAttention) continue;
    EXPECT_EQ(phase.product.from, i == 0 ? nullptr : relay_of(p.data()[i - 1])) << "phase " << i;
    EXPECT_EQ(phase.product.from == nullptr, full) << "phase " << i;
    const bool normed = phase.product.input == StepInput::kNormed && !full;
    EXPECT_EQ(phase.product.from_squares != nullptr, normed) << "phase " << i;
    if (normed) {
      EXPECT_EQ(phase.product.from_squares, p.data()[i - 1].product.relay_squares);
      EXPECT_EQ(p.data()[i - 1].product.relay_norm, phase.product.norm_w);
    }
  }
}

/// Words of an epoch are its own, and blanked between two full barriers before they are used again. Epochs there were.
int expect_epochs_apart(const StepProgram& p) {
  struct Words {
    uintptr_t from, to;
    int epoch;
  };
  std::vector<Words> words, blanks;
  int epoch = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const StepPhase& phase = p.data()[i];
    if (phase.full != 0 && i > 0) ++epoch;
    if (phase.blank_bytes > 0)
      blanks.push_back({address(phase.blank), address(phase.blank) + static_cast<uintptr_t>(phase.blank_bytes), epoch});
    if (phase.kind == StepKind::kAttention || phase.product.from == nullptr) continue;
    const StepProduct& product = phase.product;
    const uintptr_t from = address(product.from);
    words.push_back({from, from + 2 * static_cast<uintptr_t>(product.k), epoch});
    if (product.from_squares != nullptr) {
      const uintptr_t squares = address(product.from_squares);
      words.push_back({squares, squares + 4 * static_cast<uintptr_t>(product.k / kA16Rows), epoch});
    }
  }
  const size_t bytes = p.scratch_bytes();
  for (const Words& w : words) {
    EXPECT_EQ(w.from % 16, 0u);
    EXPECT_GE(w.from, kScratch + kStepCounterBytes);
    EXPECT_LE(w.to, kScratch + bytes);
    for (const Words& other : words) {
      if (&other == &w || other.to <= w.from || other.from >= w.to) continue;
      EXPECT_NE(other.epoch, w.epoch) << "two vectors of an epoch share words";
      if (other.epoch <= w.epoch) continue;
      EXPECT_GE(other.epoch, w.epoch + 2) << "no full barrier between blanks and the words' next use";
      // In one of the epochs between: so a full barrier lies on both sides.
      const bool blanked = std::any_of(blanks.begin(), blanks.end(), [&](const Words& b) {
        return b.epoch > w.epoch && b.epoch < other.epoch && b.from <= w.from && w.to <= b.to;
      });
      EXPECT_TRUE(blanked) << "epochs " << w.epoch << " and " << other.epoch;
    }
  }
  return epoch;
}

TEST_F(CudaStepProgram, WordsAreBlankedAfterTheEpochThatUsedThemAndBeforeTheOneThatDoesAgain) {
  EXPECT_EQ(expect_epochs_apart(ready(Arithmetic::kBF16)), kLayers);
}

// Without attention nothing ends an epoch but its memory.
TEST_F(CudaStepProgram, AnEpochEndsWhereItsMemoryDoes) {
  constexpr int kLong = 28672, kPairs = 60;
  StepProgram p = program(Arithmetic::kBF16);
  const auto write = [&] {
    for (int i = 0; i < kPairs; ++i)
      for (const bool gate : {true, false}) {
        StepProduct step{};
        step.x = gate ? at<void>(0x1000) : at<void>(0x5000), step.y = gate ? at<void>(0x5000) : at<void>(0x1000);
        step.input = gate ? StepInput::kNormed : StepInput::kHalf;
        step.output = gate ? StepOutput::kGated : StepOutput::kAdd, step.eps = 1e-5f;
        ASSERT_EQ(p.product(gate ? matrix(2 * kLong, kHidden) : matrix(kHidden, kLong), step), nullptr);
      }
  };
  write();
  EXPECT_LE(p.scratch_bytes(), static_cast<size_t>(kStepCounterBytes) + 2 * kStepMostRelay);
  p.clear();
  p.use(at<void>(kScratch), p.scratch_bytes());
  write();
  EXPECT_EQ(expect_epochs_apart(p), kPairs * (2 * kLong + 2 * kHidden) / kStepMostRelay);
}

// Keys of another layer are written in this very step: a read before the wait would not see them.
TEST_F(CudaStepProgram, KeysOfAnotherLayerAreRefused) {
  StepProgram p = program(Arithmetic::kBF16);
  StepAttention attention{};
  attention.qkv.heads = kHeads, attention.qkv.kv.kv_heads = kKvHeads;
  attention.qkv.kv.k_dim = attention.qkv.kv.v_dim = kDim;
  attention.qkv.type = StoreType::kBF16;
  attention.qkv.append = false;
  EXPECT_STREQ(p.attention(attention), "keys and values of another layer");
  EXPECT_TRUE(p.empty());
}

// f16 could overflow without a norm's last factor, so its normed rows are not handed on.
TEST_F(CudaStepProgram, NormedRowsAreHandedOnInBf16Alone) {
  const StepProgram p = ready(Arithmetic::kF16);
  for (size_t i = 1; i < p.size(); ++i) {
    const StepPhase& phase = p.data()[i];
    if (phase.kind == StepKind::kAttention) continue;
    EXPECT_EQ(phase.product.from != nullptr, phase.product.input == StepInput::kHalf) << "phase " << i;
    EXPECT_EQ(phase.full, phase.product.from == nullptr ? 1 : 0) << "phase " << i;
  }
}

TEST_F(CudaStepProgram, WhatNobodyHandsOnIsWaitedForByAFullBarrier) {
  const StepProgram strange = ready(Arithmetic::kBF16, true);
  const StepPhase& odd = strange.data()[5 + 3];
  EXPECT_EQ(odd.product.from, nullptr);
  EXPECT_EQ(odd.full, 1);
  EXPECT_EQ(relay_of(strange.data()[5 + 2]), nullptr);
  EXPECT_EQ(strange.data()[5 + 2].next_full, 1);
  // No room: nothing is handed on, and nothing written outside.
  StepProgram none = program(Arithmetic::kBF16);
  none.use(at<void>(kScratch), kStepCounterBytes);
  write_down(none, Arithmetic::kBF16);
  for (size_t i = 0; i < none.size(); ++i) {
    EXPECT_EQ(none.data()[i].full, 1);
    EXPECT_EQ(relay_of(none.data()[i]), nullptr);
    EXPECT_EQ(none.data()[i].blank_bytes, 0);
  }
}

}  // namespace
}  // namespace galvani::kernels
