#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies headers with their comments as Doxygen reads them: the tree's are plain //, by the conventions that headers.py
reads. An essay becomes its file's description; what says several declarations is said of each.

    doxygen_headers.py ROOT FOLDER HEADER...      writes FOLDER/peal/HEADER
"""

import pathlib
import re
import shutil
import sys

import headers


def escaped(text):
    text = re.sub(r"[\\@<>&#%$\"]", lambda m: "\\" + m.group(0), text)
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text)


def described(lines):
    """The LINES of a comment as Doxygen's: indented ones are code, all else is words."""
    out, code, words_before = [], None, ""
    for at, line in enumerate(lines):
        indented = line.startswith("   ") and line.strip()
        listed = re.match(r"\s*(-|\d+\.) ", words_before)
        if code is None and indented and not listed and (not words_before or words_before.endswith(":")):
            code = "code{.cpp}" if re.search(r"[;(]", line) else "verbatim"
            out.append("///\\" + code)
        elif code and not indented and (line.strip() or not _goes_on(lines[at:])):
            out.append("///\\end" + code.split("{")[0])
            code = None
        if code:
            out.append("///" + line)
        else:
            out.append("/// " + escaped(line.strip()))
            if not (listed and indented):
                words_before = line.rstrip()
    if code:
        out.append("///\\end" + code.split("{")[0])
    return out


def _goes_on(lines):
    """Whether code follows these lines, which begin with an empty one."""
    for line in lines:
        if line.strip():
            return line.startswith("   ")
    return False


def _specialisations(lines):
    """The lines of what specialises a template of others (fmt::formatter), which Doxygen has no scope for."""
    found, inside = set(), False
    for number, line in enumerate(lines):
        inside = inside or bool(re.match(r"struct (fmt|std)::\w+<", line))
        if inside:
            if lines[number - 1].startswith("template"):
                found.add(number - 1)
            found.add(number)
        inside = inside and not (line.startswith("};") or re.match(r"struct .*\};$", line))
    return found


def _is_of_essay(statement, essay):
    """Whether a class is what the header's essay begins with: "Process group (MPI: communicator): ..."."""
    said = re.match(r" ?([\w ]+)[:(,]", " ".join(essay[:1]))
    made = re.match(r"(?:class|struct)\s+(\w+)\b", statement.text) if statement.opens else None
    return bool(said and made) and said.group(1).replace(" ", "").lower() == made.group(1).lower()


def for_doxygen(lines):
    essay, at = headers.essay_of(lines)
    out = ["/// \\file"] + described(essay)
    statements = headers.statements_of(lines)
    for s in statements:
        if not s.doc and _is_of_essay(s, essay):
            s.doc = essay
            break
    statements = [s for s in statements if s.doc]
    above = {s.first: s for s in statements if not s.trailing}
    behind = {s.last: s for s in statements if s.trailing}
    drop = set()
    hidden = _specialisations(lines)
    for s in above.values():
        if s.own:
            drop.update(range(s.first - len(s.doc), s.first))
    for number in range(at, len(lines)):
        if number in drop:
            continue
        line = lines[number]
        if number in hidden:
            continue
        if number in above:
            out += described(above[number].doc)
        if number in behind:
            doc = behind[number].doc[0]
            line = line[:line.rindex("//" + doc)] + "///< " + escaped(doc.strip())
        out.append(line)
    return out


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: doxygen_headers.py ROOT FOLDER HEADER...")
    root, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for header in sys.argv[3:]:
        file = folder / "peal" / header
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = (root / header).read_text(encoding="utf-8").split("\n")
        for list_of_lines in re.findall(r"#include <peal/(.*\.def)>", "\n".join(lines)):
            (folder / "peal" / list_of_lines).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / list_of_lines, folder / "peal" / list_of_lines)
        file.write_text("\n".join(for_doxygen(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
