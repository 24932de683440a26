#include "exec/cuda_weights.h"

#include "core/log.h"
#include "kernels/qmatmul/a16_pack.h"

namespace galvani::exec {
namespace {

using kernels::StoreType;

/// The type in which a matrix of no packed form is held.
StoreType dense_type(const quant::MatrixSource& source) {
  return source.kind() == quant::MatrixKind::kDense ? store_type(source.dtype()) : StoreType::kF32;
}
size_t dense_bytes(const quant::MatrixSource& source) {
  return static_cast<size_t>(source.rows()) * static_cast<size_t>(source.cols()) *
         static_cast<size_t>(kernels::store_bytes(dense_type(source)));
}

/// All rows of a matrix as they stand when it is dense, else dequantised to f32.
Result<cuda::DeviceBuffer> upload_dense(Uploader& uploader, const quant::MatrixPtr& source, StoreType& type) {
  type = dense_type(*source);
  GALVANI_TRY(auto buffer, uploader.allocate(dense_bytes(*source)));
  GALVANI_TRY_VOID(uploader.dense(source, type, buffer.as<std::byte>()));
  return buffer;
}

/// One part of other codes: packed on the host where a packed form holds it, else dense.
Result<CudaSegment> upload_segment(Uploader& uploader, const quant::MatrixPtr& source) {
  CudaSegment segment;
  segment.rows = source->rows();
  if (kernels::qmatmul_cuda_format_of(*source)) {
    uploader.note(0);
    auto packed = kernels::qmatmul_cuda_upload(uploader.stream(), *source, 0, source->rows());
    if (packed) {
      segment.packed = std::move(*packed);
      uploader.note(segment.packed->packed_bytes());
      return segment;
    }
    // Float codes whose scales no packed form holds; the values are as exact in f32.
    if (packed.error().code != ErrorCode::kUnsupported) return tl::unexpected<Error>(std::move(packed).error());
    log_warn("{}; it is multiplied in f32, slowly", packed.error().message);
  }
  GALVANI_TRY(segment.dense, upload_dense(uploader, source, segment.type));
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
  GALVANI_TRY(matrix.owner, uploader.allocate(static_cast<size_t>(matrix.packed_bytes())));
  auto* out = matrix.owner.as<unsigned char>();
  matrix.data = out;
  for (const LinearPart& part : parts) {
    GALVANI_TRY_VOID(uploader.pack(part.matrix, format, out));
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
      GALVANI_TRY(segment, upload_segment(uploader, parts[i].matrix));
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
    GALVANI_TRY(linear.bias, uploader.upload(std::as_bytes(std::span(bias))));
    linear.bytes += static_cast<int64_t>(linear.bias.size());
  }
  return linear;
}

namespace {

/// Whether rows are looked up in their affine codes.
bool codes_looked_up(const quant::MatrixSource& source) {
  return source.kind() == quant::MatrixKind::kAffine && source.cols() % 32 == 0;
}

/// Of a table that is looked up by row.
int64_t table_bytes_of(const quant::MatrixSource& source) {
  const int64_t pairs = source.group() > 0 ? source.cols() / source.group() * 2 * dtype_bytes(source.dtype()) : 0;
  return codes_looked_up(source) ? source.rows() * (source.cols() * source.bits() / 8 + pairs)
                                 : static_cast<int64_t>(dense_bytes(source));
}

}  // namespace

Result<CudaTable> upload_table(Uploader& uploader, const quant::MatrixPtr& source) {
  CudaTable table;
  table.rows = source->rows();
  table.cols = source->cols();
  if (!codes_looked_up(*source)) {
    GALVANI_TRY(table.codes, upload_dense(uploader, source, table.type));
  } else {
    table.type = store_type(source->dtype());
    table.bits = source->bits();
    table.group = source->group();
    const auto code_bytes = static_cast<size_t>(table.rows * (table.cols * table.bits / 8));
    const auto pair_bytes =
        static_cast<size_t>(table.rows * (table.cols / table.group)) * static_cast<size_t>(store_bytes(table.type));
    GALVANI_TRY(table.codes, uploader.allocate(code_bytes));
    GALVANI_TRY(table.scales, uploader.allocate(pair_bytes));
    GALVANI_TRY(table.biases, uploader.allocate(pair_bytes));
    GALVANI_TRY_VOID(uploader.affine(source, table.codes.as<std::byte>(), table.scales.as<std::byte>(),
                                     table.biases.as<std::byte>()));
  }
  table.bytes = static_cast<int64_t>(table.codes.size() + table.scales.size() + table.biases.size());
  return table;
}

int64_t gpu_step_bytes(const RecordingOps& recorded) {
  int64_t bytes = recorded.vector_bytes();
  for (const RecordingOps::Matrix& matrix : recorded.matrices()) {
    const quant::MatrixSource& source = *matrix.source;
    if (matrix.embedding) bytes += table_bytes_of(source) / std::max<int64_t>(source.rows(), 1);
    if (!matrix.multiplied) continue;
    const auto format = kernels::qmatmul_cuda_format_of(source);
    const int64_t all =
        format ? kernels::a16_bytes(*format, source.rows(), source.cols()) : static_cast<int64_t>(dense_bytes(source));
    bytes += static_cast<int64_t>(static_cast<double>(all) * matrix.active);
  }
  return bytes;
}

int64_t expected_weight_bytes(const RecordingOps& recorded) {
  int64_t bytes = recorded.vector_bytes() + (int64_t{1} << 20);
  for (const RecordingOps::Matrix& matrix : recorded.matrices()) {
    const quant::MatrixSource& source = *matrix.source;
    const auto dense = static_cast<int64_t>(dense_bytes(source));
    if (matrix.embedding) bytes += table_bytes_of(source);
    if (!matrix.multiplied) continue;
    if (const auto format = packed_format(source))
      bytes += kernels::a16_bytes(*format, source.rows(), source.cols());
    else if (!kernels::qmatmul_cuda_format_of(source))  // else in memory of its own
      bytes += dense;
  }
  return bytes;
}

int64_t gpu_weight_bytes(const RecordingOps& recorded) {
  int64_t bytes = expected_weight_bytes(recorded);
  for (const RecordingOps::Matrix& matrix : recorded.matrices()) {
    const quant::MatrixSource& source = *matrix.source;
    if (!matrix.multiplied || packed_format(source)) continue;
    if (const auto format = kernels::qmatmul_cuda_format_of(source))
      bytes += kernels::a16_bytes(*format, source.rows(), source.cols());
  }
  return bytes;
}

}  // namespace galvani::exec
