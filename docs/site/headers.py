# SPDX-License-Identifier: Apache-2.0
"""Reads the declarations of a header and what its comments say of them, by the tree's conventions:

- the first comment, behind the licence's line or #pragma once, is the header's essay;
- a comment above a declaration, or behind it on its line, is that declaration's; what follows without an empty line
  and has none of its own is said by it too (overloads, pairs).

It is no parser of C++: it follows brackets, and takes a statement that opens a brace for a scope where it begins as one.
"""

import dataclasses
import re

SCOPE = re.compile(r'^(template\s*<.*>\s*)?(inline\s+)?(namespace|class|struct|union|enum|extern\s+"C")\b')
NAMED = re.compile(r"(template|class|struct|enum|using|friend)\b")
# What no comment above something else says: copying, moving and destruction.
SPECIAL = re.compile(r"= (default|delete);$|^(virtual )?~|^(\w+) ?\((const )?\3&|^\w+& operator=\(")
ACCESS = re.compile(r"^(public|private|protected)\s*:\s*$")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![0-9a-fA-F])\'(?:[^\'\\]|\\.)+\'')


@dataclasses.dataclass
class Statement:
    text: str  # without comments, on one line
    doc: list  # lines of the comment that says it, without //
    own: bool  # the comment is its own, not that of what stands before it
    first: int  # its lines in the file, from 0, the last one included
    last: int
    scopes: tuple  # names of the namespaces and classes around it
    public: bool
    opens: bool  # it opens a scope
    trailing: bool = False  # its comment stands behind it

    @property
    def head(self):
        """Up to a function's body or initialisers."""
        depth = 0
        for i, c in enumerate(self.text):
            depth += (c in "(<[") - (c in ")]") - (c == ">" and self.text[i - 1] not in "-=")
            if c == "{" and depth <= 0:
                return self.text[:i].strip()
        return self.text

    @property
    def name(self):
        """A function's, with its classes; empty for all else."""
        head = self.head
        if self.opens or re.match(r"(using|typedef|friend|static_assert|enum|extern template|namespace|concept)\b", head):
            return ""
        head = re.sub(r"^template\s*<", "<", head)
        head = re.sub(r"\brequires\b.*?(?=\b(auto|void|bool|[A-Z]\w*)\b\s+\w+\()", "", head)
        found = re.search(r"(operator\s*(?:\(\)|\[\]|[^\s\w(]+|bool|\w+)|~?\w+)\s*\(", _without_templates(head))
        if not found or found.group(1) in ("decltype", "alignas", "requires", "noexcept"):
            return ""
        before = _without_templates(head)[:found.start()]
        if "=" in before.replace("operator", ""):
            return ""  # a variable that a call makes
        return found.group(1)


def _without_templates(text):
    while True:
        less = re.sub(r"(?<!operator)<[^<>()]*(\([^()]*\)[^<>()]*)*>", "", text)
        if less == text:
            return text
        text = less


def essay_of(lines):
    """The header's essay, and the number of the line behind it."""
    at = 1 if lines and "SPDX-License" in lines[0] else 0
    if lines[at:at + 2] == ["#pragma once", ""]:
        at += 2
    essay = []
    while at < len(lines) and lines[at].startswith("//"):
        essay.append(lines[at][2:])
        at += 1
    return essay, at


def statements_of(lines):
    """Every statement outside of functions' bodies, in the order of the file."""
    found = []
    scopes = []  # [name, is a class, public now]
    comment, group = [], []
    text, first, round_, curly = "", 0, 0, 0
    trailing = []
    field = False  # the group's comment is that of a variable
    hidden = False  # the lines of a macro go on
    _, at = essay_of(lines)

    def public():
        return all(now for _, _, now in scopes)

    def close(last, opens):
        nonlocal text, field, comment, group, trailing, round_, curly
        whole = re.sub(r"\s+", " ", text).strip()
        text, round_, curly = "", 0, 0
        if not whole or whole == ";":
            return
        own = bool(comment or trailing)
        # What several are said by is the comment above the first; one behind a line is that line's.
        doc = comment + trailing if own else group if not SPECIAL.search(whole) else []
        found.append(Statement(whole, doc, own, first, last, tuple(name for name, _, _ in scopes), public(), opens,
                               bool(trailing) and not comment))
        if not own and found[-1].name and (field or " override" in found[-1].head):
            found[-1].doc = []  # a field's comment says no function; what overrides is said elsewhere
        if comment:
            group = comment
            field = not found[-1].name and not opens and not NAMED.match(whole)
        comment, trailing = [], []

    for number in range(at, len(lines)):
        line = lines[number]
        bare = line.strip()
        if hidden or (bare.startswith("#") and not text):
            hidden = line.endswith("\\")
            comment, group = [], []
            continue
        if not text.strip() and bare.startswith("//"):
            if found and not comment:
                group = []
            comment.append(line.strip()[2:])
            continue
        if not bare:
            if not text.strip():
                comment, group = [], []
            continue
        code = STRING.sub(lambda m: '"' + "_" * (len(m.group(0)) - 2) + '"', line)
        cut = code.find("//")
        if cut >= 0 and curly == 0:
            behind = line[cut + 2:]
        else:
            behind = ""
        code = code[:cut] if cut >= 0 else code
        if not text.strip():
            first = number
        i = 0
        while i < len(code):
            c = code[i]
            i += 1
            if c == "}" and curly == 0 and not round_ and not text.strip():
                if scopes:
                    scopes.pop()
                comment, group = [], []
                rest = code[i:].strip()
                if rest.startswith(";"):
                    i = code.index(";", i) + 1
                continue
            text += c
            round_ += (c == "(") - (c == ")")
            if c == "{":
                if curly == 0 and not round_ and SCOPE.match(text.strip()) and not _is_function(text):
                    whole = text.strip()
                    name = re.search(r"(?:namespace|class|struct|union|enum(?: class)?)\s+([\w:]*)", whole)
                    kind = SCOPE.match(whole).group(3)
                    if kind == "enum":
                        curly += 1
                        continue
                    close(number, True)
                    scopes.append([name.group(1) if name else "", kind, kind != "class"])
                    continue
                curly += 1
            elif c == "}":
                curly -= 1
                follows = (code[i:] + " ".join(lines[number + 1:number + 2])).strip()[:1]
                if curly == 0 and not round_ and "(" in text and follows not in (";", ",", "{", ".", ")"):
                    if behind and not code[i:].strip():
                        trailing = [behind]
                    close(number, False)
            elif c == ";" and curly == 0 and not round_:
                if behind and not code[i:].strip():
                    trailing = [behind]
                close(number, False)
            elif c == ":" and ACCESS.match(text.strip()):
                if scopes:
                    scopes[-1][2] = text.strip().startswith("public")
                text = ""
                comment, group = [], []
        text += " " if text else ""
    return found


def _is_function(text):
    head = _without_templates(re.sub(r"\[\[.*?\]\]|alignas\([^()]*\)", "", text))
    return "(" in head
