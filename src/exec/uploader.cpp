#include "exec/uploader.h"

#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul/a16_pack_cuda.h"

namespace galvani::exec {
namespace {

using kernels::StoreType;
using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

/// Adds its life to a total.
class Wait {
 public:
  explicit Wait(double& total) : total_(total) {}
  ~Wait() { total_ += seconds_since(start_); }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  double& total_;
  steady_clock::time_point start_ = steady_clock::now();
};

constexpr size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/// Where rows of an affine matrix lie in a block.
struct RowLayout {
  size_t code_bytes = 0, pair_bytes = 0;  // of a row
  size_t scales_at = 0, biases_at = 0, bytes = 0;
  size_t row_bytes() const { return code_bytes + 2 * pair_bytes; }
};
RowLayout layout_of(const quant::MatrixSource& source, int64_t rows) {
  const auto count = static_cast<size_t>(rows);
  RowLayout layout;
  layout.code_bytes = static_cast<size_t>(source.cols() * source.bits() / 8);
  layout.pair_bytes = static_cast<size_t>(source.cols() / source.group() * dtype_bytes(source.dtype()));
  layout.scales_at = rounded(count * layout.code_bytes, 256);
  layout.biases_at = rounded(layout.scales_at + count * layout.pair_bytes, 256);
  layout.bytes = layout.biases_at + count * layout.pair_bytes;
  return layout;
}

Status read_affine(const quant::MatrixSource& source, int64_t r0, int64_t begin, int64_t end, const RowLayout& layout,
                   std::byte* host) {
  const auto first = static_cast<size_t>(begin);
  return source.read_affine(r0 + begin, r0 + end, host + first * layout.code_bytes,
                            host + layout.scales_at + first * layout.pair_bytes,
                            host + layout.biases_at + first * layout.pair_bytes);
}

Status read_dense(const quant::MatrixSource& source, int64_t r0, int64_t r1, StoreType type, std::byte* out) {
  if (source.kind() == quant::MatrixKind::kDense && type == store_type(source.dtype())) {
    GALVANI_TRY(const bool read, source.read_dense(r0, r1, out));
    if (read) return {};
  }
  if (type == StoreType::kF32) return source.dequant_rows(r0, r1, reinterpret_cast<float*>(out));
  // Rows in another order than the file's: f32 and back is exact.
  std::vector<float> values(static_cast<size_t>((r1 - r0) * source.cols()));
  GALVANI_TRY_VOID(source.dequant_rows(r0, r1, values.data()));
  auto* to = reinterpret_cast<uint16_t*>(out);
  for (size_t i = 0; i < values.size(); ++i)
    to[i] = type == StoreType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
  return {};
}

tl::unexpected<Error> too_wide(const quant::MatrixSource& source, int64_t rows) {
  return fail(ErrorCode::kUnsupported, "{}: {} rows of {} columns do not fit the upload's pieces", source.name(), rows,
              source.cols());
}

}  // namespace

StoreType store_type(DType type) {
  return type == DType::kF16 ? StoreType::kF16 : type == DType::kBF16 ? StoreType::kBF16 : StoreType::kF32;
}

Result<Uploader> Uploader::create(cuda::Stream& stream, int64_t expected) {
  Uploader uploader;
  uploader.stream_ = &stream;
  uploader.expected_ = static_cast<size_t>(std::max<int64_t>(expected, 0));
  GALVANI_TRY(uploader.copies_, cuda::Stream::create(stream.device()));
  GALVANI_TRY(uploader.small_sent_, cuda::Event::create(stream.device()));
  uploader.blocks_.resize(kBlocks);
  for (Block& block : uploader.blocks_) {
    GALVANI_TRY(block.sent, cuda::Event::create(stream.device()));
    GALVANI_TRY(block.packed, cuda::Event::create(stream.device()));
  }
  return uploader;
}

void Uploader::start_clock() {
  if (!since_) since_ = steady_clock::now();
}

Result<cuda::DeviceBuffer> Uploader::allocate(size_t bytes) {
  if (bytes == 0) return cuda::DeviceBuffer();
  start_clock();
  const size_t taken = rounded(bytes, kAlign);
  if (slab_ == nullptr || taken > slab_->size() - slab_used_) {
    const Wait wait(waits_.memory);
    const size_t rest = expected_ > given_ ? expected_ - given_ : 0;
    GALVANI_TRY(auto slab, cuda::DeviceBuffer::allocate(stream_->device(), std::max({taken, rest, kSlab}), "weights"));
    slab_ = std::make_shared<cuda::DeviceBuffer>(std::move(slab));
    slab_used_ = 0;
  }
  auto buffer = cuda::DeviceBuffer::part(slab_, slab_used_, bytes);
  slab_used_ += taken;
  given_ += taken;
  return buffer;
}

Result<cuda::DeviceBuffer> Uploader::upload(std::span<const std::byte> bytes) {
  start_clock();
  GALVANI_TRY(auto buffer, allocate(bytes.size()));
  if (small_.size() == 0) {
    const Wait wait(waits_.memory);
    GALVANI_TRY(small_, cuda::PinnedBuffer::allocate(stream_->device(), kSmall, "upload"));
  }
  for (size_t at = 0; at < bytes.size();) {
    if (small_used_ == kSmall) {
      const Wait wait(waits_.link);
      GALVANI_TRY_VOID(small_sent_.synchronize());
      small_used_ = 0;
    }
    const size_t count = std::min(bytes.size() - at, kSmall - small_used_);
    std::byte* const host = small_.as<std::byte>() + small_used_;
    std::memcpy(host, bytes.data() + at, count);
    GALVANI_TRY_VOID(copies_.to_device(buffer.as<std::byte>() + at, host, count));
    GALVANI_TRY_VOID(copies_.record(small_sent_));
    GALVANI_TRY_VOID(stream_->wait(small_sent_));
    small_used_ += count, at += count;
    bytes_ += static_cast<int64_t>(count);
  }
  return buffer;
}

// --- pieces ---------------------------------------------------------------------------------------------------------

Result<Uploader::Block*> Uploader::next() {
  start_clock();
  turn_ = (turn_ + 1) % blocks_.size();
  Block& block = blocks_[turn_];
  while (block.fill != nullptr) GALVANI_TRY_VOID(advance(filling_.size() - 1));
  if (block.host.size() == 0) {
    const Wait wait(waits_.memory);
    GALVANI_TRY(block.host, cuda::PinnedBuffer::allocate(stream_->device(), kPiece, "upload"));
  }
  if (block.used) {
    const Wait wait(waits_.link);
    GALVANI_TRY_VOID(block.sent.synchronize());
  }
  return &block;
}

Status Uploader::piece(int64_t rows, size_t row_bytes, Fill fill, Send send) {
  GALVANI_TRY(Block * block, next());
  if (team_ == nullptr) team_ = std::make_unique<TaskTeam>(std::min(threads(), kMostThreads));
  const auto step = static_cast<int64_t>(std::max<size_t>(1, kSlice / std::max<size_t>(row_bytes, 1)));
  std::byte* const host = block->host.as<std::byte>();
  block->send = std::move(send);
  block->fill = team_->start((rows + step - 1) / step, [rows, step, host, fill = std::move(fill)](int64_t i) {
    return fill(i * step, std::min(rows, (i + 1) * step), host);
  });
  filling_.push_back(block);
  return advance(kBlocks / 2);
}

Status Uploader::advance(size_t most) {
  while (!filling_.empty() && (filling_.size() > most || TaskTeam::done(*filling_.front()->fill))) {
    Block& block = *filling_.front();
    filling_.pop_front();
    const auto fill = std::move(block.fill);
    const auto send = std::move(block.send);
    block.fill = nullptr, block.send = nullptr;
    {
      const Wait wait(waits_.reading);
      GALVANI_TRY_VOID(team_->wait(*fill));
    }
    GALVANI_TRY_VOID(send(*this, block));
  }
  return {};
}

Status Uploader::copy(Block& block, std::byte* to, size_t at, size_t bytes) {
  bytes_ += static_cast<int64_t>(bytes);
  return copies_.to_device(to, block.host.as<std::byte>() + at, bytes);
}

Status Uploader::sent(Block& block) {
  GALVANI_TRY_VOID(copies_.record(block.sent));
  GALVANI_TRY_VOID(stream_->wait(block.sent));
  block.used = true;
  return {};
}

/// Makes the block's staging memory ready to be written by copies_.
Status Uploader::stage(Block& block) {
  if (staging_.size() == 0) {
    const Wait wait(waits_.memory);
    GALVANI_TRY(staging_, cuda::DeviceBuffer::allocate(stream_->device(), kBlocks * kPiece, "upload"));
    for (size_t i = 0; i < kBlocks; ++i) blocks_[i].staging = staging_.as<std::byte>() + i * kPiece;
  }
  return block.packing ? copies_.wait(block.packed) : Status{};
}

Status Uploader::finish() {
  Status done = drain();
  if (since_) seconds_ += seconds_since(*since_);
  since_.reset();
  release();
  return done;
}

Status Uploader::drain() {
  GALVANI_TRY_VOID(advance(0));
  const Wait wait(waits_.link);
  GALVANI_TRY_VOID(copies_.synchronize());
  return stream_->synchronize();
}

void Uploader::release() {
  team_.reset();
  filling_.clear();
  for (Block& block : blocks_) {
    block.fill.reset(), block.send = nullptr;
    block.host.reset();
    block.staging = nullptr;
    block.used = block.packing = false;
  }
  staging_.reset();
  small_.reset();
  small_used_ = 0;
  slab_.reset();
}

// --- what is sent ---------------------------------------------------------------------------------------------------

Status Uploader::dense(const quant::MatrixPtr& source, StoreType type, std::byte* out) {
  const size_t row_bytes = static_cast<size_t>(source->cols()) * static_cast<size_t>(kernels::store_bytes(type));
  const auto most = static_cast<int64_t>(kPiece / std::max<size_t>(row_bytes, 1));
  if (most == 0) return too_wide(*source, 1);
  for (int64_t r = 0; r < source->rows(); r += most) {
    const int64_t rows = std::min(most, source->rows() - r);
    const size_t bytes = static_cast<size_t>(rows) * row_bytes;
    std::byte* const to = out + static_cast<size_t>(r) * row_bytes;
    Fill fill = [source, type, r, row_bytes](int64_t begin, int64_t end, std::byte* host) {
      return read_dense(*source, r + begin, r + end, type, host + static_cast<size_t>(begin) * row_bytes);
    };
    Send send = [to, bytes](Uploader& self, Block& block) -> Status {
      GALVANI_TRY_VOID(self.copy(block, to, 0, bytes));
      return self.sent(block);
    };
    GALVANI_TRY_VOID(piece(rows, row_bytes, std::move(fill), std::move(send)));
  }
  return {};
}

Status Uploader::affine(const quant::MatrixPtr& source, std::byte* codes, std::byte* scales, std::byte* biases) {
  const auto most = static_cast<int64_t>(kPiece / layout_of(*source, 16).bytes) * 16;
  if (most == 0) return too_wide(*source, 16);
  for (int64_t r = 0; r < source->rows(); r += most) {
    const int64_t rows = std::min(most, source->rows() - r);
    const RowLayout layout = layout_of(*source, rows);
    const auto first = static_cast<size_t>(r), count = static_cast<size_t>(rows);
    Fill fill = [source, r, layout](int64_t begin, int64_t end, std::byte* host) {
      return read_affine(*source, r, begin, end, layout, host);
    };
    Send send = [layout, first, count, codes, scales, biases](Uploader& self, Block& block) -> Status {
      const size_t pairs = count * layout.pair_bytes, pairs_at = first * layout.pair_bytes;
      GALVANI_TRY_VOID(self.copy(block, codes + first * layout.code_bytes, 0, count * layout.code_bytes));
      GALVANI_TRY_VOID(self.copy(block, scales + pairs_at, layout.scales_at, pairs));
      GALVANI_TRY_VOID(self.copy(block, biases + pairs_at, layout.biases_at, pairs));
      return self.sent(block);
    };
    GALVANI_TRY_VOID(piece(rows, layout.row_bytes(), std::move(fill), std::move(send)));
  }
  return {};
}

Status Uploader::pack(const quant::MatrixPtr& source, const kernels::A16Format& format, unsigned char* out) {
  start_clock();
  const int64_t rows = source->rows(), cols = source->cols();
  if (const quant::SyntheticWords* words = source->synthetic()) {
    kernels::A16PackArgs args = kernels::a16_pack_args(format, static_cast<int>(rows), static_cast<int>(cols));
    args.synthetic = *words;
    args.out = out;
    bytes_ += kernels::a16_bytes(format, rows, cols);
    return kernels::a16_pack_cuda(*stream_, format.bits, args);
  }
  const auto most = static_cast<int64_t>(kPiece / layout_of(*source, kernels::kA16Rows).bytes) * kernels::kA16Rows;
  if (!kernels::a16_packs_on_device(cols) || most == 0) return pack_on_host(*source, format, out);
  const int64_t tile_bytes = kernels::a16_bytes(format, kernels::kA16Rows, cols);
  for (int64_t r = 0; r < rows; r += most)
    GALVANI_TRY_VOID(pack_rows(source, format, r, std::min(rows, r + most), out + r / kernels::kA16Rows * tile_bytes));
  return {};
}

Status Uploader::pack_rows(const quant::MatrixPtr& source, const kernels::A16Format& format, int64_t r0, int64_t r1,
                           unsigned char* out) {
  const RowLayout layout = layout_of(*source, r1 - r0);
  kernels::A16PackArgs args =
      kernels::a16_pack_args(format, static_cast<int>(r1 - r0), static_cast<int>(source->cols()));
  args.out = out;
  return piece(
      r1 - r0, layout.row_bytes(),
      [source, r0, layout](int64_t begin, int64_t end, std::byte* host) {
        return read_affine(*source, r0, begin, end, layout, host);
      },
      [layout, args, bits = format.bits](Uploader& self, Block& block) -> Status {
        GALVANI_TRY_VOID(self.stage(block));
        GALVANI_TRY_VOID(self.copy(block, block.staging, 0, layout.bytes));
        GALVANI_TRY_VOID(self.sent(block));
        kernels::A16PackArgs here = args;
        here.codes = reinterpret_cast<const unsigned*>(block.staging);
        here.scales = block.staging + layout.scales_at;
        here.biases = block.staging + layout.biases_at;
        GALVANI_TRY_VOID(kernels::a16_pack_cuda(*self.stream_, bits, here));
        GALVANI_TRY_VOID(self.stream_->record(block.packed));
        block.packing = true;
        return {};
      });
}

/// Rows whose code streams are no whole words.
Status Uploader::pack_on_host(const quant::MatrixSource& source, const kernels::A16Format& format, unsigned char* out) {
  const int64_t tile_bytes = kernels::a16_bytes(format, kernels::kA16Rows, source.cols());
  const int64_t most = static_cast<int64_t>(kPiece) / tile_bytes * kernels::kA16Rows;
  if (most == 0) return too_wide(source, kernels::kA16Rows);
  for (int64_t r = 0; r < source.rows(); r += most) {
    const int64_t end = std::min(source.rows(), r + most);
    const auto bytes = static_cast<size_t>(kernels::a16_bytes(format, end - r, source.cols()));
    GALVANI_TRY(Block * block, next());
    {
      const Wait wait(waits_.reading);
      GALVANI_TRY_VOID(kernels::a16_pack(source, r, end, {block->host.as<std::byte>(), bytes}));
    }
    GALVANI_TRY_VOID(copy(*block, reinterpret_cast<std::byte*>(out) + r / kernels::kA16Rows * tile_bytes, 0, bytes));
    GALVANI_TRY_VOID(sent(*block));
  }
  return {};
}

}  // namespace galvani::exec
