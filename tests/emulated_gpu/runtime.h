#pragma once
/// What blas.cpp needs of runtime.cpp.
#include <functional>

#include "cuda/handles.h"

namespace galvani::emulated {

/// Runs `work` in the stream's order: now, or, while the stream is captured, whenever the graph is launched.
void enqueue(cuda::StreamHandle stream, std::function<void()> work);

}  // namespace galvani::emulated
