#include "text/stop_strings.h"

#include <algorithm>

#include "core/error.h"

namespace galvani::text {

Result<StopStrings> StopStrings::create(std::vector<std::string> stops) {
  StopStrings matcher;
  for (size_t index = 0; index < stops.size(); ++index) {
    std::string& text = stops[index];
    if (text.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "stop string {} is empty, which would stop before the first token; leave it out", index);
    }
    Pattern pattern;
    pattern.borders.assign(text.size(), 0);
    for (size_t i = 1, border = 0; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = pattern.borders[border - 1];
      if (text[i] == text[border]) ++border;
      pattern.borders[i] = static_cast<uint32_t>(border);
    }
    pattern.text = std::move(text);
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

bool StopStrings::push(std::string_view text, std::string& out) {
  if (stopped()) return true;
  for (const char c : text) {
    held_ += c;
    size_t waiting = 0, longest = 0;
    for (size_t index = 0; index < patterns_.size(); ++index) {
      Pattern& pattern = patterns_[index];
      while (pattern.progress > 0 && c != pattern.text[pattern.progress]) {
        pattern.progress = pattern.borders[pattern.progress - 1];
      }
      if (c == pattern.text[pattern.progress]) ++pattern.progress;
      if (pattern.progress == pattern.text.size() && pattern.progress > longest) {
        longest = pattern.progress;
        matched_ = static_cast<int>(index);
      }
      waiting = std::max<size_t>(waiting, pattern.progress);
    }
    if (stopped()) {
      out.append(held_, 0, held_.size() - longest);
      held_.clear();
      return true;
    }
    out.append(held_, 0, held_.size() - waiting);
    held_.erase(0, held_.size() - waiting);
  }
  return false;
}

void StopStrings::finish(std::string& out) {
  if (!stopped()) out += held_;
  held_.clear();
}

}  // namespace galvani::text
