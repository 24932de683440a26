/// What share of the machine's own limits the CPU matrix products reach. Limits are measured in the same run by loops
/// of the same kind: a sum over a buffer beyond the caches, and register-only multiply-adds.
///
///   qmatmul_bench [--threads T] [--seconds S] [filter]
/// One line a case: best and median of the repetitions, bytes or flops of the best, share of the limit.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/parallel.h"
#include "device/cpu_caps.h"
#include "kernels/common/large_pages.h"
#include "kernels/qmatmul/qmatmul.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // inside g++ 12's own headers (GCC bug 105593)
#endif
#include <immintrin.h>
#endif

namespace {
using namespace galvani;
using namespace galvani::kernels;

double g_seconds = 0.2;
constexpr int64_t kBeyondCaches = int64_t{64} << 20;
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Times {
  double best, median;
};

/// Repeats `body` for about g_seconds.
template <typename Body>
Times time_it(const Body& body) {
  body();
  std::vector<double> times;
  const double start = now();
  while (times.size() < 5 || (now() - start < g_seconds && times.size() < 5000)) {
    const double t = now();
    body();
    times.push_back(now() - t);
  }
  std::ranges::sort(times);
  return {times.front(), times[times.size() / 2]};
}

/// Random codes and scales; holds one unpacked block of rows and repeats it.
class RandomMatrix final : public quant::MatrixSource {
 public:
  RandomMatrix(int64_t rows, int64_t cols, int bits, int group, DType scale, bool centred) {
    name_ = "random", rows_ = rows, cols_ = cols, bits_ = bits, group_ = group, dtype_ = scale;
    kind_ = bits == 16 || bits == 32 ? quant::MatrixKind::kDense : quant::MatrixKind::kAffine;
    if (kind_ == quant::MatrixKind::kDense) dtype_ = bits == 16 ? DType::kBF16 : DType::kF32;
    std::mt19937 rng(7);
    for (auto& v : random_) v = static_cast<std::byte>(rng());
    centred_ = centred;
  }
  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    for (int64_t i = 0; i < (r1 - r0) * cols_; ++i) {
      const float v =
          static_cast<float>(static_cast<int>(random_[static_cast<size_t>((r0 * cols_ + i) % kBytes)])) - 128;
      out[i] = bits_ == 32 ? v * 0.0123f : v * 0.0078125f;
    }
    return {};
  }
  Result<quant::AffineTensor> affine(int64_t r0, int64_t r1, int64_t, int64_t) const override {
    quant::AffineTensor t;
    const int64_t codes = (r1 - r0) * cols_ * bits_ / 8, groups = (r1 - r0) * cols_ / group_,
                  size = dtype_bytes(dtype_);
    t.storage.resize(static_cast<size_t>(codes + 2 * groups * size));
    for (int64_t i = 0; i < codes; ++i)
      t.storage[static_cast<size_t>(i)] = random_[static_cast<size_t>((r0 * 7 + i) % kBytes)];
    std::byte* scales = t.storage.data() + codes;
    for (int64_t g = 0; g < groups; ++g) {
      // f32 scales as GGUF K-quants make them, so that they pack in two levels.
      const int step = 1 + static_cast<int>(random_[static_cast<size_t>(g % kBytes)]) % 60;
      const float scale = f16_to_f32(f32_to_f16(dtype_ == DType::kF32 ? 0.00123f : 0.001f * static_cast<float>(step)));
      const float value = dtype_ == DType::kF32 ? scale * static_cast<float>(step) : scale;
      const float half = static_cast<float>(1 << (bits_ - 1));
      const float bias = centred_ ? -half * value : -value * static_cast<float>(step % 7);
      put(scales, g, value), put(scales + groups * size, g, bias);
    }
    t.view = {r1 - r0, cols_, bits_, group_, dtype_, t.storage.data(), scales, scales + groups * size};
    return t;
  }

 private:
  void put(std::byte* to, int64_t i, float value) const {
    const uint16_t half = dtype_ == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (dtype_ == DType::kF32) std::memcpy(to + i * 4, &value, 4);
    if (dtype_ != DType::kF32) std::memcpy(to + i * 2, &half, 2);
  }
  static constexpr int64_t kBytes = 1 << 16;
  std::vector<std::byte> random_ = std::vector<std::byte>(kBytes);
  bool centred_;
};

