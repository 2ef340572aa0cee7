// SPDX-License-Identifier: Apache-2.0
// How a text is cut into the words inside of which bytes are paired.
#include <peal/data/text/byte_pairs.h>
#include <peal/data/text/letters.h>

#include <algorithm>
#include <cstddef>

namespace peal::data {
namespace {

// Characters with the bytes that they were read from: of bytes that are no UTF-8, one each.
struct Piece {
  char32_t character;
  std::size_t at;  // in the text
};
std::vector<Piece> pieces_of(std::string_view text) {
  std::vector<Piece> pieces;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    Characters read = characters_of(text.substr(at, length));
    if (read.size() != 1) {
      read = U"\uFFFD";
      length = 1;
    }
    pieces.push_back({read[0], at});
    at += std::min(length, text.size() - at);
  }
  pieces.push_back({0, text.size()});
  return pieces;
}

}  // namespace

std::vector<std::string_view> cut_for_byte_pairs(std::string_view text) {
  const std::vector<Piece> pieces = pieces_of(text);
  const std::size_t count = pieces.size() - 1;
  enum Kind : std::uint8_t { letter, number, blank, other, none };
  const auto kind = [&](std::size_t i) {
    if (i >= count) return none;
    const char32_t c = pieces[i].character;
    return is_letter(c) ? letter : is_number(c) ? number : is_blank(c) ? blank : other;
  };
  const auto end_of = [&](std::size_t i) {
    const Kind same = kind(i);
    while (kind(i) == same) ++i;
    return i;
  };
  // Where a contraction ends that begins here: 's 't 're 've 'm 'll 'd.
  const auto end_of_contraction = [&](std::size_t i) {
    if (pieces[i].character != '\'') return i;
    for (const std::u32string_view ending : {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"}) {
      std::size_t k = 0;
      while (k < ending.size() && i + 1 + k < count && pieces[i + 1 + k].character == ending[k])
        ++k;
      if (k == ending.size()) return i + 1 + k;
    }
    return i;
  };
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < count;) {
    std::size_t end = end_of_contraction(at);
    if (end == at) {
      const bool behind_blank =
          pieces[at].character == ' ' && kind(at + 1) != blank && kind(at + 1) != none;
      end = end_of(behind_blank ? at + 1 : at);
      // The last of several blanks belongs to the word behind them.
      if (!behind_blank && kind(at) == blank && end < count && end - at > 1) --end;
    }
    words.push_back(text.substr(pieces[at].at, pieces[end].at - pieces[at].at));
    at = end;
  }
  return words;
}

}  // namespace peal::data
