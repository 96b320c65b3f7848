"""Programs that print times: what was printed stays, each line comes once, and nobody goes back."""

from bad_input import program
from harness import Gated
from nodes import gone

STEPS = 150
# What they print is found out by other clocks than MPI's.
OTHERS = ["--clocks", "mpi"]


def lines(job):
    """The rank and step of each line that is whole."""
    return [tuple(line.split(" ", 2)[:2]) for line in job.stdout().split("\n")[:-1]]


def printed(job, rank, count):
    job.until(lambda: len([l for l in lines(job) if l[0] == str(rank)]) >= count, "lines")


def ends_whole(job):
    """Every line came once, in each rank's order, and no rank went back with another."""
    job.let_end()
    assert job.wait() == 0, job.report()
    said = lines(job)
    for rank in range(4):
        steps = [step for r, step in said if r == str(rank)]
        assert steps == [str(step) for step in range(STEPS)], job.report()
    assert len(said) == 4 * STEPS, job.report()
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()
    assert job.stderr().count("what was printed stays") == 1, job.report()
    gone(job)


def test_ranks_that_print_times():
    """From the beginning, and from a checkpoint of a course that nobody saw printed."""
    with Gated(program("times") + [str(STEPS), "--send"], ckpt_every=0, options=OTHERS) as job:
        printed(job, 1, 20)
        printed(job, 2, 20)
        job.kill_ranks([1, 2])
        job.wait_event("output-differs", rank=1)
        job.wait_event("output-differs", rank=2)
        assert job.status()["output_differences"] == 2, job.report()
        job.eyrie("checkpoint", "last", "--rank", "1")
        job.kill_ranks([1])
        job.wait_event("restored", rank=1, count=2)
        ends_whole(job)


def test_nodes_with_ranks_that_print_times():
    command, options = program("times") + [str(STEPS), "--send"], ["--nodes", "3", *OTHERS]
    with Gated(command, ckpt_every=0, options=options) as job:
        homes = [r["node"] for r in job.wait_running(4)["ranks"]]
        lost = [rank for rank in range(4) if homes[rank] == 1]
        for rank in range(4):
            printed(job, rank, 20)
        job.eyrie("inject", "last", "kill-node", "1")
        for rank in lost:
            job.wait_event("output-differs", rank=rank)
        ends_whole(job)
