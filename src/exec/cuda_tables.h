#pragma once
/// What kernels of a step read about the batch, in device memory: tokens, positions, sequences, block tables,
/// schedules.
///
/// Decode steps use one block at fixed addresses, so that a captured graph finds the next step's numbers where it found
/// the last one's; other steps take what they need from a second block.
#include <array>
#include <span>
#include <vector>

#include "core/error.h"
#include "cuda/memory.h"
#include "exec/batch.h"
#include "exec/state.h"
#include "kernels/attention/attention_cuda_args.h"

namespace galvani::exec {

constexpr int kMaxGraphRows = 64;
constexpr int kMaxSchedules = 8;

/// Pinned host memory and its device copy, filled from the front; one upload may be under way while nothing is written.
class UploadBlock {
 public:
  Status create(cuda::CudaDevice& device, size_t bytes, const char* tag);
  /// Waits until the last step's uploads are done, and starts from the front.
  Status begin();
  /// Copies values up and returns where they will be. `at` < 0: behind what is there; else this byte.
  template <typename T>
  Result<const T*> put(cuda::Stream& stream, std::span<const T> values, int64_t at = -1) {
    GALVANI_TRY(const void* data, put_bytes(stream, std::as_bytes(values), at));
    return static_cast<const T*>(data);
  }
  /// Marks the end of this step's uploads.
  Status end(cuda::Stream& stream);

 private:
  Result<const void*> put_bytes(cuda::Stream& stream, std::span<const std::byte> bytes, int64_t at);
  cuda::CudaDevice* device_ = nullptr;
  const char* tag_ = "";
  cuda::PinnedBuffer host_;
  cuda::DeviceBuffer buffer_;
  std::vector<std::pair<cuda::PinnedBuffer, cuda::DeviceBuffer>> outgrown_;  // until begin()
  cuda::Event done_;
  bool recorded_ = false;
  size_t used_ = 0;
};

/// Device copies of the block tables of all KV groups, brought up to date by the differences.
class BlockMirror {
 public:
  /// Sized for `state`; forgets everything when it is another one.
  Status attach(cuda::CudaDevice& device, const State& state);
  /// After reserve(): what the step's sequences changed goes up.
  Status update(cuda::Stream& stream, UploadBlock& block, const Batch& batch, const State& state);
  kernels::BlockTables tables(int group) const {
    return {groups_[static_cast<size_t>(group)].device.as<int>(), max_blocks_};
  }

 private:
  struct Group {
    std::vector<int32_t> host;  // [sequences][max_blocks]
    cuda::DeviceBuffer device;
  };
  std::vector<Group> groups_;
  int max_blocks_ = 0, sequences_ = 0;
};

}  // namespace galvani::exec
