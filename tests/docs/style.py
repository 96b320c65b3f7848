"""Lengths: lines of at most 120 columns, but for rows of tables and addresses, which cannot be
broken; guides of at most 600 words outside of code."""

import re

COLUMNS, GUIDE_WORDS = 120, 600
# What programs print is shown as it is.
AS_IT_IS = ("console",)
# The rows of promises are tables with continued rows; formats name long paths in code.
WITHOUT = ("SPECIFICATION.md",)


def long_lines(book):
    for path, page in book.items():
        if path in WITHOUT:
            continue
        for number, (line, code) in enumerate(zip(page.lines, page.code), 1):
            if len(line) <= COLUMNS or code in AS_IT_IS:
                continue
            if code is None and (line.lstrip().startswith("|") or re.search(r"https?://\S{80,}", line)):
                continue
            yield path, f"line {number} has {len(line)} columns"


def words(page):
    """Words outside of code; the bars of tables are none."""
    text = " ".join(line for _, line in page.prose())
    return len([word for word in text.split() if re.search(r"\w", word)])


def long_guides(book):
    for path, page in book.items():
        if path.startswith("docs/guides/") and words(page) > GUIDE_WORDS:
            yield path, f"has {words(page)} words, more than {GUIDE_WORDS}"
