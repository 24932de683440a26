#pragma once
/// What kernels of a step read about the batch, in device memory: tokens, positions, sequences, block tables,
/// schedules.
///
/// Decode steps use one block at fixed addresses, so that a captured graph, which begins with the copy of all of it,
/// finds the next step's numbers where it found the last one's; other steps take what they need from a second block.
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

/// Bytes of one of a decode step's tables: `count` ints, in whole 16 bytes.
constexpr size_t table_bytes(int64_t count) { return static_cast<size_t>((count + 3) / 4 * 16); }

/// Pinned host memory and its device copy, filled from the front.
class UploadBlock {
 public:
  Status create(cuda::CudaDevice& device, size_t bytes, const char* tag);
  /// Waits until the last step's uploads are done, and starts from the front.
  Status begin(const cuda::Stream& stream);
  /// Copies values up, behind what is there, and returns where they will be.
  template <typename T>
  Result<const T*> put(cuda::Stream& stream, std::span<const T> values) {
    GALVANI_TRY(const void* data, put_bytes(stream, std::as_bytes(values)));
    return static_cast<const T*>(data);
  }
  /// Writes values at byte `at` of the host's half and returns where upload() will bring them.
  template <typename T>
  Result<const T*> place(std::span<const T> values, size_t at) {
    GALVANI_TRY(const void* data, place_bytes(std::as_bytes(values), at));
    return static_cast<const T*>(data);
  }
  /// Copies everything up to the last placed byte. Captured, it copies what then stands there.
  Status upload(cuda::Stream& stream);
  /// After the last copy that reads the host's half so far: begin() waits for it.
  Status end(cuda::Stream& stream);

 private:
  Result<const void*> put_bytes(cuda::Stream& stream, std::span<const std::byte> bytes);
  Result<const void*> place_bytes(std::span<const std::byte> bytes, size_t at);
  cuda::CudaDevice* device_ = nullptr;
  const char* tag_ = "";
  cuda::PinnedBuffer host_;
  cuda::DeviceBuffer buffer_;
  std::vector<std::pair<cuda::PinnedBuffer, cuda::DeviceBuffer>> outgrown_;  // until begin()
  cuda::Event done_;
  bool recorded_ = false;
  uint64_t synchronised_ = 0;  // of the stream, when recorded
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
