"""Tests that SPECIFICATION.md and the table of pitfalls name are there: a promise whose test was renamed
would be one without a test.

What is looked at: marks `CRATE: path::name`, `e2e: module.name`, `image: file.name`, with `*` and `{a,b}` in
names, and those that follow one in the same row. Of names that tables make (`generated()`) the parts have to
be words of their module, or programs."""

import fnmatch
import glob
import os
import re

from pages import ROOT

PAGES = ("SPECIFICATION.md", "docs/internals/pitfalls.md")
MARK = re.compile(r"`(?:([a-z][a-z0-9-]*): )?([A-Za-z0-9_:.{},*/-]+)`")
FUNCTION = re.compile(r"\bfn (\w+)")
CASE = re.compile(r"^def test_(\w+)", re.M)


# What tables of tests make their names of.
PROGRAMS = {os.path.basename(p).partition(".")[0] for p in glob.glob(os.path.join(ROOT, "tests", "e2e", "mpi", "*"))}


def spread(text):
    """`a.{b,c}_*` -> `a.b_*`, `a.c_*`."""
    mark = re.search(r"\{([^{}]*)\}", text)
    if not mark:
        return [text]
    ends = [text[: mark.start()] + one + text[mark.end() :] for one in mark.group(1).split(",")]
    return [whole for end in ends for whole in spread(end)]


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def of_crate(name):
    """(words of its path, text, names of functions) of each file of a crate with its tests."""
    base = os.path.join(ROOT, "crates", name)
    found = []
    for part in ("src", "tests"):
        for path in glob.glob(f"{base}/{part}/**/*.rs", recursive=True):
            text = read(path)
            parts = os.path.relpath(path, base)[: -len(".rs")].split(os.sep)
            parts += [part[: -len("_tests")] for part in parts if part.endswith("_tests")]
            found.append(({"tests", *parts, *re.findall(r"\bmod (\w+)", text)}, FUNCTION.findall(text)))
    return found


def in_crate(files, route, name):
    """Whether a function of that name, in which `*` stands for anything, is in such a module."""
    there = lambda parts, word: any(fnmatch.fnmatchcase(part, word) for part in parts)
    here = [(parts, names) for parts, names in files if all(there(parts, word) for word in route)]
    return any(there(names, name) or name in parts for parts, names in here)


def in_cases(modules, module, name):
    text = modules.get(module)
    if text is None:
        return False
    if any(fnmatch.fnmatchcase(one, name) for one in CASE.findall(text)):
        return True
    # Made by a table: its parts are words there.
    parts = [part for piece in name.split("*") for part in piece.split("_") if len(part) > 2]
    known = PROGRAMS | set(re.findall(r"[^\W_]+", text))
    return "generated" in text and all(part in known for part in parts)


class Tests:
    def __init__(self):
        names = os.listdir(os.path.join(ROOT, "crates"))
        self.crates = {name: of_crate(name) for name in names}
        cases = glob.glob(os.path.join(ROOT, "tests", "e2e", "cases", "*.py"))
        self.cases = {os.path.basename(path)[: -len(".py")]: read(path) for path in cases}
        # Kinds and programs of the image matrix.
        parts = glob.glob(os.path.join(ROOT, "tests", "image", "*.py"))
        self.matrix = set(re.findall(r"[^\W_]+", "".join(read(path) for path in parts)))

    def has(self, scope, text):
        """Whether there is such a test; None: this is not looked at."""
        if scope == "e2e":
            module, _, name = text.partition(".")
            return in_cases(self.cases, module, name) if re.fullmatch(r"\w+\.(?!c$)[\w*]+", text) else None
        if scope in self.crates and re.fullmatch(r"[\w*]+((::|\.)[\w*]+)+", text):
            *route, name = re.split(r"::|\.", text)
            if scope == "image" and route[0] in self.matrix and len(route) == 1:
                return True
            return in_crate(self.crates[scope], route, name if name != "tests" else "*")
        return None


def missing(page, tests):
    for number, line in page.prose():
        if not line.startswith("|"):
            continue
        scope = None
        for prefix, text in MARK.findall(line):
            scope = prefix or scope
            for one in spread(text):
                if tests.has(scope, one) is False:
                    yield number, f"{scope}: {one}"


def faults(book):
    tests = Tests()
    for path in PAGES:
        for number, name in missing(book[path], tests):
            yield path, f"line {number}: there is no test {name}"
