// SPDX-License-Identifier: Apache-2.0
#include <peal/data/text/rules.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace peal::data {
namespace {

bool is_capital(char32_t c) { return c >= 'A' && c <= 'Z'; }

void append_word(Characters& to, std::string_view ascii) { to.append(ascii.begin(), ascii.end()); }

// Words that begin behind a blank or the text's beginning, end before a blank or its end, and fit:
// in small letters, behind `mark` where they have more than one character.
template <class Fits>
Characters marked(const Characters& text, std::string_view mark, const Fits& fits) {
  Characters out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && !is_blank(text[end])) ++end;
    const std::u32string_view word(text.data() + at, end - at);
    if (!word.empty() && is_capital(word[0]) && fits(word.substr(1))) {
      if (word.size() > 1) append_word(out, mark);
      out += in_small_letters(Characters(word));
    } else {
      out += word;
    }
    if (end < text.size()) out += text[end++];
    at = end;
  }
  return out;
}

std::size_t end_of_word(const Characters& text, std::size_t at) {
  while (at < text.size() && is_of_word(text[at])) ++at;
  return at;
}

std::size_t end_of_blanks(const Characters& text, std::size_t at) {
  while (at < text.size() && is_blank(text[at])) ++at;
  return at;
}

// A word that comes three times or more from `begin` on, with nothing but blanks between.
struct Repetition {
  std::u32string_view word;
  std::size_t times = 0;
  std::size_t end = 0;  // behind its last time
};
Repetition repetition_at(const Characters& text, std::size_t begin) {
  Repetition found;
  std::size_t end = end_of_word(text, begin);
  if (end == begin) return found;
  const std::u32string_view whole(text);
  found.word = whole.substr(begin, end - begin);
  found.times = 1;
  found.end = end;
  while (true) {
    const std::size_t next = end_of_blanks(text, found.end);
    if (next == found.end || !whole.substr(next).starts_with(found.word)) break;
    end = next + found.word.size();
    if (end < text.size() && is_of_word(text[end])) break;  // a longer word
    ++found.times;
    found.end = end;
  }
  return found;
}

void replace_each(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

// Those that texts have; Python's html.unescape knows two thousand.
constexpr std::pair<std::string_view, char32_t> entities[] = {
    {"amp", '&'},       {"lt", '<'},       {"gt", '>'},       {"quot", '"'},     {"apos", '\''},
    {"nbsp", 0xA0},     {"pound", 0xA3},   {"sect", 0xA7},    {"copy", 0xA9},    {"laquo", 0xAB},
    {"reg", 0xAE},      {"deg", 0xB0},     {"middot", 0xB7},  {"raquo", 0xBB},   {"frac12", 0xBD},
    {"Auml", 0xC4},     {"Ouml", 0xD6},    {"times", 0xD7},   {"Uuml", 0xDC},    {"szlig", 0xDF},
    {"agrave", 0xE0},   {"aacute", 0xE1},  {"acirc", 0xE2},   {"auml", 0xE4},    {"aring", 0xE5},
    {"ccedil", 0xE7},   {"egrave", 0xE8},  {"eacute", 0xE9},  {"ecirc", 0xEA},   {"euml", 0xEB},
    {"iacute", 0xED},   {"iuml", 0xEF},    {"ntilde", 0xF1},  {"oacute", 0xF3},  {"ocirc", 0xF4},
    {"ouml", 0xF6},     {"uacute", 0xFA},  {"uuml", 0xFC},    {"ndash", 0x2013}, {"mdash", 0x2014},
    {"lsquo", 0x2018},  {"rsquo", 0x2019}, {"ldquo", 0x201C}, {"rdquo", 0x201D}, {"bull", 0x2022},
    {"hellip", 0x2026}, {"euro", 0x20AC},  {"trade", 0x2122}};

// The value of "#65" or "#x41", 0 where it is none.
char32_t numbered(std::string_view name) {
  if (!name.starts_with('#')) return 0;
  name.remove_prefix(1);
  const bool hex = name.starts_with('x') || name.starts_with('X');
  if (hex) name.remove_prefix(1);
  if (name.empty() || name.size() > 7) return 0;
  char32_t value = 0;
  for (const char c : name) {
    const char small = c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c;
    const bool letter = hex && small >= 'a' && small <= 'f';
    if (!letter && !(c >= '0' && c <= '9')) return 0;
    value = value * (hex ? 16 : 10) + static_cast<char32_t>(letter ? small - 'a' + 10 : c - '0');
  }
  return value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF) ? 0 : value;
}

