#pragma once
/// Tensors of an export plan as streams of bytes, block by block.
#include <functional>
#include <span>

#include "formats/safetensors.h"
#include "quant/export_plan.h"

namespace galvani::quant {

/// Takes the next bytes of the current tensor.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

/// The tensors that a matrix becomes: .weight, and .scales and .biases where its format has them.
std::vector<formats::SafetensorsWriter::Tensor> tensors_of(const ExportMatrix& matrix);
int64_t bytes_of(const ExportMatrix& matrix);
int64_t bytes_of(const ExportVector& vector);

/// Reads, converts and hands out a matrix's tensors in the order of tensors_of; scales and biases are held meanwhile.
/// `done` hears how many weights have been converted since it was called last; an error it returns ends the work.
Status stream_matrix(Checkpoint& checkpoint, const ExportMatrix& matrix, const std::function<Status(int64_t)>& done,
                     const ByteSink& sink);
Status stream_vector(Checkpoint& checkpoint, const ExportVector& vector, const ByteSink& sink);

}  // namespace galvani::quant
