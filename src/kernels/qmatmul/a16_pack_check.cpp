#include "kernels/check_rig.h"
#include "kernels/op_checks.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul/a16_pack_cuda.h"

namespace galvani::kernels {
namespace {

constexpr int kRows = 35, kCols = 160, kGroup = 32;  // a tile and a unit that are not full

/// A matrix of synthetic words, as a checkpoint would hold it.
quant::AffineTensor make_rows(int bits, const quant::SyntheticWords& words) {
  quant::AffineTensor tensor = quant::make_affine_tensor(kRows, kCols, bits, kGroup, DType::kBF16);
  const quant::AffineView& view = tensor.view;
  const auto write = [&](const std::byte* at, const void* from, size_t bytes) {
    std::memcpy(tensor.storage.data() + (at - tensor.storage.data()), from, bytes);
  };
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t w = 0; w < view.row_code_bytes() / 4; ++w) {
      const uint32_t word = quant::synthetic_word(words.seed, r, w);
      write(view.codes + r * view.row_code_bytes() + 4 * w, &word, 4);
    }
  for (int64_t i = 0; i < kRows * view.groups(); ++i) {
    write(view.scales + 2 * i, &words.scale, 2);
    write(view.biases + 2 * i, &words.bias, 2);
  }
  return tensor;
}

/// Bytes that differ from the CPU's packing, made from sent rows and from the seed.
Result<KernelVerdict> check_width(CheckRig& rig, int bits) {
  const quant::SyntheticWords words{rig.random()(), f32_to_bf16(0.01f), f32_to_bf16(-0.1f)};
  const quant::AffineTensor tensor = make_rows(bits, words);
  const A16Format format{bits, kGroup, A16Scale::kBF16};
  std::vector<std::byte> wanted(static_cast<size_t>(a16_bytes(format, kRows, kCols)));
  a16_pack_tiles(tensor.view, format, 0, a16_row_tiles(kRows), wanted.data());
  A16PackArgs args = a16_pack_args(format, kRows, kCols);
  args.synthetic = words;
  GALVANI_TRY(const std::byte* sent, rig.upload(tensor.storage));
  const auto at = [&](const std::byte* p) { return sent + (p - tensor.storage.data()); };
  size_t differ = 0;
  for (const bool synthetic : {false, true}) {
    args.codes = synthetic ? nullptr : reinterpret_cast<const unsigned*>(at(tensor.view.codes));
    args.scales = at(tensor.view.scales), args.biases = at(tensor.view.biases);
    GALVANI_TRY(void* out, rig.output(wanted.size() / 4, StoreType::kF32));
    args.out = static_cast<unsigned char*>(out);
    GALVANI_TRY_VOID(a16_pack_cuda(rig.stream(), bits, args));
    std::vector<std::byte> got(wanted.size());
    GALVANI_TRY_VOID(rig.stream().to_host(got.data(), out, got.size()));
    GALVANI_TRY_VOID(rig.stream().synchronize());
    for (size_t i = 0; i < got.size(); ++i) differ += got[i] != wanted[i];
  }
  return KernelVerdict{fmt::format("a16_pack_q{}_sm70", bits), differ == 0 ? 0.0 : 2.0,
                       fmt::format("{} bytes of {} differ", differ, 2 * wanted.size())};
}

}  // namespace

std::vector<std::string> checked_a16_pack(const DeviceCaps&) {
  std::vector<std::string> names;
  for (const int bits : {2, 3, 4, 5, 6, 8}) names.push_back(fmt::format("a16_pack_q{}_sm70", bits));
  return names;
}

Result<std::vector<KernelVerdict>> check_a16_pack(cuda::CudaDevice& device, uint64_t seed) {
  GALVANI_TRY(CheckRig rig, CheckRig::create(device, seed));
  std::vector<KernelVerdict> verdicts;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    GALVANI_TRY(verdicts.emplace_back(), check_width(rig, bits));
  }
  return verdicts;
}

}  // namespace galvani::kernels
