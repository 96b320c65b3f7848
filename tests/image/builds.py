"""Building the programs of the matrix, once for each way; and what else a test needs of the machine.

What is missing is said in words, with what would help; a test that needs it counts as failed unless
it is left out on request."""

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
    """Something that a test needs is not there."""


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
        return [PYTHON, source]
    os.makedirs(OUT, exist_ok=True)
    out = os.path.join(OUT, f"{program.source.split('.')[0]}.{build}")
    newest = max(os.path.getmtime(p) for p in (source, os.path.join(SOURCES, "check.h")))
    if os.path.exists(out) and os.path.getmtime(out) > newest:
        return [out]
    arguments = compiler(build, source, f"{out}.new")
    if not shutil.which(arguments[0]):
        raise Missing(f"the compiler {arguments[0]} (scripts/setup test installs it)")
    env = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    done = subprocess.run(arguments, capture_output=True, text=True, env=env, cwd=OUT)
    if done.returncode != 0 or "warning:" in done.stderr:
        raise Missing(f"a program: {' '.join(arguments)}:\n{done.stderr}")
    os.rename(f"{out}.new", out)
    return [out]


def huge_pages():
    """Reserves some huge pages, where that is allowed and not done."""
    path = "/proc/sys/vm/nr_hugepages"
    try:
        with open(path) as f:
            if int(f.read()) >= HUGE_PAGES:
                return
        with open(path, "w") as f:
            f.write(str(HUGE_PAGES))
        with open(path) as f:
            if int(f.read()) >= HUGE_PAGES:
                return
    except (OSError, ValueError):
        pass
    raise Missing(f"{HUGE_PAGES} huge pages: as root, echo {HUGE_PAGES} > {path}")


NEEDS = {"hugetlb": huge_pages}
