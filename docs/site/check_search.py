#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That the search of a built site finds words: as lunr does it, a word is found where one of the words that a section
is cut into is equal to it.

    check_search.py SITE WORD...
"""

import json
import pathlib
import re
import sys


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: check_search.py SITE WORD...")
    index = json.loads((pathlib.Path(sys.argv[1]) / "search/search_index.json").read_text(encoding="utf-8"))
    separator = re.compile(index["config"]["separator"])
    where = {}
    for section in index["docs"]:
        text = re.sub("<[^>]*>", " ", section["title"] + " " + section["text"])
        for word in separator.split(text):
            where.setdefault(re.sub(r"^\W+|\W+$", "", word).lower(), []).append(section["location"])
    missing = [word for word in sys.argv[2:] if word.lower() not in where]
    for word in sys.argv[2:]:
        print(f"{word}: {len(where.get(word.lower(), []))} sections")
    if missing:
        sys.exit("not found by the search: " + " ".join(missing))


if __name__ == "__main__":
    main()
