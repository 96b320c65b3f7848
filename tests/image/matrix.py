"""The cases of the matrix: every program, in every build, in every variant; and running them in
parallel, one line each."""

import collections
import concurrent.futures
import dataclasses
import os
import threading
import time
import zlib

import builds
import cycle
import table


@dataclasses.dataclass(frozen=True)
class Case:
    """A program in one build and one variant."""

    name: str
    program: table.Program
    build: str
    variant_name: str
    variant: table.Variant
    command: tuple = ()


def cases():
    """All cases, in order; commands are filled in when the program is built."""
    for program in table.PROGRAMS:
        for build in program.builds:
            for variant_name, variant in table.VARIANTS.items():
                few = program.source not in table.ORDINARY_TOO or build != program.builds[0]
                if variant_name == "ordinary" and (few or program.args):
                    continue
                name = f"{program.name}-{build}.{variant_name}"
                yield Case(name, program, build, variant_name, variant)


def subset(every):
    """Cases for a short run, the same each time: each program in every other variant, each variant with
    every other program, each build of a program at least once."""
    chosen = set()
    for first, program in enumerate(table.PROGRAMS):
        own = [case for case in every if case.program == program]
        variants = [name for name in table.VARIANTS if any(c.variant_name == name for c in own)]
        some = variants[first % 2 :: 2] or variants
        for number in range(max(len(some), len(program.builds))):
            build = program.builds[(first + number) % len(program.builds)]
            chosen.add((program, build, some[number % len(some)]))
    return [case for case in every if (case.program, case.build, case.variant_name) in chosen]


class Suite:
    """Runs cases; builds each program, and runs it undisturbed, once."""

    def __init__(self, instants, seed):
        self.instants, self.seed = instants, seed
        self.found = {}
        self.lock = threading.Lock()
        self.locks = collections.defaultdict(threading.Lock)

    def alone(self, key):
        with self.lock:
            return self.locks[key]

    def once(self, key, make):
        """What `make` makes, or the problem it has, for everyone who needs it."""
        with self.alone(key):
            if key not in self.found:
                try:
                    self.found[key] = make()
                except Exception as problem:
                    self.found[key] = problem
        found = self.found[key]
        if isinstance(found, Exception):
            raise found
        return found

    def command(self, program, build):
        def make():
            if program.needs:
                builds.NEEDS[program.needs]()
            # Programs that differ in their arguments have one source.
            with self.alone(("source", program.source, build)):
                return tuple(builds.command(program, build))

        return self.once((program.name, build), make)

    def reference(self, case, times=1):
        """The program undisturbed, when it does so many times as much."""

        def make():
            return cycle.undisturbed(case.command, cycle.environment(times))

        return self.once((case.program.name, case.build, times), make)

    def prepare(self, case):
        """The case with its program built."""
        return dataclasses.replace(case, command=self.command(case.program, case.build))

    def seed_of(self, case, number):
        return (self.seed * 1000003 + zlib.crc32(case.name.encode()) + number * 7919) % 2**48

    def run(self, case):
        """Runs a case; returns (what was done, seconds)."""
        began = time.monotonic()
        case = self.prepare(case)
        counts = cycle.Counts()
        for number in range(self.instants):
            seed = self.seed_of(case, number)
            counts.add(cycle.twice(case, lambda times: self.reference(case, times), seed))
        words = case.program.refusal(case.variant_name)
        if words and not counts.refusals:
            raise cycle.Broken(f"it is not refused any more ({words})")
        return counts, time.monotonic() - began


def in_parallel(function, items, jobs=None):
    """Yields (item, future) as they are done."""
    with concurrent.futures.ThreadPoolExecutor(jobs or max(2, os.cpu_count() or 2)) as pool:
        futures = {pool.submit(function, item): item for item in items}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future
