#include "device/parts.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

namespace galvani {
namespace {

constexpr int kKiB = 1024;
constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

constexpr DeviceCaps caps_of(int cc, int sms, int optin_kib, int per_sm_kib, int threads_per_sm, int64_t l2_mib,
                             int64_t gib, double gbps) {
  DeviceCaps caps;
  caps.cc = cc, caps.sms = sms;
  caps.smem_optin = optin_kib * kKiB, caps.smem_per_sm = per_sm_kib * kKiB;
  caps.max_threads_per_sm = threads_per_sm;
  caps.l2_bytes = l2_mib * kMiB, caps.memory_bytes = gib * kGiB, caps.peak_gbps = gbps;
  return with_images(caps, images_made_for(cc));
}

// Shared memory, threads: CUDA C++ programming guide, "Technical specifications per compute capability". The rest as
// `source` says. Where two datasheets of a part differ, the lower rate.
constexpr Part kParts[] = {
    {"v100-sxm", "Tesla V100 SXM2 32 GB", "V100-SXM2", caps_of(70, 80, 96, 96, 2048, 6, 32, 900), 125, 0, 0, 63,
     "NVIDIA V100 datasheet; int8 = dp4a, computed from clock and lanes"},
    {"v100-pcie", "Tesla V100 PCIe 32 GB", "V100-PCIE", caps_of(70, 80, 96, 96, 2048, 6, 32, 900), 112, 0, 0, 56,
     "NVIDIA V100 datasheet; int8 = dp4a, computed from clock and lanes"},
    {"t4", "T4", "T4", caps_of(75, 40, 64, 64, 1024, 4, 16, 320), 65, 0, 0, 130, "NVIDIA T4 datasheet"},
    {"2080ti", "GeForce RTX 2080 Ti", "2080 Ti", caps_of(75, 68, 64, 64, 1024, 5, 11, 616), 53.8, 0, 0, 215,
     "NVIDIA Turing whitepaper (f16 with f32 sums runs at half rate)"},
    {"a100-80", "A100 SXM 80 GB", "A100", caps_of(80, 108, 163, 164, 2048, 40, 80, 2039), 312, 312, 0, 624,
     "NVIDIA A100 datasheet"},
    {"a100-40", "A100 40 GB", "A100", caps_of(80, 108, 163, 164, 2048, 40, 40, 1555), 312, 312, 0, 624,
     "NVIDIA A100 datasheet"},
    {"3090", "GeForce RTX 3090", "3090", caps_of(86, 82, 99, 100, 1536, 6, 24, 936), 71, 71, 0, 284,
     "NVIDIA GA102 whitepaper (f32 sums at half rate)"},
    {"a10", "A10", "A10", caps_of(86, 72, 99, 100, 1536, 6, 24, 600), 125, 125, 0, 250, "NVIDIA A10 datasheet"},
    {"l40s", "L40S", "L40S", caps_of(89, 142, 99, 100, 1536, 96, 48, 864), 362, 362, 733, 733, "NVIDIA L40S datasheet"},
    {"l4", "L4", "L4", caps_of(89, 58, 99, 100, 1536, 48, 24, 300), 121, 121, 242, 242, "NVIDIA L4 datasheet"},
    {"4090", "GeForce RTX 4090", "4090", caps_of(89, 128, 99, 100, 1536, 72, 24, 1008), 165.2, 165.2, 330, 660,
     "NVIDIA Ada whitepaper (f32 sums at half rate)"},
    {"h100-pcie", "H100 PCIe 80 GB", "H100 PCIe", caps_of(90, 114, 227, 228, 2048, 50, 80, 2000), 756, 756, 1513, 1513,
     "NVIDIA H100 datasheet"},
    {"h100-sxm", "H100 SXM 80 GB", "H100", caps_of(90, 132, 227, 228, 2048, 50, 80, 3350), 989, 989, 1979, 1979,
     "NVIDIA H100 datasheet"},
    {"gh200", "GH200 96 GB", "GH200", caps_of(90, 132, 227, 228, 2048, 60, 96, 4000), 989, 989, 1979, 1979,
     "NVIDIA GH200 datasheet"},
    {"h200", "H200 SXM 141 GB", "H200", caps_of(90, 132, 227, 228, 2048, 60, 141, 4800), 989, 989, 1979, 1979,
     "NVIDIA H200 datasheet; L2 as the runtime reports it"},
    {"b200", "B200", "B200", caps_of(100, 148, 227, 228, 2048, 126, 180, 8000), 2250, 2250, 4500, 4500,
     "NVIDIA HGX B200 datasheet"},
    {"gb10", "GB10 (DGX Spark)", "GB10", caps_of(121, 48, 99, 100, 1536, 24, 120, 273), 125, 125, 250, 250,
     "memory rate: DGX Spark datasheet; tensor rates: derived from the advertised sparse fp4 rate, unconfirmed"},
    {"5090", "GeForce RTX 5090", "5090", caps_of(120, 170, 99, 100, 1536, 96, 32, 1792), 209.5, 209.5, 419, 838,
     "NVIDIA RTX Blackwell whitepaper (f32 sums at half rate)"},
    {"unknown", "unknown future part", nullptr, caps_of(139, 100, 99, 100, 1536, 64, 32, 0), 0, 0, 0, 0,
     "invented: a part that no list here knows"},
};

/// What is left of a spelling when it does not matter how it is spelled: "NVIDIA GeForce RTX-5090" → "5090".
std::string plain(std::string_view text) {
  std::string result;
  for (const unsigned char c : text)
    if (c != ' ' && c != '-' && c != '_') result += static_cast<char>(std::tolower(c));
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view brand : {"nvidia", "geforce", "tesla", "rtx"})
      if (result.starts_with(brand)) result.erase(0, brand.size()), again = true;
  }
  return result;
}

