"""Who dies while what changed in a chain of images is put together: the rank, its node with its storage,
the controller (`docs/internals/fault-points.md`, tidy-1 and tidy-2)."""

import os

from bad_input import program
from controller import kill_controller
from drain import Asked
from harness import run_to_end
from nodes import Pointed, gone

RANKS = 3
# Another part of a rank's memory changes in each step, so chains grow.
DRIFT = [*program("tables"), "--drift"]
# Pauses of a run, and lines that let it go on.
LINES = b"go on\n" * 40
_want = []


def want():
    """The output of an undisturbed run, made once."""
    if not _want:
        code, out, err = run_to_end(DRIFT, RANKS, ft="none", stdin=LINES)
        assert code == 0, (out, err)
        _want.append(out)
    return _want[0]


class Checkpoint(Asked):
    """`eyrie checkpoint` in the background."""

    command = "checkpoint"


class Drifting(Pointed):
    def __init__(self, scheme):
        want()
        options = ["--vault", scheme] if scheme else []
        super().__init__(DRIFT, 4, options, ranks=RANKS, ckpt_every=0, stdin="open")

    def tell(self, lines):
        self.process.stdin.write(lines)
        self.process.stdin.flush()

    def is_held(self, point):
        return os.path.exists(os.path.join(self.points, f"{point}.pid"))

    def comes_to(self, point):
        """Checkpoints, each of another part, until a chain is put together. Returns the node and rank of
        that, and how many there had been of this rank's."""
        self.arm(point)
        for step in range(1, 20):
            self.until(lambda: self.stdout().count("paused") == step, f"pause {step}")
            with Checkpoint(self, "--rank", "1") as asked:
                self.until(lambda: self.is_held(point) or asked.process.poll() is not None, "an answer")
                if self.is_held(point):
                    record = self.status()
                    assert self.held_at(point) == record["nodes"][record["ranks"][1]["node"]]["pid"]
                    return record["ranks"][1]["node"], step - 1
                code, out, err = asked.over()
                assert code == 0, (code, out, err)
            self.tell(b"go on\n")
        raise AssertionError("no chain was put together")

    def ends(self):
        self.tell(LINES)
        self.let_end()
        assert self.wait() == 0, self.report()
        assert self.stdout() == want(), self.report()
        assert not self.count("rolled-back") and not self.count("diverged"), self.report()
        gone(self)


def the_node_dies(point, scheme):
    with Drifting(scheme) as job:
        node, whole = job.comes_to(point)
        assert whole > 2, whole
        job.kill_nodes(node)
        job.wait_event("node-lost", node=node)
        # The image that was being made does not count.
        job.wait_event("restored", rank=1, generation=whole)
        job.ends()
        others = [e for e in job.events() if e["event"] == "restored" and e["rank"] != 1]
        assert not others, others


def test_the_node_dies_before_a_chain_is_put_together():
    the_node_dies("tidy-1", None)


def test_the_node_dies_when_a_chain_was_put_together():
    the_node_dies("tidy-2", "rs:2+1")


def the_rank_dies(point):
    """The image is whole, and counts as soon as its node says so, though the rank is gone: it comes
    back from that one, or from the one before."""
    with Drifting("partner") as job:
        _, whole = job.comes_to(point)
        job.kill_ranks([1])
        job.let_go(point)
        job.wait_event("restored", rank=1)
        (event,) = [e for e in job.events() if e["event"] == "restored"]
        assert event["generation"] in (whole, whole + 1), event
        job.ends()


def test_the_rank_dies_before_a_chain_is_put_together():
    the_rank_dies("tidy-1")


def test_the_rank_dies_when_a_chain_was_put_together():
    the_rank_dies("tidy-2")


def test_the_controller_dies_while_a_chain_is_put_together():
    """The next one hears of the image, and the rank comes back from it."""
    with Drifting("rs:2+1") as job:
        node, whole = job.comes_to("tidy-2")
        kill_controller(job)
        job.let_go("tidy-2")
        job.wait_event("checkpointed", rank=1, generation=whole + 1)
        job.kill_nodes(node)
        job.wait_event("restored", rank=1, generation=whole + 1)
        job.ends()
