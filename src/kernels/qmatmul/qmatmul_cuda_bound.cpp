#include "kernels/qmatmul/qmatmul_cuda_bound.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace galvani::kernels {
namespace {

constexpr double kUnit = 0x1p-24;

/// What codes carry while they are numbers of their own (A16Codes::offset).
int code_offset(int bits, bool upper, Arithmetic arithmetic) {
  if (bits == 8) return arithmetic == Arithmetic::kBF16 ? -128 : 256;
  return bits == 2 && !upper ? 16 : 1 << bits;
}

/// Σx of a subgroup in f32: neighbours are added, then neighbouring sums. IEEE additions, so that one whose sum f32
/// holds rounds nothing.
BoundedSum tree_sum(std::span<const float> x) {
  if (x.size() == 1) return {.value = x[0]};
  BoundedSum sum = tree_sum(x.first(x.size() / 2));
  sum.add(tree_sum(x.subspan(x.size() / 2)));
  if (sum.worst > 0 || static_cast<double>(static_cast<float>(sum.value)) != sum.value) sum.round(sum.value);
  return sum;
}

/// Sums of groups that are added up in f32.
class Joined {
 public:
  void add(const BoundedSum& group) {
    sum_.add(group);
    least_ = std::min(least_, sum_.value), most_ = std::max(most_, sum_.value);
    ++groups_;
  }
  /// additions: of a group, joins included.
  BoundedSum end(int additions) const {
    BoundedSum sum = sum_;
    for (int i = 0; i < additions * groups_; ++i) sum.round(most_ - least_);
    return sum;
  }

 private:
  BoundedSum sum_;
  double least_ = 0, most_ = 0;
  int groups_ = 0;
};

}  // namespace

double BoundedSum::error() const { return std::min(worst, drift + 6 * std::sqrt(variance)); }

void BoundedSum::round(double size) {
  worst += kUnit * std::fabs(size);
  variance += kUnit * size * kUnit * size / 3;
}

void BoundedSum::add(const BoundedSum& other, double times) {
  value += times * other.value;
  worst += std::fabs(times) * other.worst, drift += std::fabs(times) * other.drift;
  variance += times * times * other.variance;
}

BoundedSum tensor_sum(std::span<const double> products, TensorCore core) {
  BoundedSum sum;
  const auto step = static_cast<size_t>(core.products);
  const double below = std::ldexp(1.0, -23 - core.extra);
  const auto sign = [](double x) { return (x > 0) - (x < 0); };
  for (size_t first = 0; first < products.size(); first += step) {
    double top = std::fabs(sum.value), added = 0;
    int addends = sum.value != 0, signs = sign(sum.value);
    for (const double p : products.subspan(first, std::min(step, products.size() - first)))
      top = std::max(top, std::fabs(p)), added += p, addends += p != 0, signs += sign(p);
    sum.value += added;
    if (addends < 2) continue;
    const double place = top * below, last = 0x1p-23 * std::fabs(sum.value);
    sum.worst += addends * place + last;
    sum.drift += (std::abs(signs) * place + last) / 2;
    sum.variance += (addends * place * place + last * last) / 12;
  }
  return sum;
}

BoundedSum few_affine_sum(const AffineRow& row, std::span<const float> x, Arithmetic arithmetic, TensorCore core) {
  const int offset = code_offset(row.bits, row.upper, arithmetic);
  const auto group = static_cast<size_t>(row.group), width = std::min<size_t>(group, kA16Cols);
  std::vector<double> products;
  Joined joined;
  for (size_t k = 0; k < x.size(); k += width) {
    const auto part = x.subspan(k, std::min(width, x.size() - k));
    products.clear();
    for (size_t i = 0; i < part.size(); ++i)
      products.push_back((offset + static_cast<double>(row.codes[k + i])) * part[i]);
    const BoundedSum sum = tree_sum(part);
    const double scale = row.scales[k / group], bias = row.biases[k / group] - offset * scale;
    BoundedSum y;
    y.add(tensor_sum(products, core), scale);
    y.add(sum, bias);
    y.round(bias * sum.value);
    if (static_cast<double>(static_cast<float>(bias)) != bias) y.round(bias * sum.value);
    joined.add(y);
  }
  return joined.end(3);
}

BoundedSum scaled_sum(std::span<const double> values, std::span<const float> x, int subgroup, TensorCore core) {
  std::vector<double> products;
  Joined joined;
  for (size_t k = 0; k < x.size(); k += static_cast<size_t>(subgroup)) {
    products.clear();
    for (size_t i = k; i < std::min(x.size(), k + static_cast<size_t>(subgroup)); ++i)
      products.push_back(values[i] * x[i]);
    joined.add(tensor_sum(products, core));
  }
  return joined.end(3);
}

std::vector<std::vector<int>> qmatmul_cuda_chains(const QmatmulCudaPlan& plan, int units) {
  std::vector<std::vector<int>> chains;
  const auto run = [&](int first, int end, int step) {
    std::vector<int>& chain = chains.emplace_back();
    for (int unit = first; unit < end; unit += step) chain.push_back(unit);
  };
  if (plan.arm == QmatmulCudaArm::kWgmma && plan.wgmma.splits > 1) {
    for (int first = 0; first < units; first += plan.wgmma.slice)
      run(first, std::min(units, first + plan.wgmma.slice), 1);
  } else if (plan.arm == QmatmulCudaArm::kStream) {
    // A part has every `parts`-th unit of a stage.
    const auto& a = plan.stream.args;
    for (int first = 0; first < units; first += a.slice)
      for (int part = 0; part < a.parts; ++part) {
        std::vector<int>& chain = chains.emplace_back();
        const int end = std::min(units, first + a.slice);
        for (int stage = first; stage < end; stage += a.step)
          for (int u = stage + part; u < std::min(end, stage + a.step); u += a.parts) chain.push_back(u);
      }
  } else {
    run(0, units, 1);
  }
  return chains;
}

BoundedSum chained_sum(std::span<const double> weights, std::span<const float> x,
                       std::span<const std::vector<int>> chains, TensorCore core) {
  BoundedSum sum;
  double parts = 0;
  std::vector<double> products;
  for (const std::vector<int>& chain : chains) {
    products.clear();
    for (const int unit : chain) {
      const size_t first = static_cast<size_t>(unit) * kA16Cols, end = std::min(x.size(), first + kA16Cols);
      for (size_t k = first; k < end; ++k) products.push_back(weights[k] * x[k]);
    }
    const BoundedSum part = tensor_sum(products, core);
    sum.add(part);
    parts += std::fabs(part.value);
  }
  for (size_t i = 1; i < chains.size(); ++i) sum.round(parts);
  return sum;
}

}  // namespace galvani::kernels
