"""Ranks that come back with much memory: they run before all of it is there."""

import os

from harness import Gated, NotRun, example, run_to_end
from swap import resident

MIB = 96
HEAT = [*example("heat"), "--mib", str(MIB), "--steps", "60"]
LATE = "runs before all of its memory is there"


def filled(job, rank):
    filled_with(job, rank, MIB)


def filled_with(job, rank, mib):
    """Waits until a rank has used its memory: an image from before that would hold little."""
    job.until(lambda: resident([job.status()["ranks"][rank]["pid"]]) >= mib * 0.95, f"the memory of rank {rank}")


def said(job, text):
    """How often the log of the job's node says something."""
    folder = job.folder()
    logs = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".log")]
    count = 0
    for path in logs:
        with open(path, errors="replace") as log:
            count += log.read().count(text)
    return count


def test_a_rank_with_much_memory_runs_before_all_of_it_is_there():
    """It is killed again, which may be while it comes."""
    if os.geteuid():
        raise NotRun("whoever fills another process's memory must be root")
    code, want, err = run_to_end(HEAT)
    assert code == 0, err
    with Gated(HEAT, ckpt_every=3600) as job:
        job.wait_running(4)
        filled(job, 2)
        job.eyrie("checkpoint", "last", "--rank", "2")
        job.kill_ranks([2])
        job.wait_event("restored", rank=2)
        assert said(job, LATE) == 1, job.report()
        job.kill_ranks([2])
        job.wait_event("restored", count=2, rank=2)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()

