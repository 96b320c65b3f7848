#!/usr/bin/env python3
"""The house rules, checked: what a reader may rely on in every file of this repository.

Rust: a file opens with `//!`, has at most 800 lines (from 400 on it is named as long), lines of at
most 100 columns. Length of functions, `unsafe`, `unwrap()` and `expect(` are looked at by clippy
(`[workspace.lints]` in Cargo.toml, clippy.toml, the heads of crates). All text files: no machine's
own paths, no registry's host names, no trailing blanks, a newline at the end.

Exceptions are listed below, each with its reason; one that is no longer needed is an error too.

usage: tests/tidy.py     the last line is `tidy: N passed, N failed` (a file is one test)
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_LINES, LONG_LINES, MOST_COLUMNS = 800, 400, 100

# What the stage `sim` of `make test` runs.
SIM_TESTS = "tests/sim/tests/all/seeds.rs"

# path -> {rule: reason}
EXCEPTIONS = {}

# Written in pieces so that this file does not contain what it forbids.
FORBIDDEN = [
    (re.compile(p), what)
    for p, what in (
        (r"(?<![\w.])/" + r"work/", "a machine's own path"),
        (r"(?<![\w.])/" + r"root/", "a machine's own path"),
        (r"(?<![\w.])/home/" + r"\w+", "a machine's own path"),
        (r"/tmp/" + r"wh\b|/tmp/target" + r"-", "a machine's own path"),
        (
            r"py"
            + r"pi\.org|files\.python"
            + r"hosted|crates"
            + r"\.io|index\.crates|static\.rust-"
            + r"lang",
            "a registry's host",
        ),
    )
]
TEXT = (
    ".rs",
    ".c",
    ".h",
    ".f90",
    ".F90",
    ".py",
    ".md",
    ".toml",
    ".sh",
    ".txt",
    ".ld",
    ".S",
    "Makefile",
    "run",
    "setup",
    "demo",
    "kill-storm",
    "pingpong",
    "imb",
    "link",
)


def files():
    """All files that are or would be in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    ).stdout.splitlines()
    return [p for p in sorted(set(listed)) if os.path.isfile(os.path.join(ROOT, p))]


STRING_OR_COMMENT = re.compile(
    r'r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\\\'])\'|//[^\n]*|/\*.*?\*/', re.S
)


def code_only(text):
    """The text with strings and comments blanked, so that braces and words in them do not count."""
    return STRING_OR_COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def rust_faults(path, text):
    """(rule, message) of each broken rule of a Rust file."""
    lines = text.splitlines()
    code = code_only(text)
    if not text.startswith("//!"):
        yield "opening", "does not open with //!"
    if len(lines) > MOST_LINES:
        yield "lines", f"has {len(lines)} lines, more than {MOST_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_COLUMNS:
            yield "columns", f"line {number} has {len(line)} columns"
    if path.startswith("tests/sim/") and path != SIM_TESTS and "#[test]" in code:
        yield "sim", f"has tests, which no stage runs: they stand in {SIM_TESTS}"


def text_faults(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what in FORBIDDEN:
            if pattern.search(line):
                yield "paths", f"line {number} names {what}: {line.strip()[:80]}"
        if line != line.rstrip():
            yield "blanks", f"line {number} has trailing blanks"
    if text and not text.endswith("\n"):
        yield "newline", "does not end with a newline"


def self_test():
    """The checker must find what it looks for."""
    long = "//! x\n" + "fn f() {}\n" * 800
    assert [r for r, _ in rust_faults("crates/core/src/a.rs", long)] == ["lines"]
    bad = "// x\nfn f() {" + " " * 100 + "}\n"
    assert [r for r, _ in rust_faults("crates/core/src/a.rs", bad)] == ["opening", "columns"]
    tests = '//! x\n#[test]\nfn f() { "#[test]"; }\n'
    assert [r for r, _ in rust_faults("tests/sim/src/a.rs", tests)] == ["sim"]
    assert [r for r, _ in text_faults("a.md", "see /" + "work/x \n")] == ["paths", "blanks"]


def main():
    self_test()
    passed = failed = 0
    used = set()
    for path in files():
        if not path.endswith(TEXT) and "." in os.path.basename(path):
            continue
        with open(os.path.join(ROOT, path), "rb") as f:
            raw = f.read()
        if b"\0" in raw:
            continue
        text = raw.decode("utf-8", errors="replace")
        faults = list(text_faults(path, text))
        if path.endswith(".rs"):
            faults += rust_faults(path, text)
            if LONG_LINES < text.count("\n") <= MOST_LINES:
                print(
                    f"note: {path} has {text.count(chr(10))} lines: is there a second concept in it?"
                )
        excepted = EXCEPTIONS.get(path, {})
        used |= {(path, rule) for rule, _ in faults if rule in excepted}
        faults = [(rule, message) for rule, message in faults if rule not in excepted]
        for rule, message in faults:
            print(f"{path}: {message} [{rule}]")
        passed, failed = (passed, failed + 1) if faults else (passed + 1, failed)
    for path, rules in EXCEPTIONS.items():
        for rule in rules:
            if (path, rule) not in used:
                print(f"{path}: the exception for [{rule}] is no longer needed")
                failed += 1
    print(f"tidy: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
