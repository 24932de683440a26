#pragma once
/// Weights on a GPU: uploaded once at load, named by handles.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "cuda/memory.h"
#include "exec/layers.h"
#include "exec/recording_ops.h"
#include "exec/uploader.h"
#include "kernels/common/store_type.h"
#include "kernels/qmatmul/qmatmul_cuda.h"
#include "quant/matrix_source.h"

namespace galvani::exec {

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
/// Parts of one format become one matrix, so that a product is one launch. It can be read after Uploader::finish().
Result<CudaLinear> upload_linear(Uploader& uploader, const std::string& name, std::span<const LinearPart> parts);

/// An embedding table: dense, or affine codes in MLX's layout.
struct CudaTable {
  cuda::DeviceBuffer codes, scales, biases;
  kernels::StoreType type = kernels::StoreType::kF32;
  int bits = 0, group = 0;
  int64_t rows = 0, cols = 0, bytes = 0;
};
Result<CudaTable> upload_table(Uploader& uploader, const quant::MatrixPtr& source);

/// What the weights that were recorded will ask of Uploader::allocate(), with some room for rounding.
int64_t expected_weight_bytes(const RecordingOps& recorded);
/// The same with what lies in memory of its own: all that the weights take on a GPU.
int64_t gpu_weight_bytes(const RecordingOps& recorded);
/// What a step of one sequence reads of them, as CudaOps::step_bytes() says of a model that is loaded.
int64_t gpu_step_bytes(const RecordingOps& recorded);

}  // namespace galvani::exec
