"""Files and folders of the repository that pages name are there."""

import os
import re

from pages import ROOT

TOPS = "crates|tests|scripts|packaging|benches|examples|include|fortran|python|docs"
PATH = re.compile(rf"`((?:{TOPS})/[\w./-]+)`")


def faults(book):
    for path, page in book.items():
        # What was, when an entry was written.
        if path == "CHANGELOG.md":
            continue
        for number, line in page.prose():
            for file in PATH.findall(line):
                if not os.path.exists(os.path.join(ROOT, file)):
                    yield path, f"line {number}: there is no {file}"
