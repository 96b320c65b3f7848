"""One log to which several ranks append: each line stands once, as it was appended first, however
often ranks and nodes die, also between a write and its record."""

import os
import tempfile

import harness
from bad_input import program
from clocked import built
from harness import Gated
from nodes import Points, gone

RANKS, LINES = 3, 120


class Logged(Points, Gated):
    """A job whose ranks append to one log; half-way they wait until they are let on."""

    def __init__(self, command, how, folder, ranks=RANKS, **more):
        self.size = ranks
        self.log, self.go = os.path.join(folder, "log"), os.path.join(folder, "go")
        command = [*command, self.log, str(LINES), how, self.go]
        super().__init__(command, ranks=ranks, **more)

    def lines(self):
        try:
            with open(self.log) as file:
                return file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return []

    def halves(self):
        """All ranks have appended the first half, or but for what is in their buffers."""
        self.until(lambda: len(self.lines()) >= self.size * (LINES // 2 - 7), "the first half")

    def let_on(self):
        open(self.go, "w").close()

    def comes_back(self, *ranks, count=1):
        self.kill_ranks(ranks)
        for rank in ranks:
            self.wait_event("restored", rank=rank, count=count)

    def killed_at(self, point, rank):
        """The rank has come to that point, and dies there."""
        self.held_at(f"{point}.{rank}")
        self.kill_ranks([rank])
        self.wait_event("restored", rank=rank)
        self.let_go(f"{point}.{rank}")

    def ends_well(self):
        self.let_on()
        self.let_end()
        assert self.wait() == 0, self.report()
        assert not self.count("rolled-back") and not self.count("diverged"), self.report()
        told = [line.split() for line in self.stdout().splitlines()]
        lines, all_lines = self.lines(), 0
        for rank, count, wanted in told:
            own = [line for line in lines if line.startswith(f"rank {rank} ") or line == "the same\n"]
            if "same" in own[0]:
                own = own[: int(count)]
            assert len(own) == int(count), (rank, own, self.report())
            assert hash_of("".join(own)) == int(wanted), (rank, own)
            all_lines += len(own)
        assert len(told) == self.size and all_lines == len(lines), (told, len(lines))
        gone(self)


def hash_of(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def killed(command, how, options=()):
    """From the beginning, from a checkpoint, and two at once."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with Logged(command, how, folder, ckpt_every=0, options=options) as job:
            job.halves()
            job.comes_back(1)
            job.eyrie("checkpoint", "last", "--rank", "2")
            job.comes_back(2, 0)
            job.let_on()
            job.until(lambda: len(job.lines()) > RANKS * (LINES // 2 + 10), "more lines")
            job.comes_back(1, count=2)
            job.comes_back(2, count=2)
            job.ends_well()


def at_a_point(how, point, rank):
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with Logged(program("logs"), how, folder, ckpt_every=0) as job:
            job.halves()
            job.eyrie("checkpoint", "last", "--rank", str(rank))
            job.arm(f"{point}.{rank}")
            job.let_on()
            job.killed_at(point, rank)
            job.ends_well()


def a_node_is_lost(how, point):
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        options = ["--nodes", "3"]
        with Logged(program("logs"), how, folder, ckpt_every=0.3, options=options) as job:
            job.halves()
            if point:
                job.arm(f"{point}.1")
            job.let_on()
            if point:
                job.held_at(f"{point}.1")
            job.eyrie("inject", "last", "kill-node", "1")
            job.wait_event("node-lost", node=1)
            if point:
                job.let_go(f"{point}.1")
            job.ends_well()


def generated():
    ways = ("write", "writev", "stream", "print", "each", "same")
    cases = [(f"by_{how}", killed, program("logs"), how) for how in ways]
    for point in ("append-1", "append-2"):
        name = {"append-1": "before_its_write", "append-2": "before_its_record"}[point]
        for how in ("write", "stream", "same"):
            cases.append((f"dies_{name}_by_{how}", at_a_point, how, point, 1))
            # Equal lines of ranks on other nodes may be taken for the one that it did not write (files.md).
            if (point, how) != ("append-1", "same"):
                cases.append((f"node_dies_{name}_by_{how}", a_node_is_lost, how, point))
    cases += [(f"node_lost_by_{how}", a_node_is_lost, how, None) for how in ("write", "stream")]
    return [(label, lambda what=what, rest=rest: what(*rest)) for label, what, *rest in cases]


def test_of_streams_of_cpp():
    killed(built("logs_cpp.cpp"), "stream")


def test_of_a_wide_stream():
    """The C library writes one by itself, in pieces of 16 bytes. It is not recorded, and works as ever."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with Logged(program("logs"), "wide", folder, ranks=1, ckpt_every=0) as job:
            job.halves()
            job.ends_well()


def test_of_python():
    script = os.path.join(harness.ROOT, "tests", "e2e", "programs", "logs.py")
    killed([harness.PYTHON, script], "write", options=["--clocks", "logged"])
