#pragma once
/// Weights on their way to a GPU, from the page cache to where kernels read them.
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/task_team.h"
#include "cuda/memory.h"
#include "kernels/common/store_type.h"
#include "kernels/qmatmul/a16_layout.h"
#include "quant/matrix_source.h"

namespace galvani::exec {

/// Of a dense matrix's elements as a file has them; f32 for all others.
kernels::StoreType store_type(DType type);

/// Seconds that the thread which loads the model waited, by what for; the rest of an upload's time is its own work.
struct UploadWaits {
  double memory = 0;   ///< allocating, on the device and page-locked
  double reading = 0;  ///< blocks to be filled (it helps meanwhile)
  double link = 0;     ///< copies, and packing behind them
};

/// Matrices cut into pieces of rows. A piece is read by a team of threads into one of a few pinned blocks, copied, and
/// (affine matrices) packed on the device from a staging block; reading, copying and packing of different pieces
/// overlap. Calls therefore return before their matrix is there, keep it alive as long as it is needed, and an error of
/// reading it comes from a later call, finish() at the latest; it names the matrix.
class Uploader {
 public:
  /// `expected` bytes will be asked of allocate(): taken at once. 0: unknown.
  static Result<Uploader> create(cuda::Stream& stream, int64_t expected = 0);

  /// Device memory for weights, cut from few large blocks: an allocation of its own costs as much as copying some MB.
  /// 256-byte aligned. Errors: DeviceBuffer::allocate's.
  Result<cuda::DeviceBuffer> allocate(size_t bytes);
  /// The caller's bytes, which it may forget afterwards.
  Result<cuda::DeviceBuffer> upload(std::span<const std::byte> bytes);
  /// All rows in A16 form to `out`, which holds a16_bytes() of them. A synthetic matrix is made on the device from its
  /// seed. Errors: a scale that is not finite, what reading and the device report; kUnsupported: rows larger than a
  /// piece.
  Status pack(const quant::MatrixPtr& source, const kernels::A16Format& format, unsigned char* out);
  /// All rows as elements of `type` to `out`: as they stand in the file where it has that type, else converted (a dense
  /// matrix's own type only, or f32). Errors as pack()'s.
  Status dense(const quant::MatrixPtr& source, kernels::StoreType type, std::byte* out);
  /// All rows of an affine matrix in MLX's layout, each part to its own place. Errors as pack()'s.
  Status affine(const quant::MatrixPtr& source, std::byte* codes, std::byte* scales, std::byte* biases);
  /// What is uploaded by other means: starts the clock, and counts.
  void note(int64_t bytes) { start_clock(), bytes_ += bytes; }

  /// Waits until everything is there and gives back threads, pinned and staging memory; the next upload takes them
  /// again. Errors: the first of any piece.
  Status finish();
  /// Kernels read what was uploaded in this stream, after finish().
  cuda::Stream& stream() { return *stream_; }
  /// Sent, or made on the device.
  int64_t bytes() const { return bytes_; }
  /// Wall time from the first call after the last finish() (or creation) until everything was there: what happens
  /// between calls counts, because pieces travel meanwhile.
  double seconds() const { return seconds_; }
  const UploadWaits& waits() const { return waits_; }

 private:
  /// Small blocks: together they stay in a CPU's last cache, so that filling them costs no memory traffic but reading
  /// (measured: twice the rate of 64 MiB), and pinning them costs little.
  static constexpr size_t kPiece = size_t{4} << 20, kBlocks = 6, kSmall = size_t{1} << 20;
  static constexpr size_t kSlice = size_t{256} << 10;  // that one thread reads at a time
  static constexpr size_t kSlab = size_t{16} << 20;    // of device memory, where nobody said how much it will be
  static constexpr int kMostThreads = 13;              // a link of 55 GB/s over 6 to 10 GB/s a thread, and some spare
  static constexpr size_t kAlign = 256;

  struct Block;
  /// From a filled block to the device.
  using Send = std::function<Status(Uploader&, Block&)>;
  struct Block {
    cuda::PinnedBuffer host;
    std::byte* staging = nullptr;  // on the device
    cuda::Event sent, packed;
    bool used = false, packing = false;
    std::shared_ptr<TaskTeam::Job> fill;  // until it is sent
    Send send;
  };
  /// Rows [begin, end) of a piece into its block; `host` is the block's.
  using Fill = std::function<Status(int64_t begin, int64_t end, std::byte* host)>;

  void start_clock();
  Result<Block*> next();
  /// Starts filling a piece and sends those before it that are full.
  Status piece(int64_t rows, size_t row_bytes, Fill fill, Send send);
  /// Sends filled blocks in order, waiting for them until at most `most` are left.
  Status advance(size_t most);
  Status copy(Block& block, std::byte* to, size_t at, size_t bytes);
  Status sent(Block& block);
  Status stage(Block& block);
  Status pack_rows(const quant::MatrixPtr& source, const kernels::A16Format& format, int64_t r0, int64_t r1,
                   unsigned char* out);
  Status pack_on_host(const quant::MatrixSource& source, const kernels::A16Format& format, unsigned char* out);
  Status drain();
  void release();

  cuda::Stream* stream_ = nullptr;
  cuda::Stream copies_;
  std::shared_ptr<cuda::DeviceBuffer> slab_;
  size_t slab_used_ = 0, expected_ = 0, given_ = 0;
  cuda::DeviceBuffer staging_;
  cuda::PinnedBuffer small_;  // for the caller's bytes
  cuda::Event small_sent_;
  size_t small_used_ = 0;
  std::vector<Block> blocks_;
  std::deque<Block*> filling_;  // in the order of their pieces
  size_t turn_ = 0;
  std::optional<std::chrono::steady_clock::time_point> since_;
  int64_t bytes_ = 0;
  double seconds_ = 0;
  UploadWaits waits_;
  std::unique_ptr<TaskTeam> team_;  // last: it ends before the blocks that it fills
};

}  // namespace galvani::exec
