#pragma once
/// Shape of a tensor, outermost dimension first, as in Hugging Face files.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "galvani/error.h"

namespace galvani {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const noexcept { return static_cast<int>(dims_.size()); }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  const std::vector<int64_t>& dims() const noexcept { return dims_; }
  bool operator==(const Shape&) const = default;

  /// Product of the dimensions (1 for rank 0); an error when one is negative or the product leaves int64.
  Result<int64_t> elements() const;
  /// "[64, 128]".
  std::string str() const;

 private:
  std::vector<int64_t> dims_;
};

}  // namespace galvani