/// A name as sold, without memory size and remarks: "V100 SXM2 32 GB" → "V100 SXM2", "GB10 (DGX Spark)" → "GB10".
std::string_view without_size(std::string_view name) {
  name = name.substr(0, name.find(" ("));
  if (!name.ends_with(" GB")) return name;
  name.remove_suffix(3);
  return name.substr(0, name.rfind(' '));
}

/// Whether `word` stands in `text` as a whole word, so that "A10" is not found in "A100".
bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const auto is_letter = [&](size_t i) {
      return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i]));
    };
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  }
  return false;
}

/// Whether `text` is a driver's name of the part: `word` and nothing beside it but brand, memory and socket, as in
/// "NVIDIA A100-SXM4-80GB" and "NVIDIA H100 80GB HBM3". "RTX 3090 Ti" is another part than "3090".
bool is_driver_name(std::string_view text, std::string_view word) {
  if (!has_word(text, word)) return false;
  std::string rest(text);
  rest.replace(rest.find(word), word.size(), " ");
  std::replace(rest.begin(), rest.end(), '-', ' ');
  for (size_t at = 0; at < rest.size();) {
    const size_t end = std::min(rest.find(' ', at), rest.size());
    const std::string token = rest.substr(at, end - at);
    at = end + 1;
    const bool brand = token.empty() || token == "NVIDIA" || token == "Tesla" || token == "GeForce" || token == "RTX";
    const bool rest_of_it = token.ends_with("GB") || token.starts_with("HBM") || token.starts_with("SXM") ||
                            token == "PCIe" || token == "PCIE";
    if (!brand && !rest_of_it) return false;
  }
  return true;
}

/// Insertions, removals and exchanges that make `b` of `a` (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j)
      corner = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, corner + (a[i - 1] == b[j - 1] ? 0 : 1)}));
  }
  return row.back();
}

}  // namespace

std::span<const Part> known_parts() { return kParts; }

std::string part_keys_like(std::string_view name) {
  const std::string wanted = plain(name);
  std::vector<std::pair<std::pair<bool, size_t>, std::string_view>> near;
  for (const Part& part : kParts) {
    const std::string_view key = part.key;
    const std::string whole = plain(key), kind = plain(key.substr(0, key.find('-')));
    const size_t distance = std::min(edit_distance(wanted, whole), edit_distance(wanted, kind));
    const bool within = wanted.size() >= 2 && (whole.find(wanted) != std::string::npos || wanted.find(kind) == 0);
    // More than every second letter must be right.
    if (within || 2 * distance < wanted.size()) near.emplace_back(std::pair(!within, distance), key);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (size_t i = 0; i < near.size() && i < 3; ++i) text += (i > 0 ? ", " : "") + std::string(near[i].second);
  return text;
}

const Part* find_part(std::string_view name) {
  const std::string wanted = plain(name);
  if (wanted.empty()) return nullptr;
  const auto find = [&](const auto& spelling) -> const Part* {
    for (const Part& part : kParts)
      if (wanted == plain(spelling(part))) return &part;
    return nullptr;
  };
  // The key in full, the first of a kind, then the name as it is sold.
  if (const Part* part = find([](const Part& p) { return std::string_view(p.key); })) return part;
  const auto kind = [](const Part& p) {
    const std::string_view key = p.key;
    return key.substr(0, key.find('-'));
  };
  if (const Part* part = find(kind)) return part;
  if (const Part* part = find([](const Part& p) { return std::string_view(p.name); })) return part;
  if (const Part* part = find([](const Part& p) { return without_size(p.name); })) return part;
  // As nvidia-smi prints it; of parts that share it the one whose memory is named.
  const Part* best = nullptr;
  for (const Part& part : kParts) {
    if (part.runtime_name == nullptr || !is_driver_name(name, part.runtime_name)) continue;
    const std::string gigabytes = std::to_string(part.caps.memory_bytes / kGiB) + "GB";
    if (best == nullptr || has_word(name, gigabytes)) best = &part;
  }
  // "V100-SXM2-16GB" has half of what the table's has; a GH200's name counts the CPU's memory.
  const bool halves = name.ends_with("16GB") && best != nullptr && best->caps.memory_bytes > 16 * kGiB;
  return halves ? nullptr : best;
}

const Part* part_of_device(std::string_view runtime_name, const DeviceCaps& caps) {
  const Part* best = nullptr;
  double best_distance = 0;
  for (const Part& part : kParts) {
    if (part.runtime_name == nullptr || part.caps.cc != caps.cc || !has_word(runtime_name, part.runtime_name)) continue;
    // Parts that share a name differ in memory; the nearest wins.
    const double distance = std::abs(static_cast<double>(part.caps.memory_bytes - caps.memory_bytes)) +
                            1e9 * std::abs(part.caps.sms - caps.sms);
    if (best == nullptr || distance < best_distance) best = &part, best_distance = distance;
  }
  return best;
}

std::string known_part_keys() {
  std::string text;
  for (const Part& part : kParts) text += (text.empty() ? "" : ", ") + std::string(part.key);
  return text;
}

}  // namespace galvani