double g_sink = 0;

/// A buffer beyond the caches, to be summed on all threads.
class ReadLimit {
 public:
  static constexpr int64_t kBytes = int64_t{192} << 20;
  ReadLimit() : memory_(kBytes), data_(reinterpret_cast<uint64_t*>(memory_.data())) {
    parallel_for(kBytes / 8, 4096, [&](int64_t a, int64_t b, int) { std::fill(data_ + a, data_ + b, 3); });
  }
  void read() const {
    parallel_for(kBytes / 8, 4096, [&](int64_t a, int64_t b, int) {
      uint64_t sums[8] = {};
      for (int64_t i = a; i + 8 <= b; i += 8) {
        __builtin_prefetch(data_ + i + 256);
        for (int j = 0; j < 8; ++j) sums[j] += data_[i + j];
      }
      uint64_t sum = 0;
      for (const uint64_t s : sums) sum += s;
      __asm__ volatile("" : : "r"(sum));
    });
  }
  double rate() const {
    return static_cast<double>(kBytes) / time_it([&] { read(); }).best / 1e9;
  }

 private:
  LargePageBuffer memory_;
  uint64_t* data_;
};

#if defined(__x86_64__)
constexpr int kChains = 24;
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"), noinline)) double dot_loop(int64_t n) {
  __m512 sums[kChains];
  for (auto& s : sums) s = _mm512_setzero_ps();
  auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  __asm__ volatile("" : "+v"(x));
  for (int64_t i = 0; i < n; ++i)
    for (auto& s : sums) s = _mm512_dpbf16_ps(s, x, x);
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_reduce_add_ps(sums[0]);
}
__attribute__((target("avx512f"), noinline)) double fma_loop(int64_t n) {
  __m512 sums[kChains];
  for (auto& s : sums) s = _mm512_setzero_ps();
  __m512 x = _mm512_set1_ps(1.0f);
  __asm__ volatile("" : "+v"(x));
  for (int64_t i = 0; i < n; ++i)
    for (auto& s : sums) s = _mm512_fmadd_ps(x, x, s);
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_reduce_add_ps(sums[0]);
}
double peak(double (*loop)(int64_t), double flops) {
  constexpr int64_t kSteps = 4000;
  const Times t = time_it([&] {
    parallel_for(threads(), 1, [&](int64_t, int64_t, int) {
      const double sum = loop(kSteps);
      __asm__ volatile("" : : "m"(sum));
    });
  });
  return static_cast<double>(kSteps * kChains * threads()) * flops / t.best / 1e9;
}
#endif

struct Limits {
  const ReadLimit& reader;
  double read = 0, flops_bf16 = 0, flops_f32 = 0;
};

struct Case {
  const char* name;
  int64_t rows, cols;
  int bits, group;
  DType scale;
  bool centred;
};

