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

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
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
  /// Optional: puts back what plan() left out of a row's kernel names so that more rows fold.
  std::function<std::string(size_t row, const std::string& plan)> expand = nullptr;
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

/// Plans of one part: [row][m].
using Column = std::vector<std::vector<std::string>>;

inline Column column_of(const PlanTable& table, const DeviceCaps& caps) {
  Column column;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    std::vector<std::string>& plans = column.emplace_back();
    for (const int64_t m : table.ms) plans.push_back(table.plan(caps, row, m));
  }
  return column;
}

/// Lines "  M..M | plan" of one row on one part.
inline std::string fold_row(const PlanTable& table, const std::vector<std::string>& plans) {
  std::string text;
  for (size_t m = 0; m < plans.size();) {
    size_t end = m + 1;
    while (end < plans.size() && plans[end] == plans[m]) ++end;
    text += "  " + std::to_string(table.ms[m]) + ".." + std::to_string(table.ms[end - 1]) + " | " + plans[m] + "\n";
    m = end;
  }
  return text;
}

/// Rows that agree, several a line, then their plans.
inline std::string fold_column(const PlanTable& table, const Column& column) {
  constexpr size_t kRowsALine = 8;
  std::vector<std::string> blocks;
  std::map<std::string, std::vector<size_t>> rows;
  for (size_t row = 0; row < column.size(); ++row) {
    const std::string block = fold_row(table, column[row]);
    if (rows[block].empty()) blocks.push_back(block);
    rows[block].push_back(row);
  }
  std::string text;
  for (const std::string& block : blocks) {
    const std::vector<size_t>& members = rows[block];
    for (size_t i = 0; i < members.size(); ++i)
      text += table.rows[members[i]] + (i % kRowsALine == kRowsALine - 1 || i + 1 == members.size() ? "\n" : "; ");
    text += block;
  }
  return text;
}

/// Parts that agree everywhere share a section "== PART PART ...".
inline std::string fold(const PlanTable& table, const std::vector<PlanPart>& parts) {
  std::vector<std::pair<Column, std::string>> sections;
  for (const PlanPart& part : parts) {
    Column column = column_of(table, part.caps);
    const auto same = std::find_if(sections.begin(), sections.end(), [&](const auto& s) { return s.first == column; });
    if (same == sections.end())
      sections.emplace_back(std::move(column), part.label);
    else
      same->second += " " + part.label;
  }
  std::string text;
  for (const auto& [column, labels] : sections) text += "== " + labels + "\n" + fold_column(table, column);
  return text;
}

inline std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> words;
  size_t at = 0;
  for (size_t next; (next = text.find(separator, at)) != std::string::npos; at = next + separator.size())
    words.push_back(text.substr(at, next - at));
  words.push_back(text.substr(at));
  return words;
}

/// (row, part, m) → plan, from the folded text. Anything that does not parse is a failure.
using Cells = std::map<std::tuple<std::string, std::string, int64_t>, std::string>;
inline Cells unfold(const PlanTable& table, const std::string& text) {
  Cells cells;
  std::vector<std::string> parts, rows;
  bool in_block = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) {
      if (in_block) rows.clear(), in_block = false;
      if (line.starts_with("== ")) {
        parts = split(line.substr(3), " ");
      } else {
        for (std::string& row : split(line, "; ")) rows.push_back(std::move(row));
      }
      continue;
    }
    in_block = true;
    const size_t dots = line.find(".."), bar = line.find(" | ");
    if (dots == std::string::npos || bar == std::string::npos || dots > bar) {
      ADD_FAILURE() << "not a line of plans: " << line;
      continue;
    }
    const int64_t first = std::stoll(line.substr(2)), last = std::stoll(line.substr(dots + 2));
    for (const int64_t m : table.ms) {
      if (m < first || m > last) continue;
      for (const std::string& part : parts)
        for (const std::string& row : rows)
          if (!cells.emplace(std::tuple(row, part, m), line.substr(bar + 3)).second)
            ADD_FAILURE() << "twice: " << row << " on " << part << " m " << m;
    }
  }
  return cells;
}

}  // namespace plan_golden

/// Differences between a table and a folded text, cell by cell; at most `limit` are worded. Empty when they agree.
inline std::vector<std::string> plan_differences(const PlanTable& table, const std::vector<PlanPart>& parts,
                                                 const std::string& text, size_t limit = 10) {
  plan_golden::Cells cells = plan_golden::unfold(table, text);
  std::vector<std::string> differences;
  size_t count = 0;
  const auto differ = [&](const std::string& what) {
    if (++count <= limit) differences.push_back(what);
  };
  for (const PlanPart& part : parts) {
    const plan_golden::Column column = plan_golden::column_of(table, part.caps);
    for (size_t row = 0; row < table.rows.size(); ++row)
      for (size_t i = 0; i < table.ms.size(); ++i) {
        const auto found = cells.find({table.rows[row], part.label, table.ms[i]});
        const std::string where = table.rows[row] + " on " + part.label + " m " + std::to_string(table.ms[i]);
        const std::string& now = column[row][i];
        if (found == cells.end()) {
          differ(where + ": now \"" + now + "\", not in the file");
          continue;
        }
        if (found->second != now) differ(where + ": now \"" + now + "\", in the file \"" + found->second + "\"");
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
  for (const PlanPart& part : parts)
    for (size_t row = 0; row < table.rows.size(); ++row)
      for (const int64_t m : table.ms) {
        const std::string folded = table.plan(part.caps, row, m);
        const std::string plan = table.expand ? table.expand(row, folded) : folded;
        for (size_t at = plan.find(key); at != std::string::npos; at = plan.find(key, at)) {
          at += key.size();
          kernels.insert(plan.substr(at, plan.find_first_of(" ,;)", at) - at));
        }
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
