#include "kernels/step/step_cuda.h"

#include <algorithm>

namespace galvani::kernels {

const char* step_kernel_name(int bits, Arithmetic arithmetic) {
  if (bits != 4 || arithmetic == Arithmetic::kF32) return nullptr;
  return arithmetic == Arithmetic::kBF16 ? "decode_step_q4_bf16_sm90" : "decode_step_q4_f16_sm90";
}

const char* StepProgram::append(StepNeeds needs, const StepPhase& phase) {
  ++needs.phases;
  // Before the first product nobody knows how long a slot is.
  if (needs.chunk_bytes > 0 && !step_layout(needs, caps_.smem_optin).ok)
    return "x or attention and two slots a warp do not fit this part's shared memory";
  needs_ = needs;
  phases_.push_back(phase);
  return nullptr;
}

void StepProgram::use(void* scratch, size_t bytes) {
  scratch_ = static_cast<unsigned char*>(scratch);
  const auto counter = static_cast<size_t>(kStepCounterBytes);
  relay_capacity_ = bytes <= counter ? 0 : static_cast<int>((bytes - counter) / 2 / 16 * 16);
}

void StepProgram::end_epoch(StepPhase& phase) {
  phase.full = 1;
  if (relay_used_ > 0 && scratch_ != nullptr) {
    phase.blank = scratch_ + kStepCounterBytes + (epoch_ & 1) * relay_capacity_;
    phase.blank_bytes = std::min(relay_used_, relay_capacity_);
  }
  ++epoch_, relay_used_ = 0;
}

void StepProgram::relay() {
  StepPhase& phase = phases_.back();
  StepProduct& to = phase.product;
  const bool normed = to.input == StepInput::kNormed;
  const auto align = [](int bytes) { return (bytes + 15) / 16 * 16; };
  const int x_bytes = align(2 * to.k), bytes = x_bytes + (normed ? align(to.k / kA16Rows * 4) : 0);
  if (relay_used_ + bytes > kStepMostRelay) end_epoch(phase);
  if (bytes > kStepMostRelay) return;
  // Taken whether the phase before makes it or not: so a program that is only looked at knows the size.
  const int offset = relay_used_;
  relay_used_ += bytes;
  most_relay_ = std::max(most_relay_, relay_used_);
  if (scratch_ == nullptr || relay_used_ > relay_capacity_ || phase.blank_bytes > 0) return;
  unsigned char* const at = scratch_ + kStepCounterBytes + (epoch_ & 1) * relay_capacity_ + offset;
  StepPhase& before = phases_[phases_.size() - 2];
  StepProduct& from = before.product;
  if (before.kind == StepKind::kAttention) {
    const QkvArgs& qkv = before.attention.qkv;
    if (normed || before.attention.out != to.x || qkv.heads * qkv.kv.v_dim != to.k) return;
    before.attention.relay = at;
  } else if (normed) {
    // f16 could overflow without the norm's last factor, which the relay's words do not have.
    if (arithmetic_ != Arithmetic::kBF16 || from.output != StepOutput::kAdd || from.y != to.x || from.n != to.k) return;
    from.relay = at;
    from.relay_squares = reinterpret_cast<float*>(at + x_bytes);
    from.relay_norm = to.norm_w, from.relay_plus_one = to.plus_one;
    to.from_squares = from.relay_squares;
  } else {
    const bool gated = from.output == StepOutput::kGated;
    if ((!gated && from.output != StepOutput::kStoreHalf) || from.y != to.x || from.n != (gated ? 2 : 1) * to.k) return;
    from.relay = at;
  }
  to.from = at;
  phase.full = before.next_full = 0;
}

const char* StepProgram::product(const CudaMatrix& w, StepProduct product) {
  if (!caps_.has(Feature::kBulkCopy)) return "bulk copies into shared memory are missing (from 9.0 on)";
  if (w.format.code != A16Code::kAffine) return "codes are not affine";
  if (step_kernel_name(w.format.bits, arithmetic_) == nullptr)
    return "no kernel for codes of this width (4 bits have one)";
  if (bits_ != 0 && w.format.bits != bits_) return "matrices of several widths";
  product.w = w.data;
  product.n = static_cast<int>(w.rows), product.k = static_cast<int>(w.cols);
  product.units = static_cast<int>(a16_units(w.cols));
  product.unit_bytes = a16_unit_bytes(w.format);
  product.subgroups = a16_subgroups(w.format.group);
  product.scale = static_cast<int>(w.format.scale);
  step_share(product, caps_.sms, product.output == StepOutput::kGated);
  if (const char* reason = step_refusal(product)) return reason;
  StepNeeds needs = needs_;
  step_need(needs, product);
  StepPhase phase;
  phase.kind = StepKind::kProduct;
  phase.product = product;
  if (const char* reason = append(needs, phase)) return reason;
  bits_ = w.format.bits;
  if (phases_.size() > 1) relay();
  // The norm that a phase begins with comes from memory each step: the last product before it asks for it.
  if (product.input == StepInput::kNormed && product.norm_w != nullptr && phases_.back().product.from == nullptr)
    for (auto before = phases_.rbegin() + 1; before != phases_.rend(); ++before) {
      if (before->kind != StepKind::kProduct) continue;
      before->next_norm = product.norm_w;
      before->next_norm_bytes = product.k * 4;
      break;
    }
  return nullptr;
}

const char* StepProgram::attention(const StepAttention& attention) {
  const PagedKv& kv = attention.qkv.kv;
  const int heads = attention.qkv.heads;
  const StoreType type = arithmetic_ == Arithmetic::kBF16 ? StoreType::kBF16 : StoreType::kF16;
  if (attention.qkv.type != type) return "keys and values have not the activations' type";
  if (!attention.qkv.append) return "keys and values of another layer";  // loaded before the wait, and not replaced
  if (kv.k_dim != kv.v_dim) return "keys and values differ in width";
  if (kv.k_dim != 64 && kv.k_dim != 128) return "head width is not 64 or 128";
  if (heads % kv.kv_heads != 0 || heads / kv.kv_heads > kStepMostGroup) return "more than 8 query heads a kv head";
  if (kv.kv_heads > kStepMostKvHeads) return "more than 128 kv heads";
  if (attention.qkv.rope != nullptr && 2 * attention.qkv.rope_pairs != kv.k_dim) return "rope on a part of a head";
  StepNeeds needs = needs_;
  needs.attention = step_max(needs.attention, step_attention_bytes(heads, kv.kv_heads, kv.k_dim));
  StepPhase phase;
  phase.kind = StepKind::kAttention;
  phase.attention = attention;
  phase.attention.group = heads / kv.kv_heads;
  phase.attention.most = std::max(1, caps_.sms / kv.kv_heads);
  phase.attention.inverse = static_cast<unsigned>((0x100000000ll + kv.kv_heads - 1) / kv.kv_heads);
  if (position_ == nullptr) position_ = attention.qkv.positions, sequence_ = attention.qkv.sequence;
  const bool asked = !phases_.empty() && phases_.back().kind == StepKind::kProduct &&
                     attention.qkv.positions == position_ && attention.qkv.sequence == sequence_;
  phase.attention.asked = asked ? 1 : 0;
  if (const char* reason = append(needs, phase)) return reason;
  end_epoch(phases_.back());
  if (attention.score.window == 0)
    key_bytes_ = std::max<int64_t>(key_bytes_, int64_t{kv.kv_heads} * (kv.k_dim + kv.v_dim) * store_bytes(type));
  if (asked) phases_[phases_.size() - 2].attention = phase.attention;
  return nullptr;
}

void StepProgram::clear() {
  phases_.clear();
  needs_ = {};
  bits_ = 0;
  key_bytes_ = 0;
  position_ = sequence_ = nullptr;
  relay_used_ = epoch_ = 0;
}

int64_t StepProgram::part_floats(int heads, int kv_heads, int v_dim) const {
  return int64_t{std::max(1, caps_.sms / kv_heads)} * heads * v_dim;
}

StepLayout StepProgram::layout() const { return step_layout(needs_, caps_.smem_optin); }

const char* StepProgram::refusal() const {
  if (bits_ == 0) return "no product";
  return layout().ok ? nullptr : "x and two slots a warp do not fit this part's shared memory";
}

std::string StepProgram::text() const {
  const StepLayout l = layout();
  const char* name = step_kernel_name(bits_, arithmetic_);
  return fmt::format("kernel={} {} phases, blocks={} stages={} smem={}{}", name == nullptr ? "none" : name,
                     phases_.size(), caps_.sms, l.args.stages, l.smem,
                     key_bytes_ > 0 ? fmt::format(" keys<={}", most_keys()) : "");
}

Status StepProgram::launch(cuda::Stream& stream, const void* device_phases) const {
  if (const char* reason = refusal())
    return fail(ErrorCode::kUnsupported, "a decode step of {} phases in one kernel: {}", phases_.size(), reason);
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel(step_kernel_name(bits_, arithmetic_)));
  const StepLayout l = layout();
  StepArgs args = l.args;
  args.phases = static_cast<const StepPhase*>(device_phases);
  args.count = static_cast<int>(phases_.size());
  args.arrived = reinterpret_cast<unsigned*>(scratch_);
  args.position = position_, args.sequence = sequence_;
  if (scratch_ == nullptr)
    return fail(ErrorCode::kInternal, "a decode step of {} phases in one kernel has no scratch memory", phases_.size());
  // The counter, and words that have not come.
  GALVANI_TRY_VOID(stream.fill(scratch_, 0xff, static_cast<size_t>(kStepCounterBytes + 2 * relay_capacity_)));
  cuda::LaunchConfig config;
  config.grid = {static_cast<unsigned>(caps_.sms)};
  config.block = {static_cast<unsigned>(kStepThreads)};
  config.dynamic_smem = l.smem;
  config.cooperative = true;
  return cuda::launch(stream, *kernel, config, args);
}

}  // namespace galvani::kernels
