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
                name = f"{program.name}-{build}.{variant_name}"
                yield Case(name, program, build, variant_name, variant)


def subset(every, rounds, seed):
    """Cases for a short run: each program in each variant at least once, each build at least once.

    `rounds` builds of a program are taken for each variant, in an order that the seed decides."""
    chosen = []
    for program in table.PROGRAMS:
        own = [case for case in every if case.program == program]
        for number, variant_name in enumerate(table.VARIANTS):
            several = [case for case in own if case.variant_name == variant_name]
            first = seed + number * max(1, len(several) // len(table.VARIANTS))
            take = max(rounds, -(-len(several) // len(table.VARIANTS)))
            several = several[first % len(several) :] + several[: first % len(several)]
            chosen += several[:take]
    return [case for case in every if case in chosen]


class Suite:
    """Runs cases; builds each program and runs it undisturbed once."""

    def __init__(self, instants, seed):
        self.instants, self.seed = instants, seed
        self.ready = {}
        self.locks = collections.defaultdict(threading.Lock)

    def prepare(self, case):
        key = (case.program.name, case.build)
        with self.locks[key]:
            return self._prepared(case, key)

    def _prepared(self, case, key):
        if key not in self.ready:
            try:
                if case.program.needs:
                    builds.NEEDS[case.program.needs]()
                with self.locks[case.program.source, case.build, "build"]:
                    command = builds.command(case.program, case.build)
                self.ready[key] = (command, cycle.undisturbed(command))
            except Exception as problem:  # whoever needs it is told
                self.ready[key] = problem
        found = self.ready[key]
        if isinstance(found, Exception):
            raise found
        return found

    def seed_of(self, case, instant):
        return (self.seed * 1000003 + zlib.crc32(case.name.encode()) + instant * 7919) % 2**48

    def run(self, case):
        """Runs a case; returns (what was done, seconds)."""
        began = time.monotonic()
        command, expected = self.prepare(case)
        case = dataclasses.replace(case, command=tuple(command))
        counts = cycle.Counts()
        for instant in range(self.instants):
            seed = self.seed_of(case, instant)
            try:
                counts.add(cycle.Run(case, expected, seed).whole())
            except Exception as problem:
                problem.done = counts
                problem.seed_of_run = seed
                raise
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
