#pragma once
/// The plans of an operation over every part and every size, as a file whose diff is the review of a change.
///
/// An operation gives a PlanTable: rows (everything of a problem but the part and m), the values of m, and a function
/// from (part, row, m) to one line of text, which holds `kernel=NAME` for each kernel that would run, or `refused:
/// why`. The file is folded: rows that agree everywhere share one block, and in a block neighbouring parts and
/// neighbouring m with the same plan share one line. The test unfolds it and compares cell by cell, both ways.
///
/// GALVANI_WRITE_GOLDENS=1 in the environment writes the files anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "device/parts.h"

namespace galvani::kernels {

/// A part of the enumeration: a label without blanks, and what a plan is given.
struct PlanPart {
  std::string label;
  DeviceCaps caps;
};

struct PlanTable {
  std::string operation;
  std::vector<std::string> rows;  ///< one line each, unique
  std::vector<int64_t> ms;        ///< ascending
  std::function<std::string(const DeviceCaps&, size_t row, int64_t m)> plan;
};

/// Every compute capability from 5.0 to 12.1 and one nobody knows, oldest first. Where a known part has it, that part;
/// elsewhere a small part of that generation. Then 9.0 in builds that lack its own image.
inline std::vector<PlanPart> plan_parts() {
  constexpr int kCapabilities[] = {50, 52, 53, 60, 61,  62,  70,  72,  75,  80,  86,
                                   87, 88, 89, 90, 100, 101, 103, 110, 120, 121, 139};
  std::vector<PlanPart> parts;
  for (const int cc : kCapabilities) {
    DeviceCaps caps;
    // Shared memory a block may have: CUDA C++ programming guide, technical specifications.
    caps.cc = cc, caps.sms = 20, caps.max_threads_per_sm = cc == 75 ? 1024 : 2048;
    caps.smem_optin = 1024 * (cc < 70                                      ? 48
                              : cc == 70 || cc == 72                       ? 96
                              : cc == 75                                   ? 64
                              : cc == 80 || cc == 87                       ? 163
                              : cc == 90 || cc / 10 == 10 || cc / 10 == 11 ? 227
                                                                           : 99);
    caps.smem_per_sm = caps.smem_optin + 1024;
    caps.l2_bytes = 4 << 20, caps.memory_bytes = int64_t{8} << 30;
    caps = with_images(caps, images_made_for(cc));
    for (const Part& part : known_parts())
      if (part.caps.cc == cc && part.caps.peak_gbps > caps.peak_gbps) caps = part.caps;
    parts.push_back({compute_capability_str(cc), caps});
    if (cc != 90) continue;
    parts.push_back({"9.0/built-for-90", with_images(caps, {CudaImage{90, 0, false}})});
    parts.push_back({"9.0/built-for-80-virtual", with_images(caps, {CudaImage{80, 0, true}})});
  }
  return parts;
}

namespace plan_golden {

/// Plans of one row: [part][m].
using Grid = std::vector<std::vector<std::string>>;

inline Grid grid_of(const PlanTable& table, const std::vector<PlanPart>& parts, size_t row) {
  Grid grid;
  for (const PlanPart& part : parts) {
    std::vector<std::string>& line = grid.emplace_back();
    for (const int64_t m : table.ms) line.push_back(table.plan(part.caps, row, m));
  }
  return grid;
}

/// Lines "  FIRST..LAST | M..M | plan" of one grid.
inline std::string fold(const PlanTable& table, const std::vector<PlanPart>& parts, const Grid& grid) {
  std::string text;
  for (size_t p = 0; p < parts.size();) {
    size_t end = p + 1;
    while (end < parts.size() && grid[end] == grid[p]) ++end;
    for (size_t m = 0; m < table.ms.size();) {
      size_t last = m + 1;
      while (last < table.ms.size() && grid[p][last] == grid[p][m]) ++last;
      text += "  " + parts[p].label + ".." + parts[end - 1].label + " | " + std::to_string(table.ms[m]) + ".." +
              std::to_string(table.ms[last - 1]) + " | " + grid[p][m] + "\n";
      m = last;
    }
    p = end;
  }
  return text;
}

inline std::string fold(const PlanTable& table, const std::vector<PlanPart>& parts) {
  std::vector<std::string> blocks;
  std::map<std::string, std::vector<std::string>> rows;  // block → its rows
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const std::string block = fold(table, parts, grid_of(table, parts, row));
    if (rows[block].empty()) blocks.push_back(block);
    rows[block].push_back(table.rows[row]);
  }
  std::string text;
  for (const std::string& block : blocks) {
    for (const std::string& row : rows[block]) text += row + "\n";
    text += block;
  }
  return text;
}

/// (row, part, m) → plan, from the folded text. Anything that does not parse is a failure.
using Cells = std::map<std::tuple<std::string, std::string, int64_t>, std::string>;
inline Cells unfold(const PlanTable& table, const std::vector<PlanPart>& parts, const std::string& text) {
  Cells cells;
  std::vector<std::string> rows;
  bool in_block = false;
  std::istringstream lines(text);
  const std::regex pattern(R"(  (\S+)\.\.(\S+) \| (\d+)\.\.(\d+) \| (.*))");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) {
      if (in_block) rows.clear(), in_block = false;
      rows.push_back(line);
      continue;
    }
    in_block = true;
    std::smatch match;
    if (!std::regex_match(line, match, pattern)) {
      ADD_FAILURE() << "not a line of plans: " << line;
      continue;
    }
    bool inside = false;
    for (const PlanPart& part : parts) {
      inside = inside || part.label == match[1];
      if (!inside) continue;
      for (const int64_t m : table.ms) {
        if (m < std::stoll(match[3]) || m > std::stoll(match[4])) continue;
        for (const std::string& row : rows)
          if (!cells.emplace(std::tuple(row, part.label, m), match[5]).second)
            ADD_FAILURE() << "twice: " << row << " on " << part.label << " m " << m;
      }
      if (part.label == match[2]) break;
    }
  }
  return cells;
}

}  // namespace plan_golden

