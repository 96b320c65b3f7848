"""MPICH's suite: how its programs are built, run and judged, as its own `runtests` does."""

import os
import subprocess
import tempfile

import harness
import suites
import testlist
import under as ways

# As long as its own script waits.
LIMIT_S = 180
# Of those that compute or copy so much that a busy machine takes longer.
LONG_LIMIT_S = 600
LONG = (
    "pt2pt/large_message",
    "rma/derived_acc_flush_local",
    "rma/large_acc_flush_local",
    "rma/manyget",
    "rma/rma_contig",
    "threads/pt2pt/multisend4",
)
# What programs print when all was well, and nothing else.
WELL = ("No Errors", "No errors", "Test Passed")


def quiet(code, said):
    """What is wrong with an end that has to be a good one; None if nothing is."""
    if code != 0:
        return f"it ended with {code}"
    if not any(line in WELL for line in said):
        return "it did not say that there are no errors"
    if any(line not in WELL for line in said):
        return "it said more than that there are no errors"
    return None


def judge(result, code, said):
    """Holds an end against what the line wants of it (`resultTest`)."""
    if result in ("TestStatus", "TestErrFatal"):
        return None if code != 0 else "it ended with 0, but has to fail"
    if result == "TestStatusNoErrors":
        return "it ended with 0, but has to fail" if code == 0 else quiet(0, said)
    assert not result, f"nobody knows the judgement {result}"
    return quiet(code, said)


class Suite:
    """Runs of a built suite."""

    name = "mpich"

    def __init__(self):
        self.source = suites.mpich_source()
        self.built = suites.configured(self.source)
        self.unbuilt = {}

    def tests(self):
        # Not those in Fortran 2008, which are configured where MPICH itself is built only.
        lines = testlist.read(self.source, self.built)
        return {f"mpich:{line.name}": line for line in lines}

    def prepare(self, lines):
        """Builds what the lines need, folder by folder; what does not build fails when it is run."""
        wanted = {}
        for line in lines:
            if not os.path.exists(os.path.join(self.built, line.folder, line.program)):
                wanted.setdefault(line.folder, set()).add(line.program)
        env = suites.environment()
        for folder, programs in sorted(wanted.items()):
            make = ["make", "-s", "-k", "-j2", "-C", os.path.join(self.built, folder)]
            # Programs that a test starts itself are built with it.
            more = self.programs(folder) if folder.endswith("spawn") else ()
            done = subprocess.run(
                [*make, *sorted(programs | set(more))],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for program in programs:
                if not os.path.exists(os.path.join(self.built, folder, program)):
                    self.unbuilt[folder, program] = done.stdout[-3000:]

    def programs(self, folder):
        """All that the folder can build."""
        with open(os.path.join(self.built, folder, "Makefile")) as file:
            text = file.read().replace("\\\n", " ")
        for line in text.splitlines():
            if line.startswith("noinst_PROGRAMS ="):
                return [word.removesuffix("$(EXEEXT)") for word in line.split()[2:]]
        return []

    def run(self, line, under):
        """Runs a line; returns {name: what is wrong, or None}, and nobody that was skipped."""
        name = f"mpich:{line.name}"
        if (line.folder, line.program) in self.unbuilt:
            return {name: "it does not build: " + self.unbuilt[line.folder, line.program]}, 0
        with tempfile.TemporaryDirectory(prefix="eyrie-conformance-") as folder:
            # Runs beside it write files of the same names.
            for found in os.scandir(os.path.join(self.built, line.folder)):
                if found.is_file() and not found.name.startswith("Makefile"):
                    os.symlink(found.path, os.path.join(folder, found.name))
            env = dict(word.split("=", 1) for word in line.environment)
            command = ["./" + line.program, *line.arguments]
            is_long = f"{line.folder}/{line.program}" in LONG or line.program.endswith("_huge")
            limit = LONG_LIMIT_S if is_long else LIMIT_S
            try:
                ended = ways.run(under, command, line.ranks, folder, env, max(limit, line.limit_s))
            except (harness.Hung, AssertionError) as problem:
                return {name: str(problem)}, 0
        said = [text.strip() for text in (ended.out + "\n" + ended.err).splitlines() if text.strip()]
        wrong = judge(line.result, ended.code, said)
        return {name: wrong and f"{wrong} (exit code {ended.code}):\n{harness.limited(ended.told())}"}, 0
