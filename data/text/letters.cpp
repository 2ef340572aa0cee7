// SPDX-License-Identifier: Apache-2.0
#include <peal/data/text/letters.h>
#include <peal/data/text/unicode_tables.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace peal::data {
namespace {

constexpr char32_t no_character = 0xFFFD;

// The range that has c, or null. REQUIRES: sorted.
template <class Ranges>
auto range_of(const Ranges& ranges, char32_t c) {
  const auto behind =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t value, const auto& r) { return value < r.first; });
  return behind == std::begin(ranges) || c > std::prev(behind)->last ? nullptr : std::prev(behind);
}

// How many bytes the character that begins here has, and its value; 0 where it is none.
std::size_t read_character(std::string_view rest, char32_t& out) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(rest[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    out = lead;
    return 1;
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || rest.size() < length) return 0;
  out = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    out = out << 6 | (byte(i) & 0x3Fu);
  }
  const bool too_long = (length == 3 && out < 0x800) || (length == 4 && out < 0x10000);
  return too_long || out > 0x10FFFF || (out >= 0xD800 && out <= 0xDFFF) ? 0 : length;
}

}  // namespace

Characters characters_of(std::string_view utf8) {
  Characters text;
  text.reserve(utf8.size());
  while (!utf8.empty()) {
    char32_t c = 0;
    const std::size_t length = read_character(utf8, c);
    text.push_back(length == 0 ? no_character : c);
    utf8.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

std::string utf8_of(std::u32string_view characters) {
  std::string text;
  text.reserve(characters.size());
  const auto add = [&](char32_t bits) { text.push_back(static_cast<char>(bits)); };
  for (const char32_t c : characters) {
    if (c < 0x80) {
      add(c);
      continue;
    }
    if (c < 0x800) {
      add(0xC0 | c >> 6);
    } else {
      if (c < 0x10000) {
        add(0xE0 | c >> 12);
      } else {
        add(0xF0 | c >> 18);
        add(0x80 | (c >> 12 & 0x3F));
      }
      add(0x80 | (c >> 6 & 0x3F));
    }
    add(0x80 | (c & 0x3F));
  }
  return text;
}

bool is_blank(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return range_of(letter_ranges, c) != nullptr;
}

bool is_number(char32_t c) {
  return c < 0x80 ? is_digit(c) : range_of(number_ranges, c) != nullptr;
}

bool is_of_word(char32_t c) { return c == '_' || is_letter(c) || is_number(c); }

char32_t small_letter(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  const CapitalRange* const found = range_of(capital_ranges, c);
  if (found == nullptr || (c - found->first) % static_cast<char32_t>(found->step) != 0) return c;
  return static_cast<char32_t>(static_cast<std::int32_t>(c) + found->to_small);
}

Characters in_small_letters(Characters text) {
  std::transform(text.begin(), text.end(), text.begin(), small_letter);
  return text;
}

}  // namespace peal::data
