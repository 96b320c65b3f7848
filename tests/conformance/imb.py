"""Intel's benchmarks, unmodified binaries for MPICH's ABI, with 2 and 4 ranks."""

import dataclasses
import os
import tempfile

import harness
import suites
import under as ways

LIMIT_S = 600
# Sizes to 64 KiB; few repetitions: what they compute counts here, not how fast.
SHORT = ["-iter", "10", "-msglog", "0:16", "-time", "1"]
BINARIES = {
    "MPI1": SHORT,
    "NBC": SHORT,
    "RMA": SHORT,
    "P2P": ["-iter", "10", "-msglog", "0:16"],
    "MT": ["-thread_level", "multiple", "-repeat", "10", "-count", "1,64,4096"],
}
# What each says last, and that of threads, which says nothing, of the last thing that it measures.
LAST = {"MT": "# Benchmarking AllReduceMT"}
THREADS = {"OMP_NUM_THREADS": "2"}


@dataclasses.dataclass
class Binary:
    name: str
    ranks: int


class Suite:
    name = "imb"

    def __init__(self):
        self.folder, self.library = suites.benchmarks()

    def tests(self):
        return {f"imb:{name} {ranks}": Binary(name, ranks) for name in BINARIES for ranks in (2, 4)}

    def prepare(self, lines):
        """They are binaries."""

    def run(self, binary, under):
        name = f"imb:{binary.name} {binary.ranks}"
        command = [os.path.join(self.folder, f"IMB-{binary.name}"), *BINARIES[binary.name]]
        env = {"LD_LIBRARY_PATH": self.library, **THREADS}
        with tempfile.TemporaryDirectory(prefix="eyrie-conformance-") as folder:
            try:
                ended = ways.run(under, command, binary.ranks, folder, env, LIMIT_S)
            except (harness.Hung, AssertionError) as problem:
                return {name: str(problem)}, 0
        last = LAST.get(binary.name, "# All processes entering MPI_Finalize")
        if ended.code == 0 and last in ended.out:
            return {name: None}, 0
        return {name: f"exit code {ended.code}: {harness.limited(ended.told())}"}, 0
