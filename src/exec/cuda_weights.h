#pragma once
/// Weights on a GPU: uploaded once at load through pinned memory, named by handles.
#include <algorithm>
#include <array>
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

/// Host bytes to the device, through four pinned blocks: while some travel, CPU threads fill the next one. What is to
/// be packed for the matrix kernels travels as the checkpoint has it and is packed on the device beside the next
/// copies.
class Uploader {
 public:
  static Result<Uploader> create(cuda::Stream& stream);
  /// `bytes` of device memory, filled piece by piece: fill(offset, span) writes the bytes from `offset` on.
  template <typename Fill>
  Result<cuda::DeviceBuffer> upload(size_t bytes, const char* tag, size_t piece_multiple, const Fill& fill) {
    const Clock clock(*this);
    GALVANI_TRY(auto buffer, cuda::DeviceBuffer::allocate(stream_->device(), bytes, tag));
    const size_t piece = kPiece / piece_multiple * piece_multiple;
    if (piece == 0)
      return fail(ErrorCode::kUnsupported, "a row of {} bytes does not fit the upload's pieces", piece_multiple);
    for (size_t at = 0; at < bytes; at += piece) {
      const size_t count = std::min(piece, bytes - at);
      GALVANI_TRY(Block * block, next());
      GALVANI_TRY_VOID(fill(at, std::span<std::byte>(block->host.as<std::byte>(), count)));
      GALVANI_TRY_VOID(send(*block, buffer.as<std::byte>() + at, count));
    }
    return buffer;
  }
  Result<cuda::DeviceBuffer> upload(std::span<const std::byte> bytes, const char* tag);
  /// All rows of an affine matrix in A16 form to `out`, which holds a16_bytes() of them. A synthetic matrix is made on
  /// the device from its seed. Errors: a scale that is not finite, what reading and the device report.
  Status pack(const quant::MatrixSource& source, const kernels::A16Format& format, unsigned char* out);
  /// What was uploaded by other means, for bytes() and seconds().
  void note(int64_t bytes, double seconds) { bytes_ += bytes, seconds_ += seconds; }
  /// Waits for what is on its way and gives the pinned memory back; the next upload takes it again.
  Status finish();
  /// Work put here comes after all uploads so far.
  cuda::Stream& stream() { return *stream_; }
  /// Sent, or made on the device.
  int64_t bytes() const { return bytes_; }
  /// Reading, packing and copying together, until finish().
  double seconds() const { return seconds_; }

 private:
  static constexpr size_t kPiece = size_t{16} << 20;
  struct Block {
    cuda::PinnedBuffer host;
    cuda::DeviceBuffer staging;  // of rows on their way to be packed
    cuda::Event sent, packed;
    bool used = false, packing = false;
  };
  /// Adds its life to seconds().
  class Clock {
   public:
    explicit Clock(Uploader& uploader) : uploader_(uploader) {}
    ~Clock() { uploader_.seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
    Clock(const Clock&) = delete;
    Clock& operator=(const Clock&) = delete;

   private:
    Uploader& uploader_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };
  Result<Block*> next();
  Status send(Block& block, std::byte* to, size_t bytes);
  Status pack_rows(const quant::MatrixSource& source, const kernels::A16Format& format, int64_t r0, int64_t r1,
                   unsigned char* out);
  Status pack_on_host(const quant::MatrixSource& source, const kernels::A16Format& format, unsigned char* out);

  cuda::Stream* stream_ = nullptr;
  cuda::Stream copies_;
  std::array<Block, 4> blocks_;
  size_t turn_ = 0;
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
