// SPDX-License-Identifier: Apache-2.0
// Rules that make a text ready to be cut into tokens, in fastai's order (fastai/text/core.py, where
// they are regular expressions): what capitals, repetitions and mark-up say is said by tokens of
// its own, so that the vocabulary is of small letters.
//
//   "Such a GREAT film!!!!"  becomes  "xxbos xxmaj such a xxup great film xxrep 4 !"
//
// Thread safety: pure functions.
#pragma once

#include <peal/data/text/letters.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace peal::data {

// Unknown word, padding, beginning and end of a text, field of one; a repeated character, a
// repeated word, a word in capitals, a word that begins with one.
inline constexpr std::array<std::string_view, 9> special_tokens{
    "xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj"};
// Their places, which are their numbers in a vocabulary.
enum SpecialToken : std::uint8_t { unknown_token, padding_token, begin_token, end_token };

// What is left of HTML and of other tokenizers: "&amp;" and the like, "<br />", "\\n", " @-@ ".
std::string fix_html(std::string text);
Characters replace_rep(const Characters& text);        // "wooow" is "w xxrep 3 o w"
Characters replace_wrep(const Characters& text);       // "so so so" is " xxwrep 3 so "
Characters spec_add_spaces(const Characters& text);    // around / # and the backslash
Characters rm_useless_spaces(const Characters& text);  // one for several
Characters replace_all_caps(const Characters& text);   // "GREAT" is "xxup great", "I" is "i"
Characters replace_maj(const Characters& text);        // "Such" is "xxmaj such"
// Without blanks at the ends, in small letters, behind "xxbos ".
Characters lowercase(const Characters& text, bool add_bos = true, bool add_eos = false);

// All of them, one after the other. The text is UTF-8.
std::string apply_rules(std::string_view text);

}  // namespace peal::data
