// The table of known parts, and what a plan for a part that is not here may assume.
#include "device/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace galvani {
namespace {

TEST(Parts, AllThatAreSupportedAreThere) {
  std::set<std::string> keys;
  for (const Part& part : known_parts()) EXPECT_TRUE(keys.insert(part.key).second) << part.key;
  for (const char* key : {"v100-pcie", "v100-sxm", "t4", "2080ti", "a100-40", "a100-80", "3090", "a10", "l4", "l40s",
                          "4090", "h100-pcie", "h100-sxm", "h200", "gh200", "b200", "gb10", "5090", "unknown"})
    EXPECT_EQ(keys.count(key), 1u) << key;
  EXPECT_EQ(find_part("v100"), find_part("V100-SXM"));
  EXPECT_EQ(find_part("H200")->caps.cc, 90);
}

TEST(Parts, AreFoundHoweverTheyAreSpelled) {
  const std::pair<const char*, const char*> spellings[] = {{"rtx5090", "5090"},
                                                           {"RTX 5090", "5090"},
                                                           {"geforce-rtx-5090", "5090"},
                                                           {"NVIDIA GeForce RTX 5090", "5090"},
                                                           {"RTX_4090", "4090"},
                                                           {"2080 Ti", "2080ti"},
                                                           {"H200 SXM", "h200"},
                                                           {"h200-sxm", "h200"},
                                                           {"NVIDIA H200", "h200"},
                                                           {"h200 sxm 141 gb", "h200"},
                                                           {"H100 SXM", "h100-sxm"},
                                                           {"H100PCIe", "h100-pcie"},
                                                           {"Tesla V100", "v100-sxm"},
                                                           {"V100 SXM2", "v100-sxm"},
                                                           {"v100pcie", "v100-pcie"},
                                                           {"Tesla T4", "t4"},
                                                           {"a100_40", "a100-40"},
                                                           {"GB10", "gb10"},
                                                           {"gh200", "gh200"},
                                                           {"NVIDIA A100-SXM4-80GB", "a100-80"},
                                                           {"NVIDIA A100-SXM4-40GB", "a100-40"},
                                                           {"NVIDIA A100 80GB PCIe", "a100-80"},
                                                           {"NVIDIA H100 80GB HBM3", "h100-sxm"},
                                                           {"NVIDIA H100 PCIe", "h100-pcie"},
                                                           {"NVIDIA GH200 480GB", "gh200"},
                                                           {"Tesla V100-SXM2-32GB", "v100-sxm"},
                                                           {"Tesla V100-PCIE-32GB", "v100-pcie"}};
  for (const auto& [spelling, key] : spellings) {
    const Part* part = find_part(spelling);
    ASSERT_NE(part, nullptr) << spelling;
    EXPECT_STREQ(part->key, key) << spelling;
  }
  // Near misses are other parts, not these.
  for (const char* other :
       {"", "a1", "rtx", "nvidia", "2080", "h20", "5090d", "l40", "t400", "v1000", "geforce 509",
        "NVIDIA GeForce RTX 3090 Ti", "NVIDIA H200 NVL", "NVIDIA A1000", "Tesla V100-SXM2-16GB", "NVIDIA RTX A6000"})
    EXPECT_EQ(find_part(other), nullptr) << other;
}

TEST(Parts, AnUnknownNameIsAnsweredWithThoseLikeIt) {
  EXPECT_EQ(part_keys_like("h20"), "h200, gh200");
  EXPECT_EQ(part_keys_like("v10"), "v100-sxm, v100-pcie, a10");
  EXPECT_EQ(part_keys_like("RTX 4090 Ti"), "4090, 2080ti");
  EXPECT_EQ(part_keys_like("l40"), "l40s, l4");
  EXPECT_EQ(part_keys_like("banana"), "");
  EXPECT_EQ(part_keys_like(""), "");
}

TEST(Parts, NumbersArePlausibleAndSourced) {
  for (const Part& part : known_parts()) {
    const DeviceCaps& caps = part.caps;
    EXPECT_GT(std::string(part.source).size(), 10u) << part.key;
    EXPECT_LE(caps.smem_optin + 1024, caps.smem_per_sm + 1024) << part.key;
    EXPECT_NE(best_image(caps.images, caps.cc), nullptr) << part.key << ": its own build runs on it";
    EXPECT_EQ(caps, with_images(caps, caps.images)) << part.key << ": features are derived";
    EXPECT_EQ(part.bf16_tflops > 0, caps.has(Feature::kBf16) && caps.peak_gbps > 0) << part.key;
    EXPECT_EQ(part.fp8_tflops > 0, caps.has(Feature::kFp8Mma) && caps.peak_gbps > 0) << part.key;
    if (caps.peak_gbps == 0) continue;
    // Tensor operations a byte of memory: from 40 (3090 with f32 sums: 76) to 460.
    const double ridge = part.f16_tflops * 1e3 / caps.peak_gbps;
    EXPECT_GT(ridge, 70) << part.key;
    EXPECT_LT(ridge, 500) << part.key;
  }
  EXPECT_TRUE(find_part("h200")->caps.has(Feature::kWgmma));
  EXPECT_FALSE(find_part("b200")->caps.has(Feature::kWgmma));
  EXPECT_TRUE(find_part("gb10")->caps.has(Feature::kBlockScaledMma));
}

TEST(Parts, AreRecognisedByNameCapabilityAndSize) {
  const auto key = [](const char* name, int cc, int sms, int64_t gib) {
    DeviceCaps caps;
    caps.cc = cc, caps.sms = sms, caps.memory_bytes = gib << 30;
    const Part* part = part_of_device(name, caps);
    return std::string(part == nullptr ? "-" : part->key);
  };
  EXPECT_EQ(key("NVIDIA H200", 90, 132, 139), "h200");
  EXPECT_EQ(key("NVIDIA H100 80GB HBM3", 90, 132, 79), "h100-sxm");
  EXPECT_EQ(key("NVIDIA H100 PCIe", 90, 114, 79), "h100-pcie");
  EXPECT_EQ(key("NVIDIA GH200 480GB", 90, 132, 95), "gh200");
  EXPECT_EQ(key("NVIDIA A100-SXM4-40GB", 80, 108, 39), "a100-40");
  EXPECT_EQ(key("NVIDIA A100-SXM4-80GB", 80, 108, 79), "a100-80");
  EXPECT_EQ(key("NVIDIA A10", 86, 72, 22), "a10");
  EXPECT_EQ(key("NVIDIA A10G", 86, 80, 22), "-");
  EXPECT_EQ(key("NVIDIA GeForce RTX 4090", 89, 128, 23), "4090");
  EXPECT_EQ(key("NVIDIA L4", 89, 58, 22), "l4");
  EXPECT_EQ(key("NVIDIA L40S", 89, 142, 44), "l40s");
  EXPECT_EQ(key("Tesla V100-SXM2-16GB", 70, 80, 16), "v100-sxm");
  EXPECT_EQ(key("Tesla V100-PCIE-32GB", 70, 80, 32), "v100-pcie");
  EXPECT_EQ(key("NVIDIA GB10", 121, 48, 119), "gb10");
  EXPECT_EQ(key("NVIDIA H200", 100, 132, 139), "-") << "the capability must agree";
  EXPECT_EQ(key("NVIDIA B300", 103, 148, 268), "-");
}

}  // namespace
}  // namespace galvani
