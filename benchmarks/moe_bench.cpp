/// What share of the machine's read rate a mixture of experts reaches when few tokens are decoded.
///
///   moe_bench [--threads T] [--seconds S] [--act f32|bf16] [MODEL…]
/// First one layer of a synthetic shape (Qwen3-30B-A3B: 128 experts of 768 × 2048, 8 a token, 4 bits in groups of 64)
/// with random routing, in parts and whole; then decoding steps of each MODEL. Bytes are those of the experts that a
/// step touched, each counted once, and for a model of everything else that a step reads. The limit, a sum over a
/// buffer beyond the caches, is taken in turns with the product, so that both see the same neighbours.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "engine/runner.h"
#include "exec/cpu_ops.h"
#include "kernels/common/large_pages.h"
#include "kernels/moe/moe.h"
#include "kernels/qmatmul/qmatmul.h"

namespace {
using namespace galvani;

double g_seconds = 1.0;
kernels::Arithmetic g_arithmetic = kernels::Arithmetic::kBF16;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Random codes, f16 scales and biases.
class RandomMatrix final : public quant::MatrixSource {
 public:
  RandomMatrix(int64_t rows, int64_t cols, int group, uint32_t seed) : seed_(seed) {
    name_ = "random", rows_ = rows, cols_ = cols, bits_ = 4, group_ = group;
    kind_ = quant::MatrixKind::kAffine, dtype_ = DType::kF16;
  }
  Status dequant_rows(int64_t, int64_t, float*) const override { return {}; }
  Result<quant::AffineTensor> affine(int64_t r0, int64_t r1, int64_t, int64_t) const override {
    quant::AffineTensor t = quant::make_affine_tensor(r1 - r0, cols_, bits_, group_, dtype_);
    std::minstd_rand random(seed_ + static_cast<uint32_t>(r0));
    const int64_t codes = (r1 - r0) * cols_ / 2, groups = (r1 - r0) * cols_ / group_;
    for (int64_t i = 0; i < codes; ++i) t.storage[static_cast<size_t>(i)] = static_cast<std::byte>(random() >> 8);
    const auto put = [&](const std::byte* to, float value) {
      const uint16_t half = f32_to_f16(value);
      std::memcpy(t.storage.data() + (to - t.storage.data()), &half, 2);
    };
    for (int64_t g = 0; g < groups; ++g) {
      const float scale = 1e-3f * static_cast<float>(1 + random() % 50);
      put(t.view.scales + 2 * g, scale), put(t.view.biases + 2 * g, -7.3f * scale);
    }
    return t;
  }

 private:
  uint32_t seed_;
};

class ReadLimit {
 public:
  static constexpr int64_t kBytes = int64_t{192} << 20;
  ReadLimit() : memory_(kBytes), data_(reinterpret_cast<uint64_t*>(memory_.data())) {
    parallel_for(kBytes / 8, 4096, [&](int64_t a, int64_t b, int) { std::fill(data_ + a, data_ + b, 3); });
  }
  /// Seconds of one pass.
  double read() const {
    const double start = now();
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
    return now() - start;
  }

