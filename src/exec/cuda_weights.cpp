#include "exec/cuda_weights.h"

#include <cstring>
#include <mutex>

#include "core/log.h"
#include "core/parallel.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul/a16_pack_cuda.h"

namespace galvani::exec {
namespace {

using kernels::StoreType;

StoreType store_type(DType type) {
  return type == DType::kF16 ? StoreType::kF16 : type == DType::kBF16 ? StoreType::kBF16 : StoreType::kF32;
}

/// memcpy by all threads: one reads the page cache at a quarter of a link's rate.
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  parallel_for(static_cast<int64_t>(bytes), int64_t{1} << 18, [&](int64_t begin, int64_t end, int) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

/// All rows of a matrix as they stand when it is dense, else dequantised to f32.
Result<cuda::DeviceBuffer> upload_dense(Uploader& uploader, const quant::MatrixSource& source, const char* tag,
                                        StoreType& type) {
  const auto cols = static_cast<size_t>(source.cols());
  const bool dense = source.kind() == quant::MatrixKind::kDense;
  type = dense ? store_type(source.dtype()) : StoreType::kF32;
  const size_t row_bytes = cols * static_cast<size_t>(store_bytes(type));
  return uploader.upload(static_cast<size_t>(source.rows()) * row_bytes, tag, row_bytes,
                         [&](size_t at, std::span<std::byte> out) -> Status {
                           const auto first = static_cast<int64_t>(at / row_bytes);
                           const auto last = first + static_cast<int64_t>(out.size() / row_bytes);
                           if (dense) {
                             const auto raw = source.dense_rows(first, last);
                             if (!raw.empty()) {
                               copy_bytes(out.data(), raw.data(), out.size());
                               return {};
                             }
                           }
                           if (type == StoreType::kF32)
                             return source.dequant_rows(first, last, reinterpret_cast<float*>(out.data()));
                           // Rows in another order than the file's: f32 and back is exact.
                           std::vector<float> values(static_cast<size_t>(last - first) * cols);
                           GALVANI_TRY_VOID(source.dequant_rows(first, last, values.data()));
                           auto* to = reinterpret_cast<uint16_t*>(out.data());
                           for (size_t i = 0; i < values.size(); ++i)
                             to[i] = type == StoreType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
                           return {};
                         });
}

}  // namespace

Result<Uploader> Uploader::create(cuda::Stream& stream) {
  Uploader uploader;
  uploader.stream_ = &stream;
  GALVANI_TRY(uploader.copies_, cuda::Stream::create(stream.device()));
  for (Block& block : uploader.blocks_) {
    GALVANI_TRY(block.sent, cuda::Event::create(stream.device()));
    GALVANI_TRY(block.packed, cuda::Event::create(stream.device()));
  }
  return uploader;
}

Result<Uploader::Block*> Uploader::next() {
  turn_ = (turn_ + 1) % blocks_.size();
  Block& block = blocks_[turn_];
  if (block.host.size() == 0) {
    GALVANI_TRY(block.host, cuda::PinnedBuffer::allocate(stream_->device(), kPiece, "upload"));
  }
  if (block.used) GALVANI_TRY_VOID(block.sent.synchronize());
  return &block;
}

Status Uploader::send(Block& block, std::byte* to, size_t bytes) {
  GALVANI_TRY_VOID(copies_.to_device(to, block.host.data(), bytes));
  GALVANI_TRY_VOID(copies_.record(block.sent));
  GALVANI_TRY_VOID(stream_->wait(block.sent));
  block.used = true;
  bytes_ += static_cast<int64_t>(bytes);
  return {};
}

Result<cuda::DeviceBuffer> Uploader::upload(std::span<const std::byte> bytes, const char* tag) {
  return upload(bytes.size(), tag, 1, [&](size_t at, std::span<std::byte> out) -> Status {
    copy_bytes(out.data(), bytes.data() + at, out.size());
    return {};
  });
}

Status Uploader::finish() {
  const Clock clock(*this);
  GALVANI_TRY_VOID(copies_.synchronize());
  GALVANI_TRY_VOID(stream_->synchronize());
  for (Block& block : blocks_) {
    block.host.reset();
    block.staging.reset();
    block.used = block.packing = false;
  }
  return {};
}

namespace {

/// Where rows of an affine matrix lie in a staging block.
struct RowLayout {
  size_t code_bytes = 0, pair_bytes = 0;  // of a row
  size_t scales_at = 0, biases_at = 0, bytes = 0;
};
RowLayout layout_of(const kernels::A16Format& format, int64_t rows, int64_t cols) {
  const auto up = [](size_t n) { return (n + 255) / 256 * 256; };
  RowLayout layout;
  layout.code_bytes = static_cast<size_t>(cols * format.bits / 8);
  layout.pair_bytes =
      static_cast<size_t>(cols / format.group) * static_cast<size_t>(kernels::a16_pair_bytes(format.scale) / 2);
  layout.scales_at = up(static_cast<size_t>(rows) * layout.code_bytes);
  layout.biases_at = up(layout.scales_at + static_cast<size_t>(rows) * layout.pair_bytes);
  layout.bytes = layout.biases_at + static_cast<size_t>(rows) * layout.pair_bytes;
  return layout;
}

/// Rows [r0, r1) to `out` by all threads.
Status gather_rows(const quant::MatrixSource& source, int64_t r0, int64_t r1, const RowLayout& layout, std::byte* out) {
  std::mutex mutex;
  Status result;
  const auto gather = [&](int64_t begin, int64_t end) -> Status {
    GALVANI_TRY(quant::AffineView view, source.affine_in_place(r0 + begin, r0 + end));
    quant::AffineTensor converted;
    if (view.codes == nullptr) {
      GALVANI_TRY(converted, source.affine(r0 + begin, r0 + end, 0, source.cols()));
      view = converted.view;
    }
    const auto rows = static_cast<size_t>(end - begin), first = static_cast<size_t>(begin);
    std::memcpy(out + first * layout.code_bytes, view.codes, rows * layout.code_bytes);
    std::memcpy(out + layout.scales_at + first * layout.pair_bytes, view.scales, rows * layout.pair_bytes);
    std::memcpy(out + layout.biases_at + first * layout.pair_bytes, view.biases, rows * layout.pair_bytes);
    return {};
  };
  parallel_for(r1 - r0, 16, [&](int64_t begin, int64_t end, int) {
    Status done = gather(begin, end);
    const std::lock_guard lock(mutex);
    if (!done && result) result = std::move(done);
  });
  return result;
}

}  // namespace

Status Uploader::pack(const quant::MatrixSource& source, const kernels::A16Format& format, unsigned char* out) {
  const Clock clock(*this);
  const int64_t rows = source.rows(), cols = source.cols();
  if (const quant::SyntheticWords* words = source.synthetic()) {
    kernels::A16PackArgs args = kernels::a16_pack_args(format, static_cast<int>(rows), static_cast<int>(cols));
    args.synthetic = *words;
    args.out = out;
    bytes_ += kernels::a16_bytes(format, rows, cols);
    return kernels::a16_pack_cuda(*stream_, format.bits, args);
  }
  const auto most = static_cast<int64_t>(kPiece / layout_of(format, kernels::kA16Rows, cols).bytes) * kernels::kA16Rows;
  if (!kernels::a16_packs_on_device(cols) || most == 0) return pack_on_host(source, format, out);
  const int64_t tile_bytes = kernels::a16_bytes(format, kernels::kA16Rows, cols);
  for (int64_t r = 0; r < rows; r += most)
    GALVANI_TRY_VOID(pack_rows(source, format, r, std::min(rows, r + most), out + r / kernels::kA16Rows * tile_bytes));
  return {};
}

Status Uploader::pack_rows(const quant::MatrixSource& source, const kernels::A16Format& format, int64_t r0, int64_t r1,
                           unsigned char* out) {
  const RowLayout layout = layout_of(format, r1 - r0, source.cols());
  GALVANI_TRY(Block * block, next());
  if (block->staging.size() == 0) {
    GALVANI_TRY(block->staging, cuda::DeviceBuffer::allocate(stream_->device(), kPiece, "upload"));
  }
  if (block->packing) GALVANI_TRY_VOID(copies_.wait(block->packed));
  GALVANI_TRY_VOID(gather_rows(source, r0, r1, layout, block->host.as<std::byte>()));
  const std::byte* rows = block->staging.as<std::byte>();
  GALVANI_TRY_VOID(send(*block, block->staging.as<std::byte>(), layout.bytes));
  kernels::A16PackArgs args =
      kernels::a16_pack_args(format, static_cast<int>(r1 - r0), static_cast<int>(source.cols()));
  args.codes = reinterpret_cast<const unsigned*>(rows);
  args.scales = rows + layout.scales_at;
  args.biases = rows + layout.biases_at;
  args.out = out;
  GALVANI_TRY_VOID(kernels::a16_pack_cuda(*stream_, format.bits, args));
  GALVANI_TRY_VOID(stream_->record(block->packed));
  block->packing = true;
  return {};
}

/// Rows whose code streams are no whole words.
Status Uploader::pack_on_host(const quant::MatrixSource& source, const kernels::A16Format& format, unsigned char* out) {
  const int64_t tile_bytes = kernels::a16_bytes(format, kernels::kA16Rows, source.cols());
  const int64_t most = static_cast<int64_t>(kPiece) / tile_bytes * kernels::kA16Rows;
  if (most == 0)
    return fail(ErrorCode::kUnsupported, "{}: 16 rows of {} columns do not fit the upload's pieces", source.name(),
                source.cols());
  for (int64_t r = 0; r < source.rows(); r += most) {
    const int64_t end = std::min(source.rows(), r + most);
    const auto bytes = static_cast<size_t>(kernels::a16_bytes(format, end - r, source.cols()));
    GALVANI_TRY(Block * block, next());
    GALVANI_TRY_VOID(kernels::a16_pack(source, r, end, {block->host.as<std::byte>(), bytes}));
    GALVANI_TRY_VOID(send(*block, reinterpret_cast<std::byte*>(out) + r / kernels::kA16Rows * tile_bytes, bytes));
  }
  return {};
}

namespace {

/// One part of other codes: packed on the host where a packed form holds it, else dense.
Result<CudaSegment> upload_segment(Uploader& uploader, const quant::MatrixSource& source) {
  CudaSegment segment;
  segment.rows = source.rows();
  if (kernels::qmatmul_cuda_format_of(source)) {
    const auto start = std::chrono::steady_clock::now();
    auto packed = kernels::qmatmul_cuda_upload(uploader.stream(), source, 0, source.rows());
    if (packed) {
      segment.packed = std::move(*packed);
      uploader.note(segment.packed->packed_bytes(),
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      return segment;
    }
    // Float codes whose scales no packed form holds; the values are as exact in f32.
    if (packed.error().code != ErrorCode::kUnsupported) return tl::unexpected<Error>(std::move(packed).error());
    log_warn("{}; it is multiplied in f32, slowly", packed.error().message);
  }
  GALVANI_TRY(segment.dense, upload_dense(uploader, source, "weights", segment.type));
  return segment;
}

/// Puts a packed segment's rows behind another's: row tiles follow each other in A16.
Result<bool> join(Uploader& uploader, CudaSegment& first, const CudaSegment& second) {
  if (!first.packed || !second.packed || first.packed->format != second.packed->format) return false;
  if (first.packed->form != second.packed->form || first.rows % kernels::kA16Rows != 0) return false;
  kernels::CudaMatrix& a = *first.packed;
  const auto head = static_cast<size_t>(a.packed_bytes()), tail = static_cast<size_t>(second.packed->packed_bytes());
  GALVANI_TRY(auto buffer, cuda::DeviceBuffer::allocate(uploader.stream().device(), head + tail, "weights"));
  GALVANI_TRY_VOID(uploader.stream().on_device(buffer.data(), a.data, head));
  GALVANI_TRY_VOID(uploader.stream().on_device(buffer.as<std::byte>() + head, second.packed->data, tail));
  GALVANI_TRY_VOID(uploader.stream().synchronize());
  a.rows += second.rows;
  a.data = buffer.as<unsigned char>();
  a.owner = std::move(buffer);
  first.rows += second.rows;
  return true;
}

/// The A16 form of affine codes, which is packed on the device; none for others.
std::optional<kernels::A16Format> packed_format(const quant::MatrixSource& source) {
  if (source.kind() != quant::MatrixKind::kAffine) return std::nullopt;
  const auto format = kernels::a16_format_of(source);
  return format ? std::optional(*format) : std::nullopt;
}

/// How many parts from the first on become one packed matrix: row tiles follow each other in A16.
size_t joined_parts(std::span<const LinearPart> parts, const kernels::A16Format& format) {
  size_t count = 1;
  int64_t rows = parts[0].matrix->rows();
  for (; count < parts.size() && rows % kernels::kA16Rows == 0; ++count) {
    const auto next = packed_format(*parts[count].matrix);
    if (!next || *next != format) break;
    rows += parts[count].matrix->rows();
  }
  return count;
}

Result<CudaSegment> upload_packed(Uploader& uploader, std::span<const LinearPart> parts,
                                  const kernels::A16Format& format) {
  CudaSegment segment;
  kernels::CudaMatrix& matrix = segment.packed.emplace();
  matrix.format = format;
  matrix.cols = parts[0].matrix->cols();
  for (const LinearPart& part : parts) matrix.rows += part.matrix->rows();
  segment.rows = matrix.rows;
  GALVANI_TRY(matrix.owner, cuda::DeviceBuffer::allocate(uploader.stream().device(),
                                                         static_cast<size_t>(matrix.packed_bytes()), "weights"));
  auto* out = matrix.owner.as<unsigned char>();
  matrix.data = out;
  for (const LinearPart& part : parts) {
    GALVANI_TRY_VOID(uploader.pack(*part.matrix, format, out));
    out += kernels::a16_bytes(format, part.matrix->rows(), matrix.cols);
  }
  return segment;
}

}  // namespace

Result<CudaLinear> upload_linear(Uploader& uploader, const std::string& name, std::span<const LinearPart> parts) {
  CudaLinear linear;
  linear.name = name;
  for (const LinearPart& part : parts) {
    if (linear.cols == 0) linear.cols = part.matrix->cols();
    GALVANI_CHECK(part.matrix->cols() == linear.cols, "{}: parts of one product must read the same input", name);
  }
  for (size_t i = 0; i < parts.size();) {
    const auto format = packed_format(*parts[i].matrix);
    const size_t count = format ? joined_parts(parts.subspan(i), *format) : 1;
    CudaSegment segment;
    if (format) {
      GALVANI_TRY(segment, upload_packed(uploader, parts.subspan(i, count), *format));
    } else {
      GALVANI_TRY(segment, upload_segment(uploader, *parts[i].matrix));
    }
    segment.first_row = linear.rows;
    linear.rows += segment.rows;
    bool joined = false;
    if (!format && !linear.segments.empty()) {
      GALVANI_TRY(joined, join(uploader, linear.segments.back(), segment));
    }
    if (!joined) linear.segments.push_back(std::move(segment));
    i += count;
  }
  for (const CudaSegment& segment : linear.segments)
    linear.bytes += segment.packed ? segment.packed->packed_bytes() : static_cast<int64_t>(segment.dense.size());
  std::vector<float> bias;
  bool any_bias = false;
  for (const LinearPart& part : parts) {
    any_bias |= !part.bias.empty();
    const size_t rows = bias.size() + static_cast<size_t>(part.matrix->rows());
    bias.insert(bias.end(), part.bias.begin(), part.bias.end());
    bias.resize(rows, 0.0f);
  }
  if (any_bias) {
    GALVANI_TRY(linear.bias, uploader.upload(std::as_bytes(std::span(bias)), "weights"));
    linear.bytes += static_cast<int64_t>(linear.bias.size());
  }
  return linear;
}

Result<CudaTable> upload_table(Uploader& uploader, const quant::MatrixSource& source) {
  CudaTable table;
  table.rows = source.rows();
  table.cols = source.cols();
  const bool affine = source.kind() == quant::MatrixKind::kAffine && source.cols() % 32 == 0;
  if (!affine) {
    GALVANI_TRY(table.codes, upload_dense(uploader, source, "embedding", table.type));
  } else {
    GALVANI_TRY(quant::AffineView view, source.affine_in_place(0, source.rows()));
    quant::AffineTensor tensor;
    if (view.codes == nullptr) {
      GALVANI_TRY(tensor, source.affine(0, source.rows(), 0, source.cols()));
      view = tensor.view;
    }
    table.type = store_type(view.scale_dtype);
    table.bits = view.bits;
    table.group = view.group;
    const auto code_bytes = static_cast<size_t>(view.rows * view.row_code_bytes());
    const auto pair_bytes =
        static_cast<size_t>(view.rows * view.groups()) * static_cast<size_t>(store_bytes(table.type));
    GALVANI_TRY(table.codes, uploader.upload({view.codes, code_bytes}, "embedding"));
    GALVANI_TRY(table.scales, uploader.upload({view.scales, pair_bytes}, "embedding"));
    GALVANI_TRY(table.biases, uploader.upload({view.biases, pair_bytes}, "embedding"));
  }
  table.bytes = static_cast<int64_t>(table.codes.size() + table.scales.size() + table.biases.size());
  return table;
}

}  // namespace galvani::exec
