// SPDX-License-Identifier: Apache-2.0
// Characters: UTF-8 to code points and back, and what kind of character one is, by Unicode's tables
// (unicode_tables.h) and not by a locale, so that every machine cuts texts alike. Thread safety:
// pure functions.
#pragma once

#include <string>
#include <string_view>

namespace peal::data {

using Characters = std::u32string;

// A byte that is no UTF-8 becomes U+FFFD.
Characters characters_of(std::string_view utf8);
std::string utf8_of(std::u32string_view characters);

bool is_blank(char32_t c);    // \s of Python's regular expressions
bool is_letter(char32_t c);   // \p{L}
bool is_number(char32_t c);   // \p{N}
bool is_of_word(char32_t c);  // \w: a letter, a number or "_"
bool is_digit(char32_t c);    // 0-9
// Of one character; what depends on its neighbours (the Greek sigma at a word's end) does not.
char32_t small_letter(char32_t c);
Characters in_small_letters(Characters text);

}  // namespace peal::data
