"""Types, messages and modules that the pages on the inside and on formats name are in the code."""

import glob
import os
import re

from pages import ROOT

PAGES = ("docs/internals/", "docs/formats/")
# A mark that begins with a word in capitals and small letters, or with a path of modules.
TYPE = re.compile(r"`([A-Z][a-z][A-Za-z0-9]*|[A-Z]{1,2}[a-z][A-Za-z0-9]*)\b")
ROUTE = re.compile(r"`([a-z_]+)::([A-Za-z_:]+)`")
WORD = re.compile(r"\w+")


def words(*patterns):
    found = set()
    for pattern in patterns:
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True):
            if not os.path.isfile(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                found |= set(WORD.findall(file.read()))
            found.add(os.path.basename(path).partition(".")[0])
    return found


def unknown(page, code, crates):
    """(line, name) of what a page names and the code does not have. `crates`: the words of each."""
    for number, line in page.prose():
        for name in TYPE.findall(line):
            if name not in code:
                yield number, name
        for crate, rest in ROUTE.findall(line):
            there = crates.get(crate, code)
            if not all(part in there for part in rest.split("::")):
                yield number, f"{crate}::{rest}"


def faults(book):
    code = words("crates/*/src/**/*.rs", "tests/**/*.py", "tests/**/*.rs", "include/**/*.h", "scripts/*", "benches/*")
    names = os.listdir(os.path.join(ROOT, "crates"))
    crates = {name.replace("-", "_"): words(f"crates/{name}/src/**/*.rs") for name in names}
    for path, page in book.items():
        if path.startswith(PAGES):
            for number, name in unknown(page, code, crates):
                yield path, f"line {number}: nothing in the code is called {name}"
