"""Ranks that come back, repeat what is recorded of them, and then wait or compute outside of MPI."""

import os
import re
import tempfile

from bad_input import program
from harness import Job

RANKS = 4


class Outside(Job):
    def __init__(self, options=(), **more):
        self.made = tempfile.TemporaryDirectory(prefix="eyrie-test-")
        super().__init__(program("waits") + [self.made.name], options=options, stdin="open", **more)

    def close(self):
        super().close()
        self.made.cleanup()

    def all_wait(self, times):
        """For so many times since the job began, rank by rank."""
        names = [os.path.join(self.made.name, f"waits.{rank}") for rank in range(RANKS)]
        size = lambda name: os.path.getsize(name) if os.path.exists(name) else 0
        self.until(lambda: [size(name) for name in names] == times, f"ranks that wait: {times}")

    def states(self):
        return [r["state"] for r in self.status()["ranks"]]

    def comes_back(self, ranks, times, told):
        """These die; that they are back is told though none of them calls MPI any more."""
        self.kill_ranks(ranks)
        self.all_wait(times)
        back = r"(; back|(is|are) back) after .*, nothing was lost"
        self.until(lambda: len(re.findall(back, self.stderr())) == told, "a line that they are back")
        # On a busy machine that may take long, which is told before.
        assert not self.stderr().rstrip().endswith("bringing back"), self.report()
        assert "replaying" not in self.states(), self.report()

    def snapshot(self, number):
        """At the first attempt."""
        self.eyrie("checkpoint", "last")
        self.wait_event("snapshot", count=number)
        assert self.count("snapshot") == number, self.report()

    def goes_on(self):
        open(os.path.join(self.made.name, "gate"), "w").close()
        self.process.stdin.write(b"a line\n")
        self.process.stdin.flush()
        assert self.wait() == 0, self.report()
        assert not self.count("rolled-back"), self.report()
        return self.stdout()


def test_who_waits_outside_of_mpi_is_back_when_all_that_is_recorded_was_repeated():
    """From the beginning, and from a checkpoint after which nothing is recorded; then all can be checkpointed
    together, on one node and over several."""
    with Outside(ranks=RANKS, ckpt_every=0) as job:
        job.all_wait([1] * RANKS)
        want = job.goes_on()
    assert re.fullmatch(r"sum \d+ after a line\n", want), want
    for nodes in [], ["--nodes", "2"]:
        with Outside(ranks=RANKS, ckpt_every=0, options=["--fallback-every", "1", *nodes]) as job:
            job.all_wait([1] * RANKS)
            job.comes_back([1, 2, 3], [1, 2, 2, 2], 1)
            repeated = [e["count"] for e in job.events() if e["event"] == "caught-up"]
            assert len(repeated) == 3 and min(repeated) >= 200, repeated
            job.comes_back([0], [2] * RANKS, 2)
            job.snapshot(1)
            job.kill_ranks([0, 1, 2, 3])
            job.wait_event("restored", count=2 * RANKS)
            job.snapshot(2)
            assert job.count("caught-up") == RANKS, job.report()
            assert job.goes_on() == want, job.report()
