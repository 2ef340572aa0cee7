#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That the search of a site finds words: as lunr does it, a word is found where one of the words that a section is cut
into is equal to it.

    check_search.py SITE WORD...

SITE is a site that mkdocs has built, or what stage.py has laid out for it: then sections are those of the pages' headings,
of pages that are not kept out of the search, and the words are cut by the same setting.
"""

import json
import pathlib
import re
import sys


def sections_of(site):
    """What words are cut by, and the sections as (place, text)."""
    built = site / "search/search_index.json"
    if built.exists():
        index = json.loads(built.read_text(encoding="utf-8"))
        return index["config"]["separator"], [(s["location"], f"{s['title']} {s['text']}") for s in index["docs"]]
    settings = (site / "mkdocs.yml").read_text(encoding="utf-8")
    sections = []
    for page in sorted((site / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if not re.match(r"---\n(?:.*\n)*?  exclude: true\n(?:.*\n)*?---\n", text):
            sections += [(page, section) for section in re.split(r"^#+ ", text, flags=re.MULTILINE)]
    return re.search(r"separator: '([^']*)'", settings).group(1), sections


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: check_search.py SITE WORD...")
    separator, sections = sections_of(pathlib.Path(sys.argv[1]))
    where = {}
    for place, text in sections:
        for word in re.split(separator, re.sub("<[^>]*>", " ", text)):
            where.setdefault(re.sub(r"^\W+|\W+$", "", word).lower(), []).append(place)
    missing = [word for word in sys.argv[2:] if word.lower() not in where]
    for word in sys.argv[2:]:
        print(f"{word}: {len(where.get(word.lower(), []))} sections")
    if missing:
        sys.exit("not found by the search: " + " ".join(missing))


if __name__ == "__main__":
    main()
