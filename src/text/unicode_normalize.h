#pragma once
/// Unicode normalisation forms as the Rust `tokenizers` package computes them: utf8proc's tables, with the code points
/// that package's older tables do not know (CharClass::inert) left as they are.
#include <string>
#include <string_view>

namespace galvani::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// Normalises valid UTF-8. O(n log n) at worst (a long run of combining marks), a copy when nothing can change.
std::string unicode_normalize(std::string_view text, NormalForm form);

}  // namespace galvani::text
