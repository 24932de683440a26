#include "core/shape.h"

#include <fmt/ranges.h>

#include "core/error.h"

namespace galvani {

Result<int64_t> Shape::elements() const {
  int64_t product = 1;
  for (int64_t dim : dims_) {
    if (dim < 0) return fail(ErrorCode::kCorrupt, "shape {} has a negative dimension", str());
    if (__builtin_mul_overflow(product, dim, &product))
      return fail(ErrorCode::kCorrupt, "shape {} has more elements than fit into 63 bits", str());
  }
  return product;
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(dims_, ", ")); }

}  // namespace galvani