/// Differences between a table and a folded text, cell by cell; at most `limit` are worded. Empty when they agree.
inline std::vector<std::string> plan_differences(const PlanTable& table, const std::vector<PlanPart>& parts,
                                                 const std::string& text, size_t limit = 10) {
  plan_golden::Cells cells = plan_golden::unfold(table, parts, text);
  std::vector<std::string> differences;
  size_t count = 0;
  const auto differ = [&](const std::string& what) {
    if (++count <= limit) differences.push_back(what);
  };
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const plan_golden::Grid grid = plan_golden::grid_of(table, parts, row);
    for (size_t p = 0; p < parts.size(); ++p)
      for (size_t i = 0; i < table.ms.size(); ++i) {
        const auto found = cells.find({table.rows[row], parts[p].label, table.ms[i]});
        const std::string where = table.rows[row] + " on " + parts[p].label + " m " + std::to_string(table.ms[i]);
        if (found == cells.end()) {
          differ(where + ": now \"" + grid[p][i] + "\", not in the file");
          continue;
        }
        if (found->second != grid[p][i])
          differ(where + ": now \"" + grid[p][i] + "\", in the file \"" + found->second + "\"");
        cells.erase(found);
      }
  }
  for (const auto& [cell, plan] : cells) differ(std::get<0>(cell) + " on " + std::get<1>(cell) + ": only in the file");
  if (count > limit) differences.push_back("... " + std::to_string(count) + " in all");
  return differences;
}

/// Every NAME of "kernel=NAME" in the plans of a table, over all parts.
inline std::set<std::string> planned_kernels(const PlanTable& table, const std::vector<PlanPart>& parts) {
  std::set<std::string> kernels;
  const std::string key = "kernel=";
  for (size_t row = 0; row < table.rows.size(); ++row)
    for (const auto& line : plan_golden::grid_of(table, parts, row))
      for (const std::string& plan : line)
        for (size_t at = plan.find(key); at != std::string::npos; at = plan.find(key, at)) {
          at += key.size();
          kernels.insert(plan.substr(at, plan.find_first_of(" ,;)", at) - at));
        }
  return kernels;
}

/// Compares with tests/data/plans/<operation>.txt, or writes it.
inline void expect_golden_plans(const PlanTable& table) {
  const std::vector<PlanPart> parts = plan_parts();
  const std::string path = std::string(GALVANI_TEST_DATA) + "/plans/" + table.operation + ".txt";
  const std::string folded = plan_golden::fold(table, parts);
  EXPECT_LE(std::count(folded.begin(), folded.end(), '\n'), 5000) << "too long to review";
  if (std::getenv("GALVANI_WRITE_GOLDENS") != nullptr) {
    std::ofstream(path) << folded;
    GTEST_SKIP() << "GALVANI_WRITE_GOLDENS is set: wrote " << path;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; GALVANI_WRITE_GOLDENS=1 writes it";
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const std::string& difference : plan_differences(table, parts, text)) ADD_FAILURE() << difference;
}

}  // namespace galvani::kernels
