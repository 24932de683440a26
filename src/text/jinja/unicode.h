#pragma once
/// Code points, case and character classes as Python's str has them. Every string here is valid UTF-8.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace galvani::text::jinja {

/// Byte offset of the first invalid sequence, or npos. Surrogates and overlong forms are invalid.
size_t find_invalid_utf8(std::string_view text);
size_t count_codepoints(std::string_view text);
/// Byte offset of code point `index`; text.size() when there are fewer.
size_t codepoint_offset(std::string_view text, size_t index);
/// Decodes at `pos` (< size) and advances it.
char32_t next_codepoint(std::string_view text, size_t& pos);
/// Decodes the code point that ends at `pos` (> 0) and moves `pos` to its start.
char32_t previous_codepoint(std::string_view text, size_t& pos);
void append_utf8(std::string& out, char32_t c);

bool is_space(char32_t c);    ///< str.isspace
bool is_alpha(char32_t c);    ///< str.isalpha
bool is_decimal(char32_t c);  ///< str.isdecimal
bool is_digit(char32_t c);    ///< str.isdigit
bool is_numeric(char32_t c);  ///< str.isnumeric, less the ideographs that are letters
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);  ///< not escaped by repr()
bool is_word(char32_t c);       ///< \w of Python's re

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        ///< str.title
std::string to_capitalized(std::string_view text);  ///< str.capitalize
std::string swap_case(std::string_view text);

/// text without leading/trailing whitespace, or without the code points in `chars` when it is not null.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

/// Linear-time search (a pattern of any length cannot make it quadratic); npos when absent.
size_t find_text(std::string_view text, std::string_view pattern, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view pattern);
/// Non-overlapping occurrences; an empty pattern occurs before every code point and at the end.
size_t count_text(std::string_view text, std::string_view pattern);
/// At most `count` replacements from the left (all when negative).
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count);

}  // namespace galvani::text::jinja