 private:
  kernels::LargePageBuffer memory_;
  uint64_t* data_;
};

/// Repeats `body`, which returns the bytes it read, in turns with the read limit; `before` it is not timed.
template <typename Before, typename Body>
void report(const std::string& name, const ReadLimit& limit, const Before& before, const Body& body) {
  before(), body();
  std::vector<double> times, rates, reads;
  const double start = now();
  while (times.size() < 10 || (now() - start < g_seconds && times.size() < 2000)) {
    if (times.size() % 8 == 0) reads.push_back(limit.read());
    before();
    const double t = now();
    const double bytes = body();
    times.push_back(now() - t), rates.push_back(bytes / times.back() / 1e9);
  }
  const double read = static_cast<double>(ReadLimit::kBytes) / *std::ranges::min_element(reads) / 1e9;
  const double best = *std::ranges::max_element(rates);
  std::printf("%-44s %9.1f us (median)  %6.1f GB/s best, %6.1f median  %3.0f%% of read %.1f\n", name.c_str(),
              1e6 * median(times), best, median(rates), 100 * best / read, read);
  std::fflush(stdout);
}

constexpr int kExperts = 128, kTopK = 8;
constexpr int64_t kHidden = 2048, kInner = 768;

struct Layer {
  std::unique_ptr<exec::Ops> ops;
  exec::MoeLayer moe;
  double expert_bytes = 0, router_bytes = 0;
};

/// Several layers in one Ops, so that steps walk through more than the caches hold.
Layer make_layer() {
  Layer layer;
  exec::OpsOptions options;
  options.arithmetic = g_arithmetic;
  layer.ops = std::move(*exec::create_cpu_ops(options));
  std::vector<std::vector<exec::LinearPart>> gate_up, down;
  for (uint32_t e = 0; e < kExperts; ++e) {
    gate_up.push_back({{std::make_shared<RandomMatrix>(kInner, kHidden, 64, 3 * e), {}},
                       {std::make_shared<RandomMatrix>(kInner, kHidden, 64, 3 * e + 1), {}}});
    down.push_back({{std::make_shared<RandomMatrix>(kHidden, kInner, 64, 3 * e + 2), {}}});
  }
  layer.moe.gate_up = *layer.ops->load_stack("gate_up", gate_up, kTopK);
  layer.moe.down = *layer.ops->load_stack("down", down, kTopK);
  layer.expert_bytes = static_cast<double>(layer.ops->weight_bytes()) / kExperts;
  const exec::LinearPart router{std::make_shared<RandomMatrix>(kExperts, kHidden, 64, 999), {}};
  layer.moe.router.gate = *layer.ops->load_linear("router", std::span(&router, 1));
  layer.router_bytes = static_cast<double>(layer.ops->weight_bytes()) - layer.expert_bytes * kExperts;
  layer.moe.router.experts = kExperts;
  layer.moe.router.top_k = kTopK;
  layer.moe.router.renormalize = true;
  return layer;
}

/// Experts touched since the counts were `before`, which is brought up to date.
int touched(const exec::Ops& ops, std::vector<std::vector<uint64_t>>& before) {
  int count = 0;
  const auto& counts = ops.expert_counts();
  before.resize(counts.size());
  for (size_t l = 0; l < counts.size(); ++l) {
    before[l].resize(counts[l].size());
    for (size_t e = 0; e < counts[l].size(); ++e) count += counts[l][e] != before[l][e];
    before[l] = counts[l];
  }
  return count;
}

void whole_layer(Layer& layer, int64_t rows, const ReadLimit& limit) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * kHidden));
  auto state = exec::State::create({}, {.context = 64, .max_sequences = 1, .max_chunk = 64}, exec::host_memory());
  std::vector<std::vector<uint64_t>> counts;
  const auto choose = [&] {
    for (float& v : x) v = normal(random);
  };
  report("layer, " + std::to_string(rows) + " tokens", limit, choose, [&] {
    exec::Batch batch;
    layer.ops->begin_step(batch, **state);
    layer.ops->begin_layer(0);
    layer.ops->moe({x.data(), rows, kHidden, kHidden}, std::nullopt, layer.moe);
    return touched(*layer.ops, counts) * layer.expert_bytes + layer.router_bytes;
  });
}

/// The gate and up products of a step alone: all experts in one parallel region, or one region an expert.
void products(int64_t rows, bool grouped, const ReadLimit& limit) {
  std::vector<std::unique_ptr<kernels::CpuMatrix>> matrices;
  double bytes = 0;
  for (uint32_t e = 0; e < kExperts; ++e) {
    matrices.push_back(std::move(*kernels::qmatmul_pack(RandomMatrix(2 * kInner, kHidden, 64, e), 0, 2 * kInner)));
    bytes = static_cast<double>(matrices.back()->packed_bytes);
  }
  std::mt19937 random(5);
  const int64_t places = rows * kTopK;
  std::vector<float> x(static_cast<size_t>(places * kHidden), 0.5f), y(static_cast<size_t>(places * 2 * kInner));
  kernels::CpuInput input;
  kernels::ExpertGroups groups;
  std::vector<int32_t> ids(static_cast<size_t>(places)), order(kExperts);
  report(
      std::string("gate and up, ") + (grouped ? "one region, " : "a region an expert, ") + std::to_string(rows) +
          " tokens",
      limit,
      [&] {
        for (int64_t t = 0; t < rows; ++t) {
          for (int32_t e = 0; e < kExperts; ++e) order[static_cast<size_t>(e)] = e;
          for (size_t j = 0; j < kTopK; ++j) {
            std::swap(order[j], order[j + random() % (kExperts - j)]);
            ids[static_cast<size_t>(t * kTopK) + j] = order[j];
          }
        }
        groups.build(ids.data(), rows, kTopK, kExperts);
      },
      [&] {
        if (grouped) {
          input.prepare_rows(x.data(), groups.tokens, kHidden, kHidden, g_arithmetic);
          std::vector<kernels::QmatmulItem> items;
          std::vector<const kernels::CpuMatrix*> segments;
          for (const auto& m : matrices) segments.push_back(m.get());
          for (const auto& g : groups.groups)
            items.push_back({{&segments[static_cast<size_t>(g.expert)], 1}, g.first, g.first, g.count});
          kernels::qmatmul_grouped(items, input, y.data(), 2 * kInner);
        } else {
          for (const auto& g : groups.groups)
            kernels::qmatmul(*matrices[static_cast<size_t>(g.expert)], x.data() + g.first * kHidden, g.count, kHidden,
                             y.data() + g.first * 2 * kInner, 2 * kInner, g_arithmetic);
        }
        return static_cast<double>(groups.groups.size()) * bytes;
      });
}

