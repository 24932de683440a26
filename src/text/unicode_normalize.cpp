#include "text/unicode_normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/unicode.h"

namespace galvani::text {
namespace {

bool already_nfc(std::string_view text) {
  const CharTable& table = CharTable::get();
  size_t length = 0;
  for (size_t i = 0; i < text.size(); i += length) {
    const char32_t cp = utf8_at(text, i, length);
    if (cp >= 0x300 && table[cp].nfc_active()) return false;
  }
  return true;
}

/// Canonical ordering: marks between two starters, sorted by combining class, equal classes in place.
void order_marks(std::vector<utf8proc_int32_t>& cps) {
  const auto ccc = [](utf8proc_int32_t cp) { return utf8proc_get_property(cp)->combining_class; };
  for (size_t i = 0; i < cps.size();) {
    if (ccc(cps[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < cps.size() && ccc(cps[end]) != 0) ++end;
    std::stable_sort(cps.begin() + static_cast<std::ptrdiff_t>(i), cps.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](auto a, auto b) { return ccc(a) < ccc(b); });
    i = end;
  }
}

/// Normalises one run without inert code points and appends it.
void flush(std::vector<utf8proc_int32_t>& cps, bool compose, std::string& out) {
  if (cps.empty()) return;
  order_marks(cps);
  auto size = static_cast<utf8proc_ssize_t>(cps.size());
  if (compose) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    size = utf8proc_normalize_utf32(cps.data(), size, options);
  }
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(out, static_cast<char32_t>(cps[static_cast<size_t>(i)]));
  cps.clear();
}

}  // namespace

std::string unicode_normalize(std::string_view text, NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  if (form == NormalForm::kNfc && already_nfc(text)) return std::string(text);
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
  const CharTable& table = CharTable::get();
  std::vector<utf8proc_int32_t> cps;
  std::string out;
  out.reserve(text.size());
  size_t length = 0;
  for (size_t i = 0; i < text.size(); i += length) {
    const char32_t cp = utf8_at(text, i, length);
    if (table[cp].inert()) {
      // A starter that neither decomposes nor composes: it separates what is before from what is after.
      flush(cps, compose, out);
      append_utf8(out, cp);
      continue;
    }
    utf8proc_int32_t parts[32];
    int last_class = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(cp), parts, 32, options, &last_class);
    if (n <= 0 || n > 32) {
      cps.push_back(static_cast<utf8proc_int32_t>(cp));
    } else {
      cps.insert(cps.end(), parts, parts + n);
    }
  }
  flush(cps, compose, out);
  return out;
}

}  // namespace galvani::text
