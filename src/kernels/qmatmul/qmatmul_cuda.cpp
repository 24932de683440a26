#include "kernels/qmatmul/qmatmul_cuda.h"

#include <bit>
#include <cstring>

#include "core/error.h"
#include "cuda/launch.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul/qmatmul_cuda_text.h"

namespace galvani::kernels {
namespace {

QmatmulCudaProblem problem_of(const CudaMatrix& w, const CudaActivations& x, Arithmetic arithmetic, const CudaResult& y,
                              const QmatmulCuda::Options& options) {
  QmatmulCudaProblem p;
  p.m = x.m, p.n = w.rows, p.k = w.cols;
  p.format = w.format, p.kind = weight_kind_of(w.format), p.arithmetic = arithmetic;
  p.exact_weights = w.exact(arithmetic);
  p.x_aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0 && w.cols % 8 == 0;
  p.y_16 = y.as_x, p.add = y.add, p.gated = y.gate.on != 0;
  p.y_aligned = reinterpret_cast<uintptr_t>(y.data) % 16 == 0 && y.stride * (y.as_x ? 2 : 4) % 16 == 0;
  p.workspace_bytes = options.expand_bytes, p.forced = options.forced, p.tuning = options.tuning;
  return p;
}

/// `y_bytes`: what the kernel writes whole, 0 when it does not.
cuda::LaunchConfig launch_of(const QmatmulCudaPlan& plan, const QmatmulCuda::Options& options, void* y,
                             size_t y_bytes) {
  cuda::LaunchConfig config;
  config.grid = {static_cast<unsigned>(plan.grid_x), static_cast<unsigned>(plan.grid_y)};
  config.block = {static_cast<unsigned>(plan.threads)};
  config.dynamic_smem = plan.smem;
  config.cluster = {static_cast<unsigned>(plan.cluster)};
  config.dependent_launch = plan.dependent_launch && options.dependent_launch;
  if (y_bytes > 0) config.outputs[0] = {y, y_bytes};
  return config;
}

/// x in boxes of `tokens` rows, for the tensor copy engine.
Result<TensorMap> map_of_x(cuda::CudaDevice& device, const QmatmulArgs& args, int tokens) {
  GALVANI_TRY(const auto bytes, cuda::tensor_map_2d(device, args.x, args.m, args.k, args.x_stride, tokens));
  TensorMap map;
  std::memcpy(map.bytes, bytes.data(), sizeof(map.bytes));
  return map;
}

}  // namespace

Result<A16Format> qmatmul_cuda_format_of(const quant::MatrixSource& source) {
  return source.kind() == quant::MatrixKind::kAffine ? a16_format_of(source) : a16_float_format_of(source);
}

Result<CudaMatrix> qmatmul_cuda_upload(cuda::Stream& stream, const quant::MatrixSource& source, int64_t r0,
                                       int64_t r1) {
  CudaMatrix w;
  w.rows = r1 - r0, w.cols = source.cols();
  GALVANI_TRY(w.format, qmatmul_cuda_format_of(source));
  const auto bytes = static_cast<size_t>(w.packed_bytes());
  GALVANI_TRY(cuda::PinnedBuffer staged, cuda::PinnedBuffer::allocate(stream.device(), bytes, "packed weights"));
  const std::span<std::byte> out(staged.as<std::byte>(), bytes);
  if (w.format.code == A16Code::kAffine) {
    GALVANI_TRY_VOID(a16_pack(source, r0, r1, out));
  } else {
    GALVANI_TRY(w.form, a16_float_pack(source, r0, r1, out));
  }
  GALVANI_TRY(w.owner, cuda::DeviceBuffer::allocate(stream.device(), bytes, "weights"));
  w.data = w.owner.as<unsigned char>();
  GALVANI_TRY_VOID(stream.to_device(w.owner.data(), staged.data(), bytes));
  GALVANI_TRY_VOID(stream.synchronize());
  return w;
}

std::optional<QmatmulCudaArm> qmatmul_cuda_arm_from_name(std::string_view name) {
  for (int i = 0; i < kQmatmulCudaArms; ++i)
    if (name == qmatmul_cuda_arm_name(static_cast<QmatmulCudaArm>(i))) return static_cast<QmatmulCudaArm>(i);
  return std::nullopt;
}

int64_t QmatmulCuda::workspace_bytes(const DeviceCaps& caps, int64_t expand_bytes) {
  return (expand_bytes > 0 ? (expand_bytes + 255) / 256 * 256 + int64_t{cuda::Blas::kWorkspaceBytes} : 0) +
         (caps.has(Feature::kWgmma) ? int64_t{kPartsBytes} : 0);
}

Result<std::unique_ptr<QmatmulCuda>> QmatmulCuda::create(std::shared_ptr<cuda::CudaDevice> device,
                                                         const Options& options) {
  auto result = std::make_unique<QmatmulCuda>();
  result->options_ = options;
  if (options.expand_bytes > 0) {
    result->options_.expand_bytes = (options.expand_bytes + 255) / 256 * 256;
    GALVANI_TRY(result->blas_, cuda::Blas::create(*device));
    GALVANI_TRY(result->workspace_,
                cuda::DeviceBuffer::allocate(
                    *device, static_cast<size_t>(result->options_.expand_bytes) + cuda::Blas::kWorkspaceBytes,
                    "qmatmul workspace"));
  }
  if (device->caps().has(Feature::kWgmma)) {
    GALVANI_TRY(result->parts_, cuda::DeviceBuffer::allocate(*device, kPartsBytes, "qmatmul parts"));
  }
  result->device_ = std::move(device);
  return result;
}

QmatmulCudaPlan QmatmulCuda::plan(const CudaMatrix& w, const CudaActivations& x, Arithmetic arithmetic,
                                  const CudaResult& y) const {
  return qmatmul_cuda_plan(device_->caps(), problem_of(w, x, arithmetic, y, options_), options_.crossovers);
}

Status QmatmulCuda::run(cuda::Stream& stream, const CudaMatrix& w, const CudaActivations& x, Arithmetic arithmetic,
                        const CudaResult& y) {
  const QmatmulCudaProblem p = problem_of(w, x, arithmetic, y, options_);
  const QmatmulCudaPlan plan = qmatmul_cuda_plan(device_->caps(), p, options_.crossovers);
  device_->trace_plan([&] {
    return fmt::format("qmatmul {}: {}", qmatmul_cuda_problem_text(p),
                       qmatmul_cuda_plan_text(device_->caps(), p, PlanDetail::kReasons, options_.crossovers));
  });
  if (!plan.ok)
    return fail(ErrorCode::kUnsupported, "no kernel for {} tokens × [{}, {}], {}, group {}, in {}{}: {}", p.m, p.n, p.k,
                a16_code_name(p.format), p.format.group, arithmetic_name(arithmetic), p.gated ? ", gated" : "",
                plan.reason);
  if (p.gated && y.gate.kind == Gate::kSigmoid)
    return fail(
        ErrorCode::kUnsupported,
        "a product finishes to the gates of an MLP (silu, gelu_tanh, swiglu_clamped), and sigmoid was asked for: "
        "run the product, then the gate");
  QmatmulArgs args = qmatmul_cuda_args(p);
  args.w = w.data;
  const bool floats = w.format.code != A16Code::kAffine;
  if (floats) args.scale = std::bit_cast<int>(w.form.factor);
  args.x = x.data, args.x_stride = x.stride;
  args.y = y.data, args.y_stride = y.stride;
  // Only an output without gaps between its rows is written completely.
  const int64_t width = p.gated ? w.rows / 2 : w.rows;
  const bool poison = !y.add && (y.stride == width || x.m == 1);
  const size_t y_bytes = poison ? static_cast<size_t>(x.m * width * (y.as_x ? 2 : 4)) : 0;
  switch (plan.arm) {
    case QmatmulCudaArm::kStream: return run_stream(stream, plan, args, y_bytes);
    case QmatmulCudaArm::kWgmma: return run_wgmma(stream, plan, args, y.gate, y_bytes);
    case QmatmulCudaArm::kExpand: return run_expand(stream, plan, args, floats ? w.form.factor : 1.0f);
    case QmatmulCudaArm::kMma: {
      GALVANI_TRY(const cuda::Kernel* kernel, device_->kernel(plan.kernel()));
      return cuda::launch(stream, *kernel, launch_of(plan, options_, args.y, y_bytes), args);
    }
    default: return run_few(stream, plan, args, y_bytes);
  }
}

Status QmatmulCuda::run_few(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args, size_t y_bytes) {
  GALVANI_TRY(const cuda::Kernel* kernel, device_->kernel(plan.kernel()));
  QmatmulFewArgs few = plan.few.args;
  few.p = args;
  return cuda::launch(stream, *kernel, launch_of(plan, options_, args.y, y_bytes), few);
}

Status QmatmulCuda::run_stream(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args, size_t y_bytes) {
  GALVANI_TRY(const cuda::Kernel* kernel, device_->kernel(plan.kernel()));
  QmatmulStreamArgs streamed = plan.stream.args;
  streamed.p = args;
  GALVANI_TRY(const TensorMap map, map_of_x(*device_, args, plan.tokens));
  return cuda::launch(stream, *kernel, launch_of(plan, options_, args.y, y_bytes), streamed, map);
}

Status QmatmulCuda::run_wgmma(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args,
                              const QmatmulGate& gate, size_t y_bytes) {
  GALVANI_TRY(const cuda::Kernel* kernel, device_->kernel(plan.kernel()));
  QmatmulWgmmaArgs wgmma = plan.wgmma;
  wgmma.p = args, wgmma.gate = gate.kind, wgmma.alpha = gate.alpha, wgmma.limit = gate.limit;
  GALVANI_TRY(const TensorMap map, map_of_x(*device_, args, plan.tokens));
  if (plan.wgmma.splits == 1)
    return cuda::launch(stream, *kernel, launch_of(plan, options_, args.y, y_bytes), wgmma, map);
  const int64_t sums = int64_t{plan.wgmma.splits} * args.m * args.n;
  wgmma.p.y = parts_.data(), wgmma.p.y_stride = args.n, wgmma.p.y_16 = 0, wgmma.p.add = 0;
  GALVANI_TRY_VOID(cuda::launch(stream, *kernel,
                                launch_of(plan, options_, parts_.data(), static_cast<size_t>(sums) * sizeof(float)),
                                wgmma, map));
  GALVANI_TRY(const cuda::Kernel* join, device_->kernel(plan.parts_kernel()));
  cuda::LaunchConfig config = launch_of(plan, options_, args.y, y_bytes);
  config.grid = {static_cast<unsigned>((args.n + kPartsColumns - 1) / kPartsColumns), static_cast<unsigned>(args.m)};
  config.block = {kPartsThreads};
  config.dynamic_smem = 0;
  return cuda::launch(stream, *join, config, QmatmulPartsArgs{args, parts_.as<float>(), plan.wgmma.splits});
}

Status QmatmulCuda::run_expand(cuda::Stream& stream, const QmatmulCudaPlan& plan, QmatmulArgs args, float factor) {
  GALVANI_TRY(const cuda::Kernel* kernel, device_->kernel(plan.kernel()));
  A16ExpandArgs expand{};
  expand.w = args.w, expand.out = workspace_.data(), expand.stride = args.k;
  expand.n = args.n, expand.k = args.k, expand.units = args.units, expand.row_tiles = args.row_tiles;
  expand.unit_bytes = args.unit_bytes, expand.subgroups = args.subgroups, expand.scale = args.scale;
  cuda::LaunchConfig config;
  config.grid = {static_cast<unsigned>(plan.grid_x)};
  config.block = {static_cast<unsigned>(plan.threads)};
  config.outputs[0] = {workspace_.data(), static_cast<size_t>(plan.workspace_bytes)};
  GALVANI_TRY_VOID(cuda::launch(stream, *kernel, config, expand));
  cuda::DenseProduct product;
  product.m = args.m, product.n = args.n, product.k = args.k;
  product.x = args.x, product.x_stride = args.x_stride;
  product.w = workspace_.data(), product.w_stride = args.k;
  product.y = args.y, product.y_stride = args.y_stride;
  product.in = plan.arithmetic == Arithmetic::kBF16 ? DType::kBF16 : DType::kF16;
  product.out = args.y_16 ? product.in : DType::kF32;
  product.add = args.add != 0;
  product.factor = factor;
  return blas_->multiply(stream, product, workspace_.as<std::byte>() + options_.expand_bytes);
}

}  // namespace galvani::kernels