void decode(const std::string& model, int sequences, const ReadLimit& limit) {
  LoadOptions options;
  options.model = model;
  options.act = kernels::arithmetic_name(g_arithmetic);
  options.max_sequences = sequences;
  options.context = 128;
  auto loaded = engine::Runner::load(options);
  if (!loaded) {
    std::printf("%s: %s\n", model.c_str(), loaded.error().message.c_str());
    return;
  }
  engine::Runner& runner = **loaded;
  std::mt19937 random(5);
  std::vector<exec::SeqId> ids;
  for (int s = 0; s < sequences; ++s) ids.push_back(*runner.state().create_sequence());
  int position = 0;
  std::vector<std::vector<uint64_t>> counts;
  // One expert of one layer: weight_bytes has all of them, step_bytes as many as a token uses.
  const auto& config = runner.checkpoint().config();
  const double experts = config.value("num_experts", config.value("num_local_experts", 0));
  const double active = config.value("num_experts_per_tok", 0);
  const auto step = static_cast<double>(runner.ops().step_bytes());
  double layers = 0;
  const auto restart = [&] {  // short texts, so that experts are what is measured
    if (position < 64) return;
    for (exec::SeqId& id : ids) runner.state().release(id);
    for (exec::SeqId& id : ids) id = *runner.state().create_sequence();
    position = 0;
  };
  report(model.substr(model.rfind('/') + 1) + ", " + std::to_string(sequences) + " sequences", limit, restart, [&] {
    exec::Batch batch;
    for (const exec::SeqId id : ids) {
      const auto token = static_cast<int32_t>(random() % static_cast<uint64_t>(runner.info().vocab));
      batch.add(id, position, std::span(&token, 1), exec::WantLogits::kLast);
    }
    ++position;
    if (!runner.forward(batch)) std::printf("a step failed\n");
    const double used = touched(runner.ops(), counts);
    layers = 0;
    for (const auto& layer : counts) layers += layer.empty() ? 0 : 1;
    const double expert = (static_cast<double>(runner.ops().weight_bytes()) - step) / ((experts - active) * layers);
    return step + (used - active * layers) * expert;
  });
  std::printf("%44s one step of one sequence reads %.2f MB, all weights are %.2f MB\n", "", step / 1e6,
              static_cast<double>(runner.ops().weight_bytes()) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> models;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
      set_threads(std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
      g_seconds = std::atof(argv[++i]);
    else if (std::strcmp(argv[i], "--act") == 0 && i + 1 < argc)
      g_arithmetic = std::strcmp(argv[++i], "f32") == 0 ? kernels::Arithmetic::kF32 : kernels::Arithmetic::kBF16;
    else
      models.emplace_back(argv[i]);
  }
  const ReadLimit limit;
  std::printf("%d threads, %s\n", threads(), kernels::arithmetic_name(g_arithmetic));
  if (models.empty()) {
    for (const int64_t rows : {1, 4, 16})
      for (const bool grouped : {false, true}) products(rows, grouped, limit);
    Layer layer = make_layer();
    for (const int64_t rows : {1, 4, 16, 64}) whole_layer(layer, rows, limit);
  }
  for (const std::string& model : models)
    for (const int sequences : {1, 4, 16}) decode(model, sequences, limit);
}
