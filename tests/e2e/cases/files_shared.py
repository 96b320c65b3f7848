"""Files that several ranks of a job use: parts of one file, one log, locks; a rank of them is killed."""

import fcntl
import os
import struct
import tempfile

from bad_input import program
from harness import Gated, Job

RANKS, ROUNDS = 3, 200
TOGETHER = [*program("together"), str(ROUNDS)]


def content(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def is_locked(path, byte=None):
    """Whether somebody has locked a file (flock), or a byte of it (fcntl)."""
    with open(path, "r+b") as file:
        try:
            if byte is None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except BlockingIOError:
            return True
    return False


def undisturbed(folder):
    with Job(TOGETHER, ranks=RANKS, cwd=folder) as job:
        assert job.wait() == 0, job.report()
        return job.stdout()


def number(folder):
    return struct.unpack("<Q", content(folder, "count"))[0]


def test_ranks_that_use_the_same_files():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        alone, work = (os.path.join(folder, name) for name in ("alone", "work"))
        os.mkdir(alone)
        os.mkdir(work)
        expected = undisturbed(alone)
        assert number(alone) == RANKS * ROUNDS
        gate = os.path.join(folder, "go")
        with Gated([*TOGETHER, gate], ranks=RANKS, ckpt_every=3600, cwd=work) as job:
            job.wait_running(RANKS)
            job.eyrie("checkpoint", "last")
            open(gate, "w").close()
            job.until(lambda: expected in job.stdout(), "the result")
            for rank in (1, 0):
                job.kill_ranks([rank])
                job.wait_event("restored", rank=rank)
                job.until(lambda: is_locked(os.path.join(work, f"lock.{rank}")), "its lock")
                job.until(lambda: is_locked(os.path.join(work, "shared"), 1000000 + rank), "its lock")

            job.let_end()
            assert job.wait() == 0, job.report()
            assert job.stdout() == expected, (job.stdout(), expected)
            told = job.stderr()
        # Parts are written again, the same. What was counted comes twice, and it is said. What was
        # appended is recorded and stands once, of which nothing has to be said.
        assert content(work, "shared") == content(alone, "shared")
        assert all(f"rank {r} came back, but {work}/count was changed" in told for r in (0, 1)), told
        assert f"{work}/log" not in told, told
        left = [event for event in job.events() if event["event"] == "file-left"]
        counted = {event["rank"] for event in left if event["text"].startswith(f"{work}/count was changed")}
        assert counted == {0, 1} and all(f"came back, but {event['text']}" in told for event in left), left
        assert RANKS * ROUNDS < number(work) <= RANKS * ROUNDS + 2 * ROUNDS, number(work)
        once, lines = (content(folder, "log").splitlines() for folder in (alone, work))
        assert sorted(lines) == sorted(once), (len(lines), len(once))
        assert sum(line.startswith(b"rank     2") for line in lines) == ROUNDS
