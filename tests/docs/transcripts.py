"""Commands that pages show. A block marked `sh` is a script, of one marked `console` lines that begin
with `$ ` are commands: they parse, and each command of Eyrie is one that there is, with options that
it has (docs/reference/options.md, which is made from the code)."""

import re
import shlex
import subprocess

OPTION = re.compile(r"`(--?[\w-]+)(\[?=| )?([^`]*)`")
# Commands that take the words of other launchers, and what is no option there.
LAUNCHERS = {"eyrie mpiexec", "mpiexec", "mpirun"}
# Commands that start the command behind their own words.
STARTERS = {"mpiexec", "mpiexec.hydra", "mpirun", "srun", "sudo", "exec", "nice", "time"}


def scripts(page):
    """(line, text) of each script of the page."""
    for language, number, lines in page.blocks:
        if language in ("sh", "bash"):
            yield number, "\n".join(lines) + "\n"
        elif language == "console":
            typed = [line[2:] for line in lines if line.startswith("$ ")]
            if typed:
                yield number, "\n".join(typed) + "\n"


def unparsable(book):
    for path, page in book.items():
        for number, text in scripts(page):
            done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
            if done.returncode:
                why = done.stderr.strip().splitlines()[0]
                yield path, f"the block at line {number} does not parse: {why}"


def options(book):
    """{command: {option: whether it takes a value of its own word}} by the pages of options."""
    known = {}
    for path in ("docs/reference/options.md", "docs/reference/options-image.md"):
        if path not in book:
            continue
        command = None
        for _, line in book[path].prose():
            mark = re.match(r"^## (eyrie\S*.*)$", line)
            if mark:
                command = known.setdefault(mark.group(1), {})
            elif command is not None and line.startswith("- `-"):
                for name, between, _ in OPTION.findall(line.split(": ")[0]):
                    command[name] = between == " "
    return known


def commands(text):
    """The words of each command of Eyrie in a script."""
    text = re.sub(r"\\\n", " ", text)
    for line in text.split("\n"):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            # A word that goes on in the next line: bash has parsed it.
            continue
        words = [word.rstrip(";") for word in words]
        for at, word in enumerate(words):
            if re.fullmatch(r"(\S+/bin/)?eyrie(-image)?", word) and is_command(words[:at]):
                yield [word.rsplit("/", 1)[-1], *words[at + 1 :]]


def is_command(before):
    """Whether a command stands behind these words of a line."""
    if not before or before[0] in STARTERS:
        return True
    last = before[-1]
    return last in ("&&", "||", "|", "then", "do") or re.match(r"^\w+=", before[0]) is not None


def named(page):
    """(line, words) of each command that stands in the text."""
    lines = dict(page.prose())
    text = "\n".join(lines.get(number, "") for number in range(1, len(page.lines) + 1))
    for mark in re.finditer(r"(?<!`)`(eyrie(?:-image)?\s(?:[^`\n]|\n(?!\n))+)`", text):
        if not re.search(r"__|[|\[]| COMMAND", mark.group(1)):
            number = text.count("\n", 0, mark.start()) + 1
            yield number, [word.rstrip(",") for word in mark.group(1).split()]


def unknown_options(book):
    known = options(book)
    if not known:
        yield "docs/reference/options.md", "has no options"
        return
    for path, page in book.items():
        if path.startswith("docs/") and not path.startswith("docs/formats/"):
            for number, words in named(page):
                fault = wrong(known, words)
                if fault:
                    yield path, f"line {number}: {fault}"
        for number, text in scripts(page):
            for words in commands(text):
                fault = wrong(known, words)
                if fault:
                    yield path, f"the block at line {number}: {fault}"


def wrong(known, words):
    """What is wrong with a command, or None."""
    depth = max((d for d in (1, 2, 3) if " ".join(words[:d]) in known), default=0)
    if len(words) == 2 and any(one.startswith(" ".join(words) + " ") for one in known):
        return None
    if not depth or len(words) == 1:
        least = 2 if len(words) > 1 else 1
        return f"there is no command '{' '.join(words[:least])}'"
    command = " ".join(words[:depth])
    if command in LAUNCHERS:
        return None
    rest = iter(words[depth:])
    for word in rest:
        if word in ("--", "|", "&&", "||", ":", ">", ";") or word.startswith(("$", ">", "<")):
            return None
        if not word.startswith("-") or word == "-":
            # What follows the program are its own words.
            if command in ("eyrie run", "eyrie join", "eyrie verify", "eyrie-image run"):
                return None
            continue
        name, has_value, _ = word.partition("=")
        if name in ("-h", "--help", "-V", "--version"):
            continue
        if name not in known[command]:
            return f"`{command}` has no option {name}"
        if known[command][name] and not has_value:
            next(rest, None)
    return None
