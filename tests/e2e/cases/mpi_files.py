"""Files of MPI that are renamed or deleted before a rank comes back to where it had them open."""

import array
import os
import tempfile

from bad_input import program
from harness import Gated

RANKS, CELLS = 3, 1000


def all_have(job, folder, what):
    paths = [os.path.join(folder, f"{what}.{rank}") for rank in range(RANKS)]
    job.until(lambda: all(map(os.path.exists, paths)) or not job.running(), f"{what} of all ranks")


def go(folder):
    open(os.path.join(folder, "go"), "w").close()


def test_a_file_that_was_open_at_the_checkpoint_is_renamed():
    """As programs do that write a file whole, or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        with Gated(program("moved") + [folder, "moved"], ranks=RANKS, ckpt_every=3600) as job:
            all_have(job, folder, "half")
            job.eyrie("checkpoint", "last")
            job.wait_event("checkpointed", rank=1, generation=1)
            go(folder)
            all_have(job, folder, "done")
            job.kill_ranks([0, 1])
            for rank in (0, 1):
                job.wait_event("restored", rank=rank)
            job.let_end()
            assert job.wait() == 0, job.report()
            assert not job.count("diverged") and not job.count("rolled-back"), job.report()
        with open(os.path.join(folder, "whole"), "rb") as file:
            assert array.array("i", file.read()).tolist() == list(range(RANKS * CELLS))
        assert not os.path.exists(os.path.join(folder, "part"))


def test_what_was_read_and_is_gone_is_a_divergence():
    """It says which file; all ranks start anew."""
    with tempfile.TemporaryDirectory() as folder:
        with Gated(program("moved") + [folder, "gone"], ranks=RANKS, ckpt_every=3600) as job:
            go(folder)
            all_have(job, folder, "done")
            job.kill_ranks([1])
            job.wait_event("rolled-back")
            job.let_end()
            assert job.wait() == 0, job.report()
            job.says("part is not there any more")
        assert not os.path.exists(os.path.join(folder, "part"))
