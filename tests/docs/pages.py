"""The pages: those of the book (docs/), and the Markdown files in the repository's root."""

import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\S*)\s*$")
# Pages in the root that are held to the rules; SPECIFICATION's rows are tables of their own.
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SPECIFICATION.md")


class Page:
    """One page: its path from the root, its lines, and which of them are code."""

    def __init__(self, path, text):
        self.path, self.lines = path, text.split("\n")
        # For each line the language of the block that it is in, "" for no language, None outside.
        self.code, self.blocks = [], []
        inside = fence = None
        for number, line in enumerate(self.lines, 1):
            mark = FENCE.match(line)
            if inside is None and mark:
                inside, fence = mark.group(2), mark.group(1)
                self.code.append(inside)
                self.blocks.append((inside, number, []))
            elif inside is not None and mark and mark.group(1) == fence and not mark.group(2):
                self.code.append(inside)
                inside = None
            else:
                self.code.append(inside)
                if inside is not None:
                    self.blocks[-1][2].append(line)

    def prose(self):
        """(number, line) of what is not code."""
        for number, (line, code) in enumerate(zip(self.lines, self.code), 1):
            if code is None:
                yield number, line

    def anchors(self):
        """The anchors that mdBook and GitHub give its headings."""
        found, counts = set(), {}
        for _, line in self.prose():
            mark = re.match(r"^#{1,6}\s+(.*?)\s*#*$", line)
            if mark:
                name = anchor(mark.group(1))
                count = counts.get(name, 0)
                counts[name] = count + 1
                found.add(f"{name}-{count}" if count else name)
        return found


def anchor(heading):
    """Letters, digits, - and _ stay, blanks become -."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return "".join("-" if c.isspace() else c.lower() for c in text if c.isalnum() or c in "-_ ")


def pages():
    """All pages by their paths."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "docs", *ROOT_PAGES],
        cwd=ROOT, text=True, capture_output=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    found = {}
    for path in sorted(set(listed)):
        if path.endswith(".md") and os.path.isfile(os.path.join(ROOT, path)):
            with open(os.path.join(ROOT, path)) as file:
                found[path] = Page(path, file.read())
    assert len(found) > 50, "pages are missing"
    return found
