#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes byte_pairs_cases.h: byte pairs that are learnt from a few texts, and what they make of others, by the plain form
# of the algorithms: GPT-2's regular expression, and the merge of the pair that was learnt first until there is none.
#     tests/data/byte_pairs_cases.py >tests/data/byte_pairs_cases.h
import re
import unicodedata
from collections import Counter


def characters(kind):
    found, begin = "", None
    for c in range(0x110001):
        inside = c < 0x110000 and unicodedata.category(chr(c)).startswith(kind)
        if inside and begin is None:
            begin = c
        elif not inside and begin is not None:
            found += re.escape(chr(begin)) + "-" + re.escape(chr(c - 1))
            begin = None
    return found


L, N = characters("L"), characters("N")
WORDS = re.compile(rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^\s{L}{N}]+|\s+(?!\S)|\s+")

printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
order = printable + [b for b in range(256) if b not in printable]
written = {b: chr(b) for b in printable}
written.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in printable)})


def words_of(text):
    return [word.encode() for word in WORDS.findall(text)]


def merged(tokens, pair):
    out, i = [], 0
    while i < len(tokens):
        both = tuple(tokens[i:i + 2]) == pair
        out.append(tokens[i] + tokens[i + 1] if both else tokens[i])
        i += 2 if both else 1
    return out


def train(texts, count):
    split = [([bytes([b]) for b in word], times) for word, times in Counter(w for t in texts for w in words_of(t)).items()]
    merges = []
    while len(merges) < count:
        pairs = Counter()
        for tokens, times in split:
            for pair in zip(tokens, tokens[1:]):
                pairs[pair] += times
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        split = [(merged(tokens, best), times) for tokens, times in split]
    return merges


TRAINING = ["the cat sat on the mat, the cat's hat isn't on the mat", "aaaa aaaaaa aaa", "caf\u00e9 caf\u00e9 na\u00efve caf\u00e9s",
            "he said: \"12 12 123\"\n\n  and the rest\t\tof it  "]
MERGES = train(TRAINING, 60)
RANKS = {pair: i for i, pair in enumerate(MERGES)}
NUMBERS = {bytes([b]): i for i, b in enumerate(order)}
NUMBERS.update({a + b: 256 + i for i, (a, b) in enumerate(MERGES)})


def encode(text):
    numbers = []
    for word in words_of(text):
        tokens = [bytes([b]) for b in word]
        while True:
            pairs = [pair for pair in zip(tokens, tokens[1:]) if pair in RANKS]
            if not pairs:
                break
            tokens = merged(tokens, min(pairs, key=RANKS.get))
        numbers += [NUMBERS[token] for token in tokens]
    return numbers


TEXTS = [*TRAINING, "", " ", "   ", "a", "that cat, those hats", "aaaaaaa aaaaaaaaaaaa", "I'll we've they're it's 'tis I'M",
         "  two  blanks   three\n\nlines\n \n x\t y", "\u65e5\u672c\u8a9e 12\u00b2\u00bd x\u0301 \U0001f600\U0001f600!?", "end ", "the\u00a0cat\u2003sat",
         "!'s ''s a'b\"c'd", "\u0160\u0178 \u0661\u0662 _a_ a_b"]


def literal(data):
    return '"' + "".join(f"\\{byte:03o}" if byte < 32 or byte > 126 else
                         {'"': '\\"', "\\": "\\\\", "?": "\\?"}.get(chr(byte), chr(byte)) for byte in data) + '"'


def listed(items):
    return ", ".join(items)


print("""// SPDX-License-Identifier: Apache-2.0
// Written by byte_pairs_cases.py: texts, the merges that are learnt from them as GPT-2's file has
// them, and other texts with their words and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// clang-format off""")
print("inline const std::vector<std::string> training_texts = {", ",\n    ".join(literal(t.encode()) for t in TRAINING), "};", sep="\n    ")
print("inline const char* const learnt_merges =")
for a, b in MERGES:
    line = "".join(written[c] for c in a) + " " + "".join(written[c] for c in b) + "\n"
    print(f"    {literal(line.encode())}")
print("    ;")
print("""struct BytePairsCase {
  std::string text;
  std::vector<std::string> words;
  std::vector<std::int64_t> numbers;
};
inline const std::vector<BytePairsCase> byte_pairs_cases = {""")
for text in TEXTS:
    print(f"    {{{literal(text.encode())}, {{{listed(literal(word) for word in words_of(text))}}},\n"
          f"     {{{listed(map(str, encode(text)))}}}}},")
print("};\n// clang-format on")
