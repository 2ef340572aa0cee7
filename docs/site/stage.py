#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lays out what mkdocs builds the site from: README.md as its first page, docs/ as it is, and a page for each source
file and folder that these link to, so that one link serves in the repository and on the site. Links that lead nowhere
end it with 1. Needs nothing but Python; tests/docs runs it as a check.

    stage.py ROOT FOLDER [--views FOLDER] [--reference FOLDER]

--views: pages of `peal-schedule view` to embed. --reference: HTML of Doxygen.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sys

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\()([^)\s]+)(\))")
CODE = re.compile(r"(`+)(?:(?!\1).)+\1")
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".cu": "cpp", ".sh": "bash", ".py": "python", ".cmake": "cmake",
             ".awk": "awk", ".json": "json", "CMakeLists.txt": "cmake"}


def title_of(text, otherwise):
    found = re.search(r"^# +(.*)$", text, re.MULTILINE)
    return found.group(1).replace("`", "") if found else otherwise


class Site:
    def __init__(self, root, folder):
        self.root, self.docs = root, folder / "docs"
        self.wrong = []
        self.sources = set()  # paths from the root that have pages

    def page_of(self, path):
        """Where on the site PATH of the repository is read, both from their roots; None: it isn't there."""
        whole = self.root / path
        if not whole.exists():
            return None
        if path == "README.md":
            return "index.md"
        inside = path == "docs" or path.startswith("docs/")
        if inside and whole.is_file() and path.endswith((".md", ".svg", ".png")):
            return path[len("docs/"):]
        if inside and whole.is_dir() and (whole / "README.md").exists():
            return path[len("docs/"):] + "/README.md"
        self.sources.add(path)
        return f"source/{path}/index.md" if whole.is_dir() else f"source/{path}.md"

    def relink(self, text, path, page):
        """The Markdown TEXT of the repository's file PATH as it has to be for the site's PAGE."""
        def link(match):
            target = match.group(2)
            if re.match(r"[a-z]+:", target):
                return match.group(0)
            file, _, anchor = target.partition("#")
            meant = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            there = self.page_of(meant)
            if there is None:
                self.wrong.append(f"{path}: a link to {target}: no such file")
                return match.group(0)
            to = "" if not file else os.path.relpath(there, os.path.dirname(page) or ".")
            return match.group(1) + to + ("#" + anchor if anchor else "") + match.group(3)

        # A link may run over the end of a line, a block of code may not be touched.
        parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
        for i in range(0, len(parts), 2):
            codes = []

            def hide(match):
                codes.append(match.group(0))
                return f"\0{len(codes) - 1}\0"

            hidden = LINK.sub(link, CODE.sub(hide, parts[i]))
            parts[i] = re.sub("\0(\\d+)\0", lambda m: codes[int(m.group(1))], hidden)
        return "".join(parts)

    def write(self, page, text):
        file = self.docs / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def markdown(self, path, page):
        text = (self.root / path).read_text(encoding="utf-8")
        self.write(page, self.relink(text, path, page))
        return title_of(text, page)

    def source(self, path):
        whole = self.root / path
        page = self.page_of(path)
        head = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
        if whole.is_dir():
            lines = []
            for entry in sorted(whole.iterdir()):
                name = f"{path}/{entry.name}"
                known = name in self.sources or self.is_document(name)
                to = os.path.relpath(self.page_of(name), os.path.dirname(page)) if known else None
                label = entry.name + ("/" if entry.is_dir() else "")
                lines.append(f"- [{label}]({to})" if to else f"- {label}")
            self.write(page, head + "\n".join(lines) + "\n")
            return
        language = LANGUAGES.get(whole.name) or LANGUAGES.get(whole.suffix, "text")
        text = whole.read_text(encoding="utf-8", errors="replace")
        fence = "`" * max([3] + [len(run) + 1 for run in re.findall("`{3,}", text)])
        self.write(page, f"{head}{fence}{language}\n{text.rstrip()}\n{fence}\n")

    def is_document(self, path):
        return path.startswith("docs/") and path.endswith(".md")


