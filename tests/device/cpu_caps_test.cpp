#include "device/cpu_caps.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace galvani {
namespace {

TEST(CpuCaps, FeaturesImplyTheirBase) {
  const CpuCaps& caps = cpu_caps();
  EXPECT_TRUE(!caps.avx512 || caps.avx2);
  EXPECT_TRUE(!caps.avx512_bf16 || caps.avx512);
  EXPECT_TRUE(!caps.avx512_vnni || caps.avx512);
  EXPECT_TRUE(!caps.amx_bf16 || caps.avx512_bf16);
  EXPECT_FALSE(caps.avx2 && caps.neon);
}

TEST(CpuCaps, AgreesWithTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(file, line) && flags.empty();) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) flags.insert(word);
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags line on this machine";
  const CpuCaps& caps = cpu_caps();
  EXPECT_EQ(caps.avx2, flags.contains("avx2") && flags.contains("fma") && flags.contains("f16c"));
  EXPECT_EQ(caps.avx512, flags.contains("avx512bw") && flags.contains("avx512vl") && flags.contains("avx512dq"));
  EXPECT_EQ(caps.avx512_vbmi, flags.contains("avx512vbmi"));
  EXPECT_EQ(caps.avx512_vnni, flags.contains("avx512_vnni"));
  EXPECT_EQ(caps.avx512_bf16, flags.contains("avx512_bf16"));
  // The kernel may list AMX and still refuse the tile registers.
  EXPECT_TRUE(!caps.amx_bf16 || flags.contains("amx_bf16"));
}

TEST(CpuCaps, NamesWhatThereIs) {
  EXPECT_EQ(cpu_caps_str({}), "none");
  EXPECT_EQ(cpu_caps_str({.avx2 = true, .amx_bf16 = true}), "avx2 amx_bf16");
}

}  // namespace
}  // namespace galvani
