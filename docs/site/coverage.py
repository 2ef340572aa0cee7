#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many of the public functions of the installed headers are said, by their comments (headers.py has the conventions):

- docstring: there is one; what overrides is said where it is declared first, operators of iterators by
  C++;
- shape: one that takes or gives tensors says of which shape or size, or what the rows and elements are;
- unit: one that takes or gives a double says what it counts: seconds, bytes, a factor ...;
- errors: one whose own body throws says so;
- source: a header of an algorithm says in its essay where it is from.

    coverage.py ROOT [--at-least PERCENT] [--missing] [FOLDER...]       the folders are comm nn/parallel launch
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

import headers

SHAPE = re.compile(r"\[[^\]]*\]|\b(shape|size|element|row|column|scalar|number|parameter|gradient|batch|buffer|"
                   r"count|loss|sample|as above)s?\b|in\b.*\bout\b", re.IGNORECASE)
UNIT = re.compile(r"\b(second|byte|ms|us|share|fraction|factor|ratio|times|probability|norm|rate|per|0 to 1|"
                  r"loss|losses|measure|bound|unit|beta|cost|metric|sample|threshold|divided|average)s?\b|%", re.IGNORECASE)
ERRORS = re.compile(r"\b(Errors?|[Tt]hrows?|thrown|invalid_argument)\b")
OF_CPP = ("operator*", "operator->", "operator++", "operator==")
THROWS = re.compile(r"\bPEAL_CHECK\(|\bthrow [A-Za-z]")
SOURCE = re.compile(r"(19|20)\d\d|MPICH|arXiv|PyTorch|NCCL|Source")
ALGORITHMS = re.compile(r"comm/algorithms/(?!entry|table|world)|comm/pipeline/pipeline\.h|"
                        r"nn/parallel/(power_sgd|adascale|local_sgd|outer_step)\.h")


def bodies(file, cache={}):
    """Of each function of a source, by its name with its class: the text of its bodies."""
    if file not in cache:
        found = collections.defaultdict(str)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        for match in re.finditer(r"^[^\s/#}].*?\b((?:\w+::)*~?\w+)\([^;{}]*\{$(.*?)^\}", text, re.MULTILINE | re.DOTALL):
            found[match.group(1)] += match.group(2)
        cache[file] = found
    return cache[file]


def body_of(root, header, name):
    """Of the source of the same name or, where that does not have it, of the folder's others."""
    stem = (root / header).with_suffix(".cpp")
    others = sorted(stem.parent.glob("*.cpp")) if "::" in name else []
    return next((bodies(file)[name] for file in [stem] + others if name in bodies(file)), "")


def report(root, folders):
    """Counts by folder and kind, [said, of], and what is missing."""
    lists = subprocess.run(["cmake", f"-DROOT={root}", "-DPEAL_MPI=ON", "-DPEAL_CUDA=ON", "-P",
                            str(root / "cmake/PublicHeaders.cmake")], check=True, capture_output=True, text=True)
    counts = collections.defaultdict(lambda: [0, 0])
    missing = []

    def note(folder, kind, said, where):
        counts[folder, kind][0] += said
        counts[folder, kind][1] += 1
        if not said:
            missing.append(f"{where}: no {kind}")

    # Those of algorithms are not installed, but what the table says of them is theirs.
    for folder, file in [(f, file) for f in folders for file in sorted((root / f).rglob("*.h"))]:
        header = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        if ALGORITHMS.match(header) and ("Entry " in text or "comm/algorithms" not in header):
            essay = headers.essay_of(text.split("\n"))[0]
            note(folder, "source", bool(SOURCE.search(" ".join(essay))), header)
    for header in lists.stdout.split():
        folder = next((f for f in folders if header.startswith(f + "/")), None)
        if folder is None:
            continue
        lines = (root / header).read_text(encoding="utf-8").split("\n")
        found = headers.statements_of(lines)
        for s in found:
            if not s.name or not s.public or headers.SPECIAL.search(s.text):
                continue
            if "override" in s.text and not s.own or s.name in OF_CPP or any(o.startswith("fmt::") for o in s.scopes):
                continue
            doc = " ".join(s.doc)
            where = f"{header}:{s.first + 1}: {'::'.join(s.scopes[1:] + (s.name,))}"
            note(folder, "docstring", bool(doc), where)
            if not doc:
                continue
            types = s.head.replace("NamedTensors", "")
            if re.search(r"\b(Tensors?|View)\b(?!::)", types):
                note(folder, "shape", bool(SHAPE.search(doc)), where)
            if re.search(r"\b(double|float)\b", types):
                note(folder, "unit", bool(UNIT.search(doc + s.head)), where)
            body = "\n".join(lines[s.first:s.last + 1]) if "{" in s.text else ""
            owner = s.scopes[-1] + "::" if s.scopes and s.scopes[-1][:1].isupper() else ""
            body += body_of(root, header, owner + s.name)
            if THROWS.search(body):  # overloads say it once
                alike = [t for t in found if t.name == s.name and t.scopes == s.scopes]
                note(folder, "errors", any(ERRORS.search(" ".join(t.doc)) for t in alike), where)
    return counts, missing


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("root", type=pathlib.Path)
    words.add_argument("folders", nargs="*", default=["comm", "nn/parallel", "launch"])
    words.add_argument("--at-least", type=float, default=0, help="ends with 1 where the share of all, in percent, is below")
    words.add_argument("--missing", action="store_true", help="names what is not said")
    given = words.parse_args()
    counts, missing = report(given.root.resolve(), given.folders)
    if given.missing:
        print("\n".join(missing))
    rows = sorted(counts.items())
    rows.append((("all", ""), [sum(c[0] for c in counts.values()), sum(c[1] for c in counts.values())]))
    for (folder, kind), (said, of) in rows:
        share = 100 * said / max(of, 1)
        print(f"{folder:12} {kind:10} {said:4} of {of:4}  {share:5.1f} %")
    if share < given.at_least:
        sys.exit(f"below {given.at_least:g} %: what is missing is named by --missing")


if __name__ == "__main__":
    main()
