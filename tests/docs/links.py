"""Links: each leads to a file that is there, and to a heading of it; those of the book stay in it, as
only its files are in what is built; and every page of it is reached from SUMMARY.md."""

import os
import re

from pages import ROOT

LINK = re.compile(r"(?<!\\)!?\[(?:[^\]\\]|\\.)*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
# A span of code, which may go over the end of a line, but not of a paragraph.
CODE = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n\n).)*?(?<!`)\1(?!`)", re.DOTALL)


def targets(page):
    """(line, target) of each link outside of code; one may go over the end of a line."""
    lines = dict(page.prose())
    text = "\n".join(lines.get(number, "") for number in range(1, len(page.lines) + 1))
    text = CODE.sub(lambda m: re.sub(r"[^\n]", "`", m.group(0)), text)
    for mark in LINK.finditer(text):
        yield text.count("\n", 0, mark.start()) + 1, mark.group(1)


def faults(book):
    for path, page in book.items():
        for number, target in targets(page):
            fault = broken(book, path, target)
            if fault:
                yield path, f"line {number}: {target}: {fault}"


def broken(book, path, target):
    """Why a link of the page does not lead anywhere, or None."""
    if re.match(r"^(https?|mailto):", target):
        return None
    file, _, name = target.partition("#")
    there = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
    if path.startswith("docs/") and not there.startswith("docs/"):
        return "leads out of the book"
    if there not in book and not os.path.exists(os.path.join(ROOT, there)):
        return "there is no such file"
    if name and there not in book:
        return "has an anchor in what is no page"
    if name and name not in book[there].anchors():
        return "there is no such heading"
    return None


def unreachable(book):
    """Pages of the book that SUMMARY.md does not name, and what it names twice."""
    summary = book["docs/SUMMARY.md"]
    named = [os.path.normpath(os.path.join("docs", t)) for _, t in targets(summary)]
    for path in book:
        if path.startswith("docs/") and path != "docs/SUMMARY.md" and path not in named:
            yield path, "is not in SUMMARY.md"
    for path in sorted({p for p in named if named.count(p) > 1}):
        yield "docs/SUMMARY.md", f"names {path} twice"
