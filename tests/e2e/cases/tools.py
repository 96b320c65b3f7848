"""The tool information interface (MPI_T): what it counts is what happened, in spite of kills, and a program
that sends what it reads repeats itself."""

import os
import re
import tempfile

import harness
from bad_input import program
from harness import Job, run_to_end

# What each protection has a message go by: logs, shared memory, other nodes.
WAYS = {
    "logged": {},
    "without_ft": {"ft": "none"},
    "coordinated": {"ft": "coordinated"},
    "nodes": {"options": ["--nodes", "3"]},
}


def traffic(**options):
    code, out, err = run_to_end(program("tools") + ["traffic"], ranks=3, **options)
    assert code == 0 and out == "counted\n", (code, out, err[-2000:])


def generated():
    for name, options in WAYS.items():
        yield f"messages_are_counted_{name}", lambda o=options: traffic(**o)


def test_waits_are_timed():
    code, out, err = run_to_end(program("tools") + ["waits"], ranks=3)
    assert code == 0 and out == "waited\n", (code, out, err[-2000:])


def test_what_is_read_is_deterministic():
    command = program("tools") + ["course", "40"]
    code, out, err = run_to_end(command, ranks=3, subcommand="verify", options=["--seeds", "2"])
    assert code == 0 and "deterministic under replay" in out, (code, out, err[-2000:])


def lines(job):
    """What the program says of each rank at its end."""
    form = r"rank \d+ miscounted (\d+) recoveries (\d+) checkpoint (\d+) told (\d+) (\d+)"
    return [tuple(map(int, found.groups())) for found in re.finditer(form, job.stdout())]


def came_back(job, rank):
    return job.count("restored", rank=rank)


def has_checkpoint(job, rank):
    return job.count("checkpointed", rank=rank)


def newest(job, rank):
    """The number of the rank's newest checkpoint."""
    known = [e for e in job.events() if e["event"] == "checkpointed" and e["rank"] == rank]
    return max(e["generation"] for e in known)


def ends(job, folder):
    """The program is let end when all have a checkpoint more; recoveries are those of the events, and
    checkpoints no fewer than there were when it was let."""
    had = [has_checkpoint(job, rank) for rank in range(3)]
    job.until(lambda: all(has_checkpoint(job, r) > had[r] for r in range(3)), "checkpoints of all")
    least = [newest(job, rank) for rank in range(3)]
    open(os.path.join(folder, "stop"), "w").close()
    assert job.wait() == 0, job.report()
    found = lines(job)
    assert len(found) == 3, job.report()
    for rank, (miscounted, recoveries, checkpoint, restored, saved) in enumerate(found):
        assert miscounted == 0, (rank, job.report())
        assert recoveries == restored == came_back(job, rank), (rank, found, job.report())
        # One that was just taken when the job ended may have no event.
        most = newest(job, rank) + 1
        assert least[rank] <= saved <= most and least[rank] <= checkpoint <= most, (rank, found, least)
    assert not job.count("diverged"), job.report()


def test_recoveries_and_checkpoints_are_counted():
    """A rank dies twice, each time with a checkpoint."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with Job(program("tools") + ["course", folder], ranks=3, ckpt_every=0.1) as job:
            for death in (1, 2):
                newer = has_checkpoint(job, 1)
                job.until(lambda n=newer: has_checkpoint(job, 1) > n, "a checkpoint")
                assert job.kill_ranks([1])[0] == 0
                job.until(lambda d=death: came_back(job, 1) >= d, "a recovery")
            ends(job, folder)
            assert [came_back(job, rank) for rank in range(3)] == [0, 2, 0], job.report()


def test_a_rank_that_comes_to_another_node_counts_on():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        options = ["--nodes", "3", "--spares", "1"]
        command = program("tools") + ["course", folder]
        with Job(command, ranks=3, ckpt_every=0.1, options=options) as job:
            job.until(lambda: all(has_checkpoint(job, r) for r in range(3)), "checkpoints of all")
            assert job.kill_ranks([2])[0] == 0
            job.until(lambda: came_back(job, 2), "a recovery")
            newer = has_checkpoint(job, 2)
            job.until(lambda: has_checkpoint(job, 2) > newer, "a checkpoint")
            home = job.status()["ranks"][2]["node"]
            job.eyrie("inject", "last", "kill-node", str(home))
            job.until(lambda: came_back(job, 2) >= 2, "a recovery elsewhere")
            ends(job, folder)
            assert came_back(job, 2) == 2, job.report()