void run(const Case& c, int64_t m, Arithmetic arithmetic, QmatmulArm arm, const Limits& limits, const char* filter) {
  const std::string name =
      std::string(c.name) + " m" + std::to_string(m) + " " + arithmetic_name(arithmetic) + " " + qmatmul_arm_name(arm);
  if (name.find(filter) == std::string::npos) return;
  const RandomMatrix source(c.rows, c.cols, c.bits, c.group, c.scale, c.centred);
  const double pack_start = now();
  auto packed = qmatmul_pack(source, 0, c.rows);
  const double pack_ms = 1e3 * (now() - pack_start);
  if (!packed) {
    std::printf("%s: %s\n", name.c_str(), packed.error().message.c_str());
    return;
  }
  std::vector<float> x(static_cast<size_t>(m * c.cols), 0.5f), y(static_cast<size_t>(m * c.rows));
  const CpuMatrix* const one[] = {packed->get()};
  CpuInput input;
  input.prepare(x.data(), m, c.cols, c.cols, arithmetic);
  const auto product = [&] { qmatmul_multi(one, input, y.data(), c.rows, arm); };
  Times t = time_it(product);
  double read = limits.read;
  if ((*packed)->packed_bytes > kBeyondCaches && m <= 16) {
    // Other programs share the memory: limit and product take turns, so that both see the same neighbours.
    std::vector<double> products, reads;
    const double start = now();
    while (products.size() < 10 || now() - start < 4 * g_seconds) {
      double t0 = now();
      limits.reader.read();
      reads.push_back(now() - t0), t0 = now();
      product();
      products.push_back(now() - t0);
    }
    std::ranges::sort(products), std::ranges::sort(reads);
    t = {products.front(), products[products.size() / 2]};
    read = static_cast<double>(ReadLimit::kBytes) / reads.front() / 1e9;
  }
  g_sink += y[0];
  const double bytes = static_cast<double>((*packed)->packed_bytes) / t.best / 1e9;
  const double flops = 2e-9 * static_cast<double>(m * c.rows * c.cols) / t.best;
  const QmatmulPlan plan = qmatmul_plan_for(**packed, m, arithmetic, arm);
  const bool bf16 = plan.variant != QmatmulVariant::kRowsF32 && plan.variant != QmatmulVariant::kPanelF32;
  const double peak = bf16 ? limits.flops_bf16 : limits.flops_f32;
  std::printf("%-34s %-18s %9.1f us (median %9.1f)  %6.2f GB/s", name.c_str(), qmatmul_variant_name(plan.variant),
              t.best * 1e6, t.median * 1e6, bytes);
  if (m <= 16) std::printf(" %4.0f%% of read", 100 * bytes / read);
  std::printf("  %7.1f GFLOP/s", flops);
  if (peak > 0 && plan.variant != QmatmulVariant::kPanelBf16Amx) std::printf(" %4.0f%% of peak", 100 * flops / peak);
  std::printf("  (packed in %.0f ms, its source included)\n", pack_ms);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const char* filter = "";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      set_threads(std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      g_seconds = std::atof(argv[++i]);
    } else {
      filter = argv[i];
    }
  }
  const ReadLimit reader;
  Limits limits{reader, reader.rate()};
#if defined(__x86_64__)
  if (cpu_caps().avx512_bf16) limits.flops_bf16 = peak(dot_loop, 64);
  if (cpu_caps().avx512) limits.flops_f32 = peak(fma_loop, 32);
#endif
  std::printf("cpu: %s; %d threads; read 192 MB: %.2f GB/s; vdpbf16ps %.0f, f32 fma %.0f GFLOP/s\n",
              cpu_caps_str(cpu_caps()).c_str(), threads(), limits.read, limits.flops_bf16, limits.flops_f32);
  const DType f16 = DType::kF16, f32 = DType::kF32;
  const Case cases[] = {
      {"q4_1 576x576", 576, 576, 4, 32, f16, false},       {"q4_1 3072x576", 3072, 576, 4, 32, f16, false},
      {"q4_1 576x1536", 576, 1536, 4, 32, f16, false},     {"q8_0 49152x576", 49152, 576, 8, 32, f16, true},
      {"q8_0 262144x640", 262144, 640, 8, 32, f16, true},  {"q5_0 4096x640", 4096, 640, 5, 32, f16, true},
      {"q4_k 640x2048", 640, 2048, 4, 32, f32, false},     {"q6_k 640x2048", 640, 2048, 6, 16, f32, true},
      {"q4_1 65536x4096", 65536, 4096, 4, 32, f16, false}, {"q3 4096x4096", 4096, 4096, 3, 64, f16, false},
      {"q2 4096x4096", 4096, 4096, 2, 64, f16, false},     {"bf16 16384x4096", 16384, 4096, 16, 0, f16, false},
  };
  for (const Case& c : cases)
    for (const Arithmetic arithmetic : {Arithmetic::kBF16, Arithmetic::kF32}) {
      for (const int64_t m : {1, 2, 4, 8, 16}) run(c, m, arithmetic, QmatmulArm::kRows, limits, filter);
      if (c.rows <= 4096)
        for (const int64_t m : {8, 16, 32, 64, 512}) run(c, m, arithmetic, QmatmulArm::kPanel, limits, filter);
    }
  return g_sink == 12345.678 ? 1 : 0;
}
