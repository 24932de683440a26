#pragma once
// A decode step of one token in one kernel: a block a multiprocessor, all of them resident, works off the phases of a
// list with a barrier over the grid between two. The rings of weights run through all phases: weights wait for no
// activation, so memory goes on being read while the grid waits, and a phase finds its first weights in shared memory.
// README.md has the reasons and the numbers.
#include "kernels/step/step_attention.cuh"
#include "kernels/step/step_product.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// The weights of the next norm on their way to the L2, a part by each block: every step they come from memory.
GALVANI_DEVICE void step_prefetch(const StepPhase& phase) {
  for (int line = static_cast<int>(blockIdx.x); line * 128 < phase.next_norm_bytes; line += static_cast<int>(gridDim.x))
    prefetch_l2(reinterpret_cast<const unsigned char*>(phase.next_norm) + line * 128);
}

/// Asks for phase `index` in shared memory, where it is after cp_async_wait and a barrier.
GALVANI_DEVICE void step_fetch_phase(const StepArgs& s, int index, unsigned char* smem) {
  constexpr int kPieces = kStepPhaseBytes / 16, kFirst = kStepThreads - kWarp;  // not the warp that polls
  const int piece = static_cast<int>(threadIdx.x) - kFirst;
  if (index < s.count && piece >= 0 && piece < kPieces)
    cp_async_16(shared_address(smem + s.phase_at + (index & 1) * kStepPhaseBytes) + piece * 16,
                reinterpret_cast<const unsigned char*>(s.phases + index) + piece * 16);
  cp_async_commit();
}

template <typename T>
__global__ void __launch_bounds__(kStepThreads, 1) decode_step(const __grid_constant__ StepArgs s) {
  GALVANI_DYNAMIC_SHARED(unsigned char, smem, 128);
  const int own_warp = static_cast<int>(threadIdx.x) / kWarp, own_lane = lane_id();
  if (own_lane < s.stages) {
    barrier_init(shared_address(smem + s.barrier_at) + (own_warp * s.stages + own_lane) * 8, 1);
    fence_barrier_init();
  }
  step_fetch_phase(s, 0, smem);
  for (int i = static_cast<int>(threadIdx.x); i < s.count; i += kStepThreads) {
    StepRun run{};
    if (s.phases[i].kind == StepKind::kProduct) run = step_run(s.phases[i].product);
    reinterpret_cast<StepRun*>(smem + s.run_at)[i] = run;
  }
  if (threadIdx.x == 0 && s.position != nullptr)
    *reinterpret_cast<StepRow*>(smem + s.row_at) = {load_early(s.position), load_early(s.sequence)};
  cp_async_wait<0>();
  __syncthreads();
  {
    StepRing ring(s, smem, own_warp, true);
    for (int i = 0; i < s.stages; ++i) ring.fetch(i);
    ring.save();
  }
  __syncthreads();  // all lanes of a warp have saved, and each reads what it finds
  for (int i = 0; i < s.count; ++i) {
    const unsigned target = kStepBlank + static_cast<unsigned>(i) * gridDim.x;
    // What follows from them is computed again in each phase; kept over all phases it would be spilled.
    const int warp = static_cast<int>(not_hoisted(static_cast<unsigned>(own_warp))),
              lane = static_cast<int>(not_hoisted(static_cast<unsigned>(own_lane)));
    const StepPhase& phase = *reinterpret_cast<const StepPhase*>(smem + s.phase_at + (i & 1) * kStepPhaseBytes);
    step_fetch_phase(s, i + 1, smem);
    if (phase.kind == StepKind::kProduct) {
      if (threadIdx.x == kStepThreads - 1 && phase.next_norm != nullptr) step_prefetch(phase);
      step_product<T>(s, phase, smem, warp, lane, target);
    } else if (phase.attention.qkv.kv.k_dim == 64) {
      step_attention<T, 64>(s, phase.attention, smem, warp, lane, target);
    } else {
      step_attention<T, 128>(s, phase.attention, smem, warp, lane, target);
    }
    step_make_blank(phase);
    // A product has signed already where its words are all that is waited for; attention signs when it has ended.
    const bool full = phase.next_full != 0, signs = full || phase.kind == StepKind::kAttention;
    if (warp == kStepWarps - 1) cp_async_wait<0>();
    __syncthreads();
    if (threadIdx.x == 0 && i + 1 < s.count && signs)
      full ? grid_arrive_add(s.arrived) : grid_arrive_relaxed(s.arrived);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
