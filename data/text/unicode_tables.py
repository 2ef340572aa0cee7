#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes unicode_tables.h from Python's Unicode database.     data/text/unicode_tables.py >data/text/unicode_tables.h
import unicodedata

FIRST_BEYOND_ASCII, END = 0x80, 0x110000


def ranges(kind):
    found, begin = [], None
    for c in range(FIRST_BEYOND_ASCII, END + 1):
        inside = c < END and unicodedata.category(chr(c)).startswith(kind)
        if inside and begin is None:
            begin = c
        elif not inside and begin is not None:
            found.append((begin, c - 1))
            begin = None
    return found


def capitals():
    """Runs of characters, one or two apart, whose small letters lie equally far from them."""
    runs = []
    for c in range(FIRST_BEYOND_ASCII, END):
        small = chr(c).lower()
        if len(small) != 1 or ord(small) == c:
            continue
        offset = ord(small) - c
        if runs:
            first, last, step, same = runs[-1]
            if same == offset and c - last in (1, 2) and step in (0, c - last):
                runs[-1] = (first, c, c - last, offset)
                continue
        runs.append((c, c, 0, offset))
    return [(first, last, step or 1, offset) for first, last, step, offset in runs]


def table(kind, name, rows, text):
    print(f"inline constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        entry = f" {{{text(row)}}},"
        if len(line + entry) > 120:
            print(line)
            line = "   "
        line += entry
    print(line + "\n};")


print(f"""// SPDX-License-Identifier: Apache-2.0
// Written by unicode_tables.py from Unicode {unicodedata.unidata_version}: characters beyond ASCII that are letters
// (general category L), numbers (N), and capitals with the way to their small letters.
#pragma once

#include <cstdint>

namespace peal::data {{

// clang-format off
struct CharacterRange {{
  char32_t first, last;
}};
// first, first + step, ... last; each plus `to_small` is its small letter.
struct CapitalRange {{
  char32_t first, last;
  std::int32_t step, to_small;
}};
""")
table("CharacterRange", "letter_ranges", ranges("L"), lambda row: f"0x{row[0]:X}, 0x{row[1]:X}")
table("CharacterRange", "number_ranges", ranges("N"), lambda row: f"0x{row[0]:X}, 0x{row[1]:X}")
table("CapitalRange", "capital_ranges", capitals(), lambda row: f"0x{row[0]:X}, 0x{row[1]:X}, {row[2]}, {row[3]}")
print("// clang-format on\n\n}  // namespace peal::data")
