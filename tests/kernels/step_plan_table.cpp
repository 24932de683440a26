/// A decode step in one kernel: models' shapes as StepProgram takes or refuses them, in the order that a model is
/// walked.
#include <fmt/format.h>

#include "kernels/plan_tables.h"
#include "kernels/step/step_cuda.h"

namespace galvani::kernels {
namespace {

/// From the models' published configurations; the head is quantized as the rest.
struct Model {
  const char* name;
  int hidden, inner, heads, kv_heads, dim, layers, vocab, bits;
  bool bias = false, plus_one = false, head_norms = false;
};
constexpr Model kModels[] = {
    {"Llama-3.1-8B q4", 4096, 14336, 32, 8, 128, 32, 128256, 4},
    {"Llama-3.1-8B q8", 4096, 14336, 32, 8, 128, 32, 128256, 8},
    {"SmolLM2-135M q4", 576, 1536, 9, 3, 64, 30, 49152, 4},
    {"Qwen2.5-7B q4", 3584, 18944, 28, 4, 128, 28, 152064, 4, true},
    {"gemma-3-4b q4", 2560, 10240, 8, 4, 256, 34, 262208, 4, false, true, true},
};
constexpr Arithmetic kArithmetics[] = {Arithmetic::kBF16, Arithmetic::kF16};

/// Somewhere nobody looks.
template <typename T>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

/// Writes the model's phases down; null, or why one was refused.
const char* write_down(StepProgram& program, const Model& model, Arithmetic arithmetic) {
  float* const x = at<float>(0x1000);
  const char* refused = nullptr;
  const auto product = [&](int64_t rows, int64_t cols, const void* from, void* to, StepInput in, StepOutput out) {
    if (refused != nullptr) return;
    CudaMatrix w;
    w.rows = rows, w.cols = cols, w.format = {model.bits, 64, A16Scale::kBF16};
    StepProduct step{};
    step.x = from, step.y = to, step.input = in, step.output = out, step.eps = 1e-5f, step.plus_one = model.plus_one;
    if (in == StepInput::kNormed) step.norm_w = at<float>(0x2000);
    refused = program.product(w, step);
  };
  const int q = model.heads * model.dim;
  for (int layer = 0; layer < model.layers; ++layer) {
    product(q + 2 * model.kv_heads * model.dim, model.hidden, x, at<float>(0x3000), StepInput::kNormed,
            StepOutput::kStore);
    StepAttention attention{};
    QkvArgs& qkv = attention.qkv;
    qkv.heads = model.heads, qkv.kv.kv_heads = model.kv_heads, qkv.kv.k_dim = qkv.kv.v_dim = model.dim;
    qkv.type = arithmetic == Arithmetic::kBF16 ? StoreType::kBF16 : StoreType::kF16;
    qkv.q_normed = qkv.k_normed = model.head_norms;
    qkv.rope = at<float>(0x8000), qkv.rope_pairs = model.dim / 2;
    if (model.bias) qkv.bias = at<float>(0x9000);
    attention.out = at<void>(0x4000);
    if (refused == nullptr) refused = program.attention(attention);
    product(model.hidden, q, at<void>(0x4000), x, StepInput::kHalf, StepOutput::kAdd);
    product(2 * model.inner, model.hidden, x, at<void>(0x5000), StepInput::kNormed, StepOutput::kGated);
    product(model.hidden, model.inner, at<void>(0x5000), x, StepInput::kHalf, StepOutput::kAdd);
  }
  product(model.vocab, model.hidden, x, at<float>(0x7000), StepInput::kNormed, StepOutput::kStore);
  return refused != nullptr ? refused : program.refusal();
}

std::string plan_of(const DeviceCaps& caps, const Model& model, Arithmetic arithmetic) {
  StepProgram program(caps, arithmetic);
  if (const char* reason = write_down(program, model, arithmetic)) return fmt::format("refused: {}", reason);
  // As CudaOps does: looked at first, then with the scratch memory it asked for.
  const size_t scratch = program.scratch_bytes();
  program.clear();
  program.use(at<void>(1 << 20), scratch);
  if (const char* reason = write_down(program, model, arithmetic)) return fmt::format("refused: {}", reason);
  size_t full = 0;
  for (size_t i = 0; i < program.size(); ++i) full += program.data()[i].full != 0;
  return fmt::format("{} full-barriers={} scratch={}", program.text(), full, scratch);
}

}  // namespace

PlanTable step_plan_table() {
  PlanTable table{.operation = "step", .ms = {1}};
  for (const Model& model : kModels)
    for (const Arithmetic arithmetic : kArithmetics)
      table.rows.push_back(fmt::format("{} {}", model.name, arithmetic_name(arithmetic)));
  table.plan = [](const DeviceCaps& caps, size_t row, int64_t) {
    return plan_of(caps, kModels[row / std::size(kArithmetics)], kArithmetics[row % std::size(kArithmetics)]);
  };
  return table;
}

}  // namespace galvani::kernels