std::string unescaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text[at] == '&' ? text.substr(at, 12).find(';') : text.npos;
    if (end == text.npos) {
      out += text[at++];
      continue;
    }
    const std::string_view name = text.substr(at + 1, end - 1);
    const auto found = std::find_if(std::begin(entities), std::end(entities),
                                    [&](const auto& entity) { return entity.first == name; });
    const char32_t c = found != std::end(entities) ? found->second : numbered(name);
    out += c != 0 ? utf8_of({&c, 1}) : "&";
    at += c != 0 ? end + 1 : 1;
  }
  return out;
}

}  // namespace

std::string fix_html(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> messy[] = {
      {"#39;", "'"},  {"amp;", "&"},  {"#146;", "'"},          {"nbsp;", " "}, {"#36;", "$"},
      {"\\n", "\n"},  {"quot;", "'"}, {"<br />", "\n"},        {"\\\"", "\""}, {"<unk>", "xxunk"},
      {" @.@ ", "."}, {" @-@ ", "-"}, {"...", " \xe2\x80\xa6"}};
  for (const auto& [what, by] : messy) replace_each(text, what, by);
  return unescaped(text);
}

Characters replace_rep(const Characters& text) {
  Characters out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && text[end] == text[at]) ++end;
    if (end - at >= 3 && !is_blank(text[at])) {
      append_word(out, " xxrep " + std::to_string(end - at) + " ");
      out += text[at];
      out += U' ';
    } else {
      out.append(text, at, end - at);
    }
    at = end;
  }
  return out;
}

Characters replace_wrep(const Characters& text) {
  Characters out;
  out.reserve(text.size());
  // A word may begin behind a blank, which then goes, and at the very beginning.
  for (std::size_t at = 0; at < text.size();) {
    const bool blank = is_blank(text[at]);
    const Repetition found =
        blank || at == 0 ? repetition_at(text, blank ? at + 1 : at) : Repetition{};
    if (found.times < 3) {
      out += text[at++];
      continue;
    }
    append_word(out, " xxwrep " + std::to_string(found.times) + " ");
    out += found.word;
    out += U' ';
    at = found.end;
    if (at < text.size()) out += text[at++];  // is taken: no word begins behind it
  }
  return out;
}

Characters spec_add_spaces(const Characters& text) {
  Characters out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    const bool apart = c == '/' || c == '#' || c == '\\';
    if (apart) out += U' ';
    out += c;
    if (apart) out += U' ';
  }
  return out;
}

Characters rm_useless_spaces(const Characters& text) {
  Characters out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (c != ' ' || out.empty() || out.back() != ' ') out += c;
  }
  return out;
}

Characters replace_all_caps(const Characters& text) {
  return marked(text, "xxup ", [](std::u32string_view rest) {
    return std::none_of(rest.begin(), rest.end(), [](char32_t c) { return c >= 'a' && c <= 'z'; });
  });
}

Characters replace_maj(const Characters& text) {
  return marked(text, "xxmaj ", [](std::u32string_view rest) {
    return std::none_of(rest.begin(), rest.end(), is_capital);
  });
}

Characters lowercase(const Characters& text, bool add_bos, bool add_eos) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_blank);
  const auto end = std::find_if_not(text.rbegin(), std::make_reverse_iterator(begin), is_blank);
  Characters out;
  if (add_bos) append_word(out, "xxbos ");
  out += in_small_letters(Characters(begin, end.base()));
  if (add_eos) append_word(out, " xxeos");
  return out;
}

std::string apply_rules(std::string_view text) {
  Characters t = characters_of(fix_html(std::string(text)));
  for (const auto rule : {replace_rep, replace_wrep, spec_add_spaces, rm_useless_spaces,
                          replace_all_caps, replace_maj}) {
    t = rule(t);
  }
  return utf8_of(lowercase(t));
}

}  // namespace peal::data
