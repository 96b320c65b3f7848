"""Building the programs of the matrix, once for each way; and what else a test needs of the machine.

What is missing is said in words, with what would help. A test whose compiler is missing counts as
failed unless it is left out on request; one that needs privileges or hardware is named at the end."""

import atexit
import os
import shutil
import subprocess

import table

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.environ.get("EYRIE_CACHE") or os.path.expanduser("~/.cache/eyrie")
PYTHON = os.path.join(CACHE, "venv", "bin", "python")
OUT = os.path.join(ROOT, "build", "tests", "image")
SOURCES = os.path.join(HERE, "programs")
CXX_FLAGS = ("-std=c++17", "-O1", "-g", "-Wall", "-Wextra")
HUGE_PAGES = 8


class Missing(Exception):
    """Something that a test needs is not there, and could be."""


class CannotHere(Exception):
    """Something that this machine or this user does not have: said, and not counted as a failure."""


def profile():
    """What cargo has built `build/` with: what it depends on is not compiled twice."""
    with open(os.path.join(ROOT, "build", "profile")) as file:
        return file.read().strip()


def compiler(build, source, out):
    """The command that builds `source` as `out`."""
    if build in table.BUILDS:
        head, tail = table.BUILDS[build]
        return [*head, "-o", out, source, *tail]
    if build in ("g++", "clang++"):
        return [build, *CXX_FLAGS, "-o", out, source, "-lpthread"]
    if build == "gfortran":
        return [build, "-O1", "-g", "-fopenmp", "-o", out, source]
    if build == "go":
        return [build, "build", "-o", out, source]
    if build == "rustc":
        rustc = os.environ.get("RUSTC", "rustc")
        return [rustc, "--edition", "2024", "-O", "-g", "-o", out, source]
    raise KeyError(build)


def command(program, build):
    """Builds a program if need be; returns the command that runs it."""
    source = os.path.join(SOURCES, program.source)
    if build == "python":
        if not os.path.exists(PYTHON):
            raise Missing(f"{PYTHON} (scripts/setup makes it)")
        return [PYTHON, source, *program.args]
    os.makedirs(OUT, exist_ok=True)
    out = os.path.join(OUT, f"{program.source.split('.')[0]}.{build}")
    newest = max(os.path.getmtime(p) for p in (source, os.path.join(SOURCES, "check.h")))
    if os.path.exists(out) and os.path.getmtime(out) > newest:
        return [out, *program.args]
    arguments = compiler(build, source, f"{out}.new")
    if not shutil.which(arguments[0]):
        raise Missing(f"the compiler {arguments[0]} (scripts/setup test installs it)")
    env = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run(arguments, capture_output=True, text=True, env=env, cwd=OUT)
    if done.returncode != 0 or "warning:" in done.stderr:
        raise Missing(f"a program: {' '.join(arguments)}:\n{done.stderr}")
    os.rename(f"{out}.new", out)
    return [out, *program.args]


def huge_pages():
    """Reserves some huge pages, where that is allowed and not done; they are given back at the end."""
    path = "/proc/sys/vm/nr_hugepages"

    def reserved():
        with open(path) as f:
            return int(f.read())

    def reserve(count):
        with open(path, "w") as f:
            f.write(str(count))

    try:
        before = reserved()
        if before >= HUGE_PAGES:
            return
        atexit.register(reserve, before)
        reserve(HUGE_PAGES)
        if reserved() >= HUGE_PAGES:
            return
    except (OSError, ValueError):
        pass
    raise CannotHere(f"{HUGE_PAGES} huge pages: as root, echo {HUGE_PAGES} > {path}")


def numbers():
    """Choosing the numbers of threads is a privilege."""
    if os.geteuid() != 0:
        raise CannotHere("to be run as root: only then do restored threads keep their numbers")


NEEDS = {"hugetlb": huge_pages, "numbers": numbers}
