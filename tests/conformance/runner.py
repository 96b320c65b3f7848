"""Runs suites of others against the built library, and holds what fails against the list of failures that
are expected.

usage: tests/conformance/run [--all] [--suite NAME]... [--under WAY]... [-k WORD]... [--but WORD]...
    [--limit SECONDS] [-j JOBS] [--list] [--plain]

Without options a small part is run, which `fixed.toml` names. --all runs all of all suites undisturbed
(`none`: without logging; `logged`: the default), and the fixed part with kills (`rank-killed`, `node-killed`).
--suite (mpich, mpi4py, imb), --under, -k (what has one of the words) and --but (what has none) choose among
all. --under mpich runs MPICH's programs with its own library and launcher (use --plain). --limit takes the place
of each test's own limit. --plain tells what comes of each test, without the list. Each failure is printed with the
command that repeats it. The last line is `conformance: N passed, N failed`.
"""

import argparse
import concurrent.futures
import contextlib
import glob
import os
import signal
import sys
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.insert(0, HERE)

import harness  # noqa: E402
import imb  # noqa: E402
import mpi4py_suite  # noqa: E402
import mpich  # noqa: E402
import suites  # noqa: E402
import under as ways  # noqa: E402
from expected import Expected  # noqa: E402

SUITES = {"mpich": mpich.Suite, "mpi4py": mpi4py_suite.Suite, "imb": imb.Suite}
UNDISTURBED = ("none", "logged")


def options():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--suite", action="append", choices=SUITES, default=[])
    parser.add_argument("--under", action="append", choices=ways.WAYS, default=[])
    parser.add_argument("-k", action="append", default=[], metavar="WORD")
    parser.add_argument("--but", action="append", default=[], metavar="WORD")
    parser.add_argument("--limit", type=float, metavar="SECONDS")
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--plain", action="store_true")
    return parser.parse_args()


def fixed_part():
    """Pairs (name, way) that are run at each commit, and those of them that have kills."""
    with open(os.path.join(HERE, "fixed.toml"), "rb") as file:
        parts = tomllib.load(file)["part"]
    return [(name, way) for part in parts for way in part["under"] for name in part["tests"]]


def chosen(asked, tests):
    """Pairs (name, way) that are to be run."""
    fixed = fixed_part()
    missing = [name for name, _ in fixed if name not in tests and name.split(":")[0] in loaded_of(tests)]
    assert not missing, f"fixed.toml names what no suite has: {missing}"
    if asked.all or asked.suite or asked.under or asked.k:
        pairs = [(name, way) for way in asked.under or UNDISTURBED for name in tests]
        if asked.all and not asked.under:
            pairs += [(name, way) for name, way in fixed if way not in UNDISTURBED]
    else:
        pairs = fixed

    def wanted(name, way):
        text = f"{name} {way}"
        return (not asked.k or any(word in text for word in asked.k)) and not any(word in text for word in asked.but)

    pairs = [(name, way) for name, way in pairs if way != "mpich" or name.startswith("mpich:")]
    return [(name, way) for name, way in dict.fromkeys(pairs) if name in tests and wanted(name, way)]


def loaded_of(tests):
    return {name.split(":")[0] for name in tests}


class Counts:
    """What came of all tests so far."""

    def __init__(self, expected):
        self.expected = expected
        self.passed = self.failed = self.expected_failures = self.skipped = 0

    def take(self, results, skipped, way, seconds):
        self.skipped += skipped
        for name, wrong in results.items():
            reason = self.expected and self.expected.reason(name, way)
            again = f"tests/conformance/run --under {way} -k '{name}'"
            if wrong is None and not reason:
                self.passed += 1
            elif wrong and reason:
                self.expected_failures += 1
            elif wrong:
                self.failed += 1
                print(f"FAILED {name} ({way}, {seconds:.1f} s): {wrong}\n    again: {again}", flush=True)
            else:
                self.failed += 1
                print(f"PASSED, but is listed in expected.toml: {name} ({way}): {reason}\n    again: {again}", flush=True)


def run(loaded, pairs, tests, counts, jobs):
    def one(pair):
        name, way = pair
        began = time.monotonic()
        results, skipped = loaded[name.split(":")[0]].run(tests[name], way)
        return results, skipped, way, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one, pair) for pair in pairs]
        try:
            for done in concurrent.futures.as_completed(waiting):
                counts.take(*done.result())
                if not counts.expected:
                    results, _, way, seconds = done.result()
                    for name, wrong in results.items():
                        print(f"{'ok' if wrong is None else 'NOT OK'} {seconds:.1f} {way} {name}", flush=True)
        except Stopped:
            # Each of them may just have begun a job. Those that have not begun never count as done.
            pool.shutdown(wait=False, cancel_futures=True)
            begun = [future for future in waiting if not future.cancelled()]
            while concurrent.futures.wait(begun, timeout=1).not_done:
                end_children()
            raise


class Stopped(Exception):
    """Whoever runs the tests has had enough of them."""


def stop(*_):
    # One that is sent to all of a group comes once.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


def end_children():
    """A job ends what is its own when its command is told to end."""
    for path in glob.glob("/proc/self/task/*/children"):
        with contextlib.suppress(OSError), open(path) as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGTERM)


def main():
    asked = options()
    loaded, tests, counts = {}, {}, Counts(None if asked.plain else Expected())
    for name in asked.suite or SUITES:
        try:
            loaded[name] = SUITES[name]()
            tests.update(loaded[name].tests())
        except suites.Unavailable as problem:
            print(f"FAILED {name}: this suite COULD NOT RUN: {problem}", flush=True)
            counts.failed += 1
    pairs = chosen(asked, tests)
    if asked.list:
        print("\n".join(f"{name} ({way})" for name, way in pairs))
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        for name, suite in loaded.items():
            suite.prepare([tests[n] for n in dict.fromkeys(n for n, _ in pairs) if n.split(":")[0] == name])
        harness.shorten_waits()
        ways.limit_s = asked.limit
        run(loaded, pairs, tests, counts, asked.j)
    except Stopped:
        print(f"conformance: stopped after {counts.passed} passed, {counts.failed} failed", flush=True)
        sys.exit(128 + signal.SIGTERM)
    print(f"{counts.expected_failures} failed as expected, {counts.skipped} skipped by the suites themselves")
    if not (asked.all or asked.k or asked.suite or asked.under):
        # Each of all tests is one, whatever comes of it.
        print(f"conformance: {2 * len(tests) - len(pairs)} more with ALL=1")
    print(f"conformance: {counts.passed} passed, {counts.failed} failed")
    sys.exit(1 if counts.failed or not counts.passed else 0)


if __name__ == "__main__":
    main()
