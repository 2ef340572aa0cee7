#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes rules_cases.h: what the rules of fastai (fastai/text/core.py), as the regular expressions that they are there,
# make of texts.     tests/data/rules_cases.py >tests/data/rules_cases.h
import html
import re


def fix_html(x):
    for what, by in (("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), ("\\n", "\n"),
                     ("quot;", "'"), ("<br />", "\n"), ('\\"', '"'), ("<unk>", "xxunk"), (" @.@ ", "."), (" @-@ ", "-"),
                     ("...", " …")):
        x = x.replace(what, by)
    return html.unescape(x)


def marked(pattern, mark):
    def rule(t):
        return re.sub(pattern, lambda m: m[1] + (mark if len(m[2]) > 1 else "") + m[2].lower(), t)
    return rule


RULES = {
    "fix_html": fix_html,
    "replace_rep": lambda t: re.sub(r"(\S)(\1{2,})", lambda m: f" xxrep {len(m[2]) + 1} {m[1]} ", t),
    "replace_wrep": lambda t: re.sub(r"(?:\s|^)(\w+)\s+((?:\1\s+)+)\1(\s|\W|$)",
                                     lambda m: f" xxwrep {len(m[2].split()) + 2} {m[1]} {m[3]}", t),
    "spec_add_spaces": lambda t: re.sub(r"([/#\\])", r" \1 ", t),
    "rm_useless_spaces": lambda t: re.sub(" {2,}", " ", t),
    "replace_all_caps": marked(r"(\s|^)([A-Z]+[^a-z\s]*)(?=(\s|$))", "xxup "),
    "replace_maj": marked(r"(\s|^)([A-Z][^A-Z\s]*)(?=(\s|$))", "xxmaj "),
}


def apply_rules(t):
    for rule in RULES.values():
        t = rule(t)
    return "xxbos " + t.lower().strip()


TEXTS = [
    "", " ", "a", "Such a GREAT film!!!! I loved it, I'd say 10/10 #best", "wooow   so so so good", "so so so",
    "no no no no.", "no no no nob", "no no nob", "no  no\nno no", "the the the a a a", "x x x x x x y y y",
    " lead lead lead", "end end end ", "a a. a a", "word word word, word", "AAAA bbb  CCC---", "... .... dots...",
    "I AM A1B2 B-52 MiXed McDonald's Hello-World HELLO! (HELLO) É ÉCOLE École", "USA's U.S.A. X", "tab\tTab\t\tTAB\r\nNew",
    "&lt;b&gt; &amp;amp; &quot;hi&quot; &#39;x&#39; &eacute;t&eacute; &#x41;&#66; &bogus; & ; &#0000; A&B; it&#146;s",
    "one<br /><br />two\\nthree \\\"four\\\" <unk> 3 @.@ 5 well @-@ known...", "a/b\\c#d", "naïve naïve naïve ÇA",
    "日本 日本 日本 東京", "café café café!", "— — — ———", "1 1 1 2 2 2 2", "_ _ _ _", "a_b a_b a_b", "zzz zzz zzz",
    "Привет ПРИВЕТ Мир мир мир мир", "Ω ΩΩΩ", "\u00a0nbsp\u00a0\u00a0 \u2003em", "end.\n\n\nNext",
]


def literal(text):
    return '"' + "".join(f"\\{byte:03o}" if byte < 32 or byte > 126 else
                         {'"': '\\"', "\\": "\\\\", "?": "\\?"}.get(chr(byte), chr(byte)) for byte in text.encode()) + '"'


print("""// SPDX-License-Identifier: Apache-2.0
// Written by rules_cases.py: a rule, a text, and what the rule makes of it.
#pragma once

struct RulesCase {
  const char *rule, *in, *out;
};
// clang-format off
inline constexpr RulesCase rules_cases[] = {""")
for name, rule in {**RULES, "apply_rules": apply_rules}.items():
    for text in TEXTS:
        if name == "fix_html" and "&#0000;" in text:
            text = text.replace("&#0000; ", "")  # Python makes U+FFFD of it
        if name == "apply_rules":
            text = text.replace("&#0000; ", "")
        if rule(text) != text:
            print(f"    {{{literal(name)}, {literal(text)},\n     {literal(rule(text))}}},")
print("};\n// clang-format on")