# What the pages of `peal-schedule view` are called on the site.
VIEWS = {"ring.html": "A ring all-reduce over five ranks",
         "pipeline.html": "A pipeline of four stages: GPipe, and 1F1B beside it",
         "compare.html": "Which algorithm wins, by size and ranks"}


def views_page(folder):
    lines = ["---", "hide: [navigation, toc]", "---", "# Plans to step through", "",
             "Pages that `peal-schedule view` writes: each is one HTML file without anything from outside.", ""]
    found = [name for name in VIEWS if folder and (folder / name).exists()]
    for name in found:
        lines += [f"## {VIEWS[name]}", "", f"[On a page of its own](views/{name})", "",
                  f'<iframe src="views/{name}" style="width:100%;height:42rem;border:1px solid #8888" loading="lazy"'
                  f' title="{VIEWS[name]}"></iframe>', ""]
    if not found:
        lines += ["This site was built without a build of peal. In one, this writes such a page:", "", "```sh",
                  "build/release/launch/tools/schedule/peal-schedule view all_reduce ring --ranks 5 --output ring.html",
                  "```"]
    return "\n".join(lines) + "\n", found


def _linked(source, to):
    """There are thousands of them: not copied, where both are on one disk."""
    try:
        os.link(source, to)
    except OSError:
        shutil.copy(source, to)


def stage(root, folder, views, reference):
    site = Site(root, folder)
    if site.docs.exists():
        shutil.rmtree(site.docs)
    site.docs.mkdir(parents=True)
    titles = {"index.md": site.markdown("README.md", "index.md")}
    for file in sorted((root / "docs").rglob("*")):
        path = file.relative_to(root).as_posix()
        page = path[len("docs/"):]
        if page.startswith("site/") or file.is_dir():
            continue
        if file.suffix == ".md":
            titles[page] = site.markdown(path, page)
        elif file.suffix in (".svg", ".png"):
            (site.docs / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, site.docs / page)
    for path in sorted(site.sources):
        site.source(path)
    (site.docs / "assets").mkdir()
    shutil.copy(root / "docs/site/iframe-worker.js", site.docs / "assets")
    text, found = views_page(views)
    site.write("plans.md", text)
    for name in found:
        (site.docs / "views").mkdir(exist_ok=True)
        shutil.copy(views / name, site.docs / "views")

    def of(folder):
        pages = [p for p in titles if p.startswith(folder) and "/" not in p[len(folder):]]
        pages.sort(key=lambda p: (not p.endswith("README.md"), p))
        return [{titles[p]: p} for p in pages]

    guide = [{titles[p]: p} for p in titles if "/" not in p and p != "index.md"]
    nav = [{"peal": "index.md"}, {"Guide": guide}, {"Book": of("book/") + [{"Answers": of("book/answers/")}]}, {"Plans": "plans.md"},
           {"Decisions": of("decisions/")}]
    known = {"book", "decisions", "pictures"}
    for other in sorted({p.split("/")[0] for p in titles if "/" in p} - known):
        nav.insert(3, {other.capitalize(): of(other + "/")})
    if reference:
        shutil.copytree(reference, site.docs / "reference", copy_function=_linked)
        nav.append({"Reference": "reference/index.html"})
    settings = (root / "docs/site/mkdocs.yml").read_text(encoding="utf-8")
    (folder / "mkdocs.yml").write_text(f"{settings}nav: {json.dumps(nav)}\n", encoding="utf-8")
    return site, titles


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("root", type=pathlib.Path)
    words.add_argument("folder", type=pathlib.Path)
    words.add_argument("--views", type=pathlib.Path)
    words.add_argument("--reference", type=pathlib.Path)
    given = words.parse_args()
    site, titles = stage(given.root.resolve(), given.folder, given.views, given.reference)
    for line in site.wrong:
        print(line, file=sys.stderr)
    print(f"{len(titles)} documents, {len(site.sources)} pages of sources, {len(site.wrong)} wrong links")
    return 1 if site.wrong or not titles else 0


if __name__ == "__main__":
    sys.exit(main())
