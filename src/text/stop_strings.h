#pragma once
/// Stop strings over streamed text: generation ends where one appears, and neither it nor what follows is shown.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "galvani/error.h"

namespace galvani::text {

class StopStrings {
 public:
  /// Errors: an empty stop string (it would stop everything at once). No stop strings at all is fine.
  static Result<StopStrings> create(std::vector<std::string> stops);

  /// Takes the next text and appends to `out` what can be shown: everything up to the first place where a stop string
  /// may be starting. Returns true once a stop string is complete; later text is ignored. Where several are complete at
  /// once, the one that began first wins, the longest among those.
  bool push(std::string_view text, std::string& out);
  /// Appends what was held back (no stop string came).
  void finish(std::string& out);

  bool stopped() const { return matched_ >= 0; }
  /// Index into the list of the string that stopped the text, −1 so far none.
  int matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> borders;  ///< KMP failure function
    uint32_t progress = 0;          ///< bytes of the pattern that the text's end matches
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace galvani::text
