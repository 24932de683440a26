#include "exec/cuda_weights.h"

#include <cstring>

#include "core/log.h"

namespace galvani::exec {
namespace {

using kernels::StoreType;

StoreType store_type(DType type) {
  return type == DType::kF16 ? StoreType::kF16 : type == DType::kBF16 ? StoreType::kBF16 : StoreType::kF32;
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
                               std::memcpy(out.data(), raw.data(), out.size());
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
  for (auto& event : uploader.sent_) {
    GALVANI_TRY(event, cuda::Event::create(stream.device()));
  }
  return uploader;
}

Result<std::byte*> Uploader::next() {
  turn_ ^= 1;
  if (blocks_[turn_].size() == 0) {
    GALVANI_TRY(blocks_[turn_], cuda::PinnedBuffer::allocate(stream_->device(), kPiece, "upload"));
  }
  if (used_[turn_]) GALVANI_TRY_VOID(sent_[turn_].synchronize());
  return blocks_[turn_].as<std::byte>();
}

Status Uploader::send(std::byte* to, size_t bytes) {
  GALVANI_TRY_VOID(stream_->to_device(to, blocks_[turn_].data(), bytes));
  GALVANI_TRY_VOID(stream_->record(sent_[turn_]));
  used_[turn_] = true;
  bytes_ += static_cast<int64_t>(bytes);
  return {};
}

Result<cuda::DeviceBuffer> Uploader::upload(std::span<const std::byte> bytes, const char* tag) {
  return upload(bytes.size(), tag, 1, [&](size_t at, std::span<std::byte> out) -> Status {
    std::memcpy(out.data(), bytes.data() + at, out.size());
    return {};
  });
}

Status Uploader::finish() {
  GALVANI_TRY_VOID(stream_->synchronize());
  for (int i = 0; i < 2; ++i) {
    blocks_[i].reset();
    used_[i] = false;
  }
  return {};
}

namespace {

/// One part as it is multiplied.
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

}  // namespace

Result<CudaLinear> upload_linear(Uploader& uploader, const std::string& name, std::span<const LinearPart> parts) {
  CudaLinear linear;
  linear.name = name;
  std::vector<float> bias;
  bool any_bias = false;
  for (const LinearPart& part : parts) {
    if (linear.cols == 0) linear.cols = part.matrix->cols();
    GALVANI_CHECK(part.matrix->cols() == linear.cols, "{}: parts of one product must read the same input", name);
    GALVANI_TRY(CudaSegment segment, upload_segment(uploader, *part.matrix));
    segment.first_row = linear.rows;
    linear.rows += segment.rows;
    bool joined = false;
    if (!linear.segments.empty()) {
      GALVANI_TRY(joined, join(uploader, linear.segments.back(), segment));
    }
    if (!joined) linear.segments.push_back(std::move(segment));
    any_bias |= !part.bias.empty();
    bias.insert(bias.end(), part.bias.begin(), part.bias.end());
    bias.resize(static_cast<size_t>(linear.rows), 0.0f);
  }
  for (const CudaSegment& segment : linear.segments)
    linear.bytes += segment.packed ? segment.packed->packed_bytes() : static_cast<int64_t>(segment.dense.size());
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
    GALVANI_TRY(const quant::AffineTensor tensor, source.affine(0, source.rows(), 0, source.cols()));
    const quant::AffineView& view = tensor.view;
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
