// Which images a device runs, over every capability there is and one that nobody knows yet.
#include "device/cuda_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "device/features.h"

namespace galvani {
namespace {

using testing::HasSubstr;

constexpr int kCapabilities[] = {50, 52, 53, 60, 61,  62,  70,  72,  75,  80,  86,
                                 87, 88, 89, 90, 100, 101, 103, 110, 120, 121, 139};

CudaImage image(const char* text) { return *parse_cuda_image(text); }

std::set<int> runs_on(const char* text) {
  std::set<int> devices;
  for (const int cc : kCapabilities)
    if (covers(image(text), cc)) devices.insert(cc);
  return devices;
}

// Written out from the CUDA C++ programming guide, not computed the way covers() does.
TEST(CudaImage, CoversExactlyTheDevicesOfTheGuide) {
  const std::map<std::string, std::set<int>> expected = {
      {"50", {50, 52}},
      {"60", {60, 61}},
      {"61", {61}},
      {"70", {70, 75}},
      {"72", {72}},
      {"75", {75}},
      {"80", {80, 86, 88, 89}},
      {"86", {86, 88, 89}},
      {"87", {87}},
      {"89", {89}},
      {"90", {90}},
      {"90a", {90}},
      {"100", {100, 103}},
      {"100a", {100}},
      {"100f", {100, 103}},
      {"101f", {101}},
      {"103a", {103}},
      {"103f", {103}},
      {"110f", {110}},
      {"120", {120, 121}},
      {"120a", {120}},
      {"120f", {120, 121}},
      {"121a", {121}},
      {"121f", {121}},
      {"70-virtual", {70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121, 139}},
      {"80-virtual", {80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121, 139}},
      {"90-virtual", {90, 100, 101, 103, 110, 120, 121, 139}},
      {"90a-virtual", {90}},
      {"100f-virtual", {100, 103}},
      {"120a-virtual", {120}},
      {"120-virtual", {120, 121, 139}},
  };
  for (const auto& [text, devices] : expected) EXPECT_EQ(runs_on(text.c_str()), devices) << text;
}

TEST(CudaImage, EveryBuildIsSilentOrNamesDeviceListAndCure) {
  const char* builds[] = {"75;80;86;89;90a;100f;120f",
                          "70;75;80;86;89;90a",
                          "90a",
                          "90",
                          "120f",
                          "80-virtual",
                          "80;90",
                          "75-virtual",
                          "86",
                          "100a;103a",
                          ""};
  int silent = 0, refused = 0;
  for (const char* build : builds) {
    const CudaImageList list = *parse_cuda_images(build);
    for (const int cc : kCapabilities) {
      bool any = false;
      for (const CudaImage& one : list) any = any || covers(one, cc);
      const Status status = check_coverage(list, cc, "the card");
      ASSERT_EQ(status.has_value(), any) << build << " on " << cc;
      if (status) {
        ++silent;
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
      EXPECT_THAT(status.error().message, HasSubstr("the card has compute capability " + compute_capability_str(cc)));
      EXPECT_THAT(status.error().message, HasSubstr(list.empty() ? "no architecture" : build));
      EXPECT_THAT(status.error().message, testing::EndsWith("use --device cpu"));
      // The cure that is named does cure; none is where no build would run a model (nor would CUDA 13 compile it).
      if (cc < kLeastToRunModels) {
        EXPECT_THAT(status.error().message, testing::Not(HasSubstr("rebuild")));
        continue;
      }
      const std::string cure = arch_to_build_for(cc);
      EXPECT_THAT(status.error().message, HasSubstr("-DGALVANI_CUDA_ARCHS=" + cure + ", or"));
      EXPECT_TRUE(covers(image(cure.c_str()), cc)) << cure << " on " << cc;
    }
  }
  EXPECT_GT(silent, 50);
  EXPECT_GT(refused, 100);
}

TEST(CudaImage, TheBestOfSeveralImages) {
  const CudaImageList list = *parse_cuda_images("80-virtual;80;86;90;90a;100f;103a;120-virtual");
  const auto best = [&](int cc) {
    return best_image(list, cc) == nullptr ? "none" : cuda_image_str(*best_image(list, cc));
  };
  EXPECT_EQ(best(75), "none");
  EXPECT_EQ(best(80), "sm_80");
  EXPECT_EQ(best(89), "sm_86");
  EXPECT_EQ(best(87), "compute_80");
  EXPECT_EQ(best(90), "sm_90a");
  EXPECT_EQ(best(100), "sm_100f");
  EXPECT_EQ(best(103), "sm_103a");
  EXPECT_EQ(best(121), "compute_120");
  EXPECT_EQ(best(139), "compute_120");
}

TEST(CudaImage, Texts) {
  for (const char* text : {"75", "80-virtual", "90a", "100f", "103a", "121f"})
    EXPECT_EQ(cuda_images_str(*parse_cuda_images(text)), text);
  EXPECT_EQ(image("sm_90a"), image("90a"));
  EXPECT_EQ(image("compute_80"), image("80-virtual"));
  EXPECT_EQ(image("86-real"), image("86"));
  for (const char* text :
       {"", "a", "9.0", "90b", "90aa", "sm_", "-90", "1000", "90a-virtual-real", "sm_90-virtual", "99999999999"})
    EXPECT_FALSE(parse_cuda_image(text)) << text;
  EXPECT_THAT(parse_cuda_images("75;90x").error().message, HasSubstr("'90x' is no CUDA architecture"));
  std::string many;
  for (int i = 0; i < 25; ++i) many += "90;";
  EXPECT_FALSE(parse_cuda_images(many));
}

TEST(CudaImage, FeaturesBelongToTheImage) {
  const auto has = [](const char* text, Feature feature) { return features_of(image(text)).has(feature); };
  for (const char* text : {"75", "80", "89", "90", "90-virtual", "100f", "100a", "120f"})
    EXPECT_FALSE(has(text, Feature::kWgmma)) << text;
  EXPECT_TRUE(has("90a", Feature::kWgmma));
  EXPECT_FALSE(has("75", Feature::kBf16));
  EXPECT_TRUE(has("80-virtual", Feature::kBf16));
  EXPECT_FALSE(has("80-virtual", Feature::kBulkCopy)) << "also on a 9.0 device";
  EXPECT_TRUE(has("90", Feature::kCluster));
  EXPECT_FALSE(has("90", Feature::kSetmaxnreg));
  EXPECT_TRUE(has("103f", Feature::kTcgen05));
  EXPECT_FALSE(has("120f", Feature::kTcgen05));
  EXPECT_TRUE(has("121f", Feature::kBlockScaledMma));
  // More images never take a feature away, and a plain newer image never lacks what an older plain one has.
  Features last;
  for (const int cc : kCapabilities) {
    const Features now = features_of({cc, 0, false});
    if (!is_tegra(cc)) {
      EXPECT_TRUE(now.has(last)) << cc;
      last = now;
    }
  }
}

TEST(CudaImage, ArmsAreCompiledForWhatTheirNameNeeds) {
  const auto fits = [](const char* arm, const char* text) { return arm_compiles_for(image(arm), image(text)); };
  EXPECT_TRUE(fits("80", "80") && fits("80", "90a") && fits("80", "120f") && fits("75", "80-virtual"));
  EXPECT_FALSE(fits("80", "75") || fits("90", "80-virtual"));
  EXPECT_TRUE(fits("90a", "90a"));
  EXPECT_FALSE(fits("90a", "90") || fits("90a", "100a") || fits("90a", "100f"));
  EXPECT_TRUE(fits("120f", "120f") && fits("120f", "120a") && fits("120f", "121a"));
  EXPECT_FALSE(fits("120f", "120") || fits("120f", "100f") || fits("120f", "121"));
}

}  // namespace
}  // namespace galvani
