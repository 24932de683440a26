#include "exec/cuda_tables.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace galvani::exec {

Status UploadBlock::create(cuda::CudaDevice& device, size_t bytes, const char* tag) {
  device_ = &device;
  tag_ = tag;
  GALVANI_TRY(host_, cuda::PinnedBuffer::allocate(device, bytes, tag));
  GALVANI_TRY(buffer_, cuda::DeviceBuffer::allocate(device, bytes, tag));
  GALVANI_TRY(done_, cuda::Event::create(device));
  return {};
}

Status UploadBlock::begin(const cuda::Stream& stream) {
  // Who sampled a token has waited for the whole stream.
  if (recorded_ && stream.synchronised() == synchronised_) GALVANI_TRY_VOID(done_.synchronize());
  recorded_ = false;
  outgrown_.clear();
  used_ = 0;
  return {};
}

Status UploadBlock::end(cuda::Stream& stream) {
  if (used_ == 0) return {};
  GALVANI_TRY_VOID(stream.record(done_));
  recorded_ = true;
  synchronised_ = stream.synchronised();
  return {};
}

Status UploadBlock::upload(cuda::Stream& stream) { return stream.to_device(buffer_.data(), host_.data(), used_); }

Result<const void*> UploadBlock::place_bytes(std::span<const std::byte> bytes, size_t at) {
  if (at + bytes.size() > host_.size())
    return fail(ErrorCode::kInternal, "a fixed table of {} bytes at {} does not fit", bytes.size(), at);
  std::memcpy(host_.as<std::byte>() + at, bytes.data(), bytes.size());
  used_ = std::max(used_, at + bytes.size());
  return buffer_.as<std::byte>() + at;
}

Result<const void*> UploadBlock::put_bytes(cuda::Stream& stream, std::span<const std::byte> bytes) {
  const size_t offset = (used_ + 255) / 256 * 256;
  if (offset + bytes.size() > host_.size()) {
    // What kernels of this step were given stays where it is until the next step.
    const size_t size = std::max(2 * host_.size(), bytes.size());
    GALVANI_TRY(auto host, cuda::PinnedBuffer::allocate(*device_, size, tag_));
    GALVANI_TRY(auto buffer, cuda::DeviceBuffer::allocate(*device_, size, tag_));
    outgrown_.emplace_back(std::move(host_), std::move(buffer_));
    host_ = std::move(host);
    buffer_ = std::move(buffer);
    used_ = 0;
    return put_bytes(stream, bytes);
  }
  if (!bytes.empty()) std::memcpy(host_.as<std::byte>() + offset, bytes.data(), bytes.size());
  used_ = offset + bytes.size();
  std::byte* to = buffer_.as<std::byte>() + offset;
  if (!bytes.empty()) GALVANI_TRY_VOID(stream.to_device(to, host_.as<std::byte>() + offset, bytes.size()));
  return to;
}

Status BlockMirror::attach(cuda::CudaDevice& device, const State& state) {
  const auto pages = static_cast<int>((state.options().context + kernels::kPageTokens - 1) / kernels::kPageTokens);
  const int sequences = state.options().max_sequences;
  const size_t groups = state.spec().groups.size();
  if (pages == max_blocks_ && sequences == sequences_ && groups == groups_.size()) return {};
  groups_.clear();
  groups_.resize(groups);
  max_blocks_ = pages;
  sequences_ = sequences;
  for (Group& group : groups_) {
    group.host.assign(static_cast<size_t>(pages) * static_cast<size_t>(sequences), -2);  // as no page is
    GALVANI_TRY(group.device, cuda::DeviceBuffer::allocate(device, group.host.size() * 4, "block tables"));
  }
  return {};
}

Status BlockMirror::update(cuda::Stream& stream, UploadBlock& block, const Batch& batch, const State& state) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    for (const Chunk& chunk : batch.chunks) {
      const auto blocks = state.blocks(chunk.sequence, static_cast<int>(g));
      const size_t row = static_cast<size_t>(chunk.sequence) * static_cast<size_t>(max_blocks_);
      const auto [here, there] =
          std::mismatch(blocks.begin(), blocks.end(), group.host.begin() + static_cast<std::ptrdiff_t>(row));
      if (here == blocks.end()) continue;
      const auto first = static_cast<size_t>(here - blocks.begin());
      const auto changed = blocks.subspan(first);
      std::copy(changed.begin(), changed.end(), there);
      GALVANI_TRY(const int32_t* staged, block.put(stream, changed));
      GALVANI_TRY_VOID(stream.on_device(group.device.as<int32_t>() + row + first, staged, changed.size_bytes()));
    }
  }
  return {};
}

}  // namespace galvani::exec
