#pragma once
/// Weights on a GPU: uploaded once at load through pinned memory, named by handles.
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "cuda/memory.h"
#include "exec/layers.h"
#include "kernels/common/store_type.h"
#include "kernels/qmatmul/qmatmul_cuda.h"
#include "quant/matrix_source.h"

namespace galvani::exec {

/// Copies host bytes to new device buffers through two pinned blocks, one filled while the other travels.
class Uploader {
 public:
  static Result<Uploader> create(cuda::Stream& stream);
  /// `bytes` of device memory, filled piece by piece: fill(offset, span) writes the bytes from `offset` on.
  template <typename Fill>
  Result<cuda::DeviceBuffer> upload(size_t bytes, const char* tag, size_t piece_multiple, const Fill& fill) {
    const auto start = std::chrono::steady_clock::now();
    GALVANI_TRY(auto buffer, cuda::DeviceBuffer::allocate(stream_->device(), bytes, tag));
    const size_t piece = kPiece / piece_multiple * piece_multiple;
    if (piece == 0)
      return fail(ErrorCode::kUnsupported, "a row of {} bytes does not fit the upload's pieces", piece_multiple);
    for (size_t at = 0; at < bytes; at += piece) {
      const size_t count = std::min(piece, bytes - at);
      GALVANI_TRY(std::byte * block, next());
      GALVANI_TRY_VOID(fill(at, std::span<std::byte>(block, count)));
      GALVANI_TRY_VOID(send(buffer.as<std::byte>() + at, count));
    }
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return buffer;
  }
  Result<cuda::DeviceBuffer> upload(std::span<const std::byte> bytes, const char* tag);
  /// Waits for what is on its way and gives the pinned memory back; the next upload takes it again.
  Status finish();
  cuda::Stream& stream() { return *stream_; }
  /// Counts an upload that went another way.
  void note(int64_t bytes, double seconds) { bytes_ += bytes, seconds_ += seconds; }
  int64_t bytes() const { return bytes_; }
  /// Reading, packing and copying together.
  double seconds() const { return seconds_; }

 private:
  static constexpr size_t kPiece = size_t{32} << 20;
  Result<std::byte*> next();
  Status send(std::byte* to, size_t bytes);
  cuda::Stream* stream_ = nullptr;
  cuda::PinnedBuffer blocks_[2];
  cuda::Event sent_[2];
  bool used_[2] = {false, false};
  int turn_ = 0;
  int64_t bytes_ = 0;
  double seconds_ = 0;
};

/// Some rows of a Linear, in one form: packed codes, or dense.
struct CudaSegment {
  std::optional<kernels::CudaMatrix> packed;
  cuda::DeviceBuffer dense;
  kernels::StoreType type = kernels::StoreType::kF32;  ///< of dense elements
  int64_t first_row = 0, rows = 0;
};

struct CudaLinear {
  std::string name;
  std::vector<CudaSegment> segments;
  cuda::DeviceBuffer bias;  ///< [rows] f32, or empty
  int64_t rows = 0, cols = 0, bytes = 0;
  const float* bias_data() const { return bias.as<float>(); }
};
/// Parts of one format become one matrix, so that a product is one launch.
Result<CudaLinear> upload_linear(Uploader& uploader, const std::string& name, std::span<const LinearPart> parts);

/// An embedding table: dense, or affine codes in MLX's layout.
struct CudaTable {
  cuda::DeviceBuffer codes, scales, biases;
  kernels::StoreType type = kernels::StoreType::kF32;
  int bits = 0, group = 0;
  int64_t rows = 0, cols = 0, bytes = 0;
};
Result<CudaTable> upload_table(Uploader& uploader, const quant::MatrixSource& source);

}  // namespace galvani::exec
